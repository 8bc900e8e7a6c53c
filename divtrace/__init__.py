"""divtrace: names the first place where the ranks of a speculative-decoding server disagreed.

>>> from divtrace import analyze
>>> report = analyze("logs/")                  # doctest: +SKIP
>>> report.verdict, report.first.rule          # doctest: +SKIP
('divergence', 'target-tokens')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from divtrace.version import __version__

if TYPE_CHECKING:
    from divtrace.api import Options, analyze
    from divtrace.report.model import Finding, Report

__all__ = ["Finding", "Options", "Report", "__version__", "analyze"]

_HOME = {
    "analyze": "divtrace.api",
    "Options": "divtrace.api",
    "Report": "divtrace.report.model",
    "Finding": "divtrace.report.model",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: the recorder and `--help` must not pay for the analysis."""
    if name not in _HOME:
        raise AttributeError(f"module 'divtrace' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
