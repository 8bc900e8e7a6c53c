"""Warnings of the recorder: through `logging`, once each, never an exception."""

from __future__ import annotations

_said: set[str] = set()


def warn_once(text: str) -> None:
    """Logs a warning the first time that this process says it."""
    if text in _said:
        return
    _said.add(text)
    try:
        import logging

        logging.getLogger("divtrace.record").warning("%s", text)
    except Exception:
        return


def inform(text: str) -> None:
    """Logs at level info; used once per process and hook layer."""
    try:
        import logging

        logging.getLogger("divtrace.record").info("%s", text)
    except Exception:
        return
