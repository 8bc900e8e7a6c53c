"""Fields of events against the definitions of the reader.

The same struct decodes a trace and judges what is written, so what passes here is never a bad line later. A wrong
field does not cost the event: it moves under `extra`, where the reader takes anything, and is counted.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

import msgspec

from divtrace.events import FIELD, INTEGER_MAX, INTEGER_MIN, Event

# Every digit becomes 0 and everything else a space: so twenty digits in a row are found much faster than by a pattern.
_DIGITS = bytes(0x30 if chr(code).isdigit() and code < 128 else 0x20 for code in range(256))
_TWENTY_DIGITS = b"0" * 20
_FAR_BELOW_ZERO = re.compile(rb"-9[0-9]{18}")
_SITE = itemgetter("site")
_PLAIN = (str, int, float, bool, type(None))


_UNFIT = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


class Checker:
    """Checks events in batches and repairs those that the reader would refuse.

    `private` keeps the values of wrong fields to itself: nobody can tell whether they hold tokens. No site is taken at
    its word then.
    """

    def __init__(self, *, private: bool = False) -> None:
        self._private = private
        self.wrong_fields = 0
        """Fields moved under `extra` so far."""
        self._clean_sites: set[Any] = set()
        self._wrong_sites: set[Any] = set()
        self._encoder = msgspec.json.Encoder()

    def encode(self, events: list[dict[str, Any]], *, hurried: bool) -> tuple[bytes, list[str]]:
        """The events as lines, and `stage/site: field` for each wrong field, which is moved under `extra`.

        Hurried, when the queue is long, sites that have only ever been right are taken at their word.
        """
        try:
            if hurried and not self._private and all(map(self._clean_sites.__contains__, map(_SITE, events))):
                return self._encoder.encode_lines(events), []
        except (KeyError, *_UNFIT):
            pass
        try:
            msgspec.convert(events, list[Event])
            data = self._encoder.encode_lines(events)
            if not _may_be_out_of_range(data):
                self._note(events)
                return data, []
        except _UNFIT:
            pass
        found: list[str] = []
        for event in events:
            found.extend(self._check_one(event))
        return self._encoder.encode_lines(events), found

    def _note(self, events: list[dict[str, Any]]) -> None:
        if len(self._clean_sites) < 4096:
            self._clean_sites |= {event.get("site") for event in events} - self._wrong_sites

    def _check_one(self, event: dict[str, Any]) -> list[str]:
        if _fits(event):
            return []
        place = f"{event.get('stage')}/{event.get('site')}"
        wrong = [name for name in event if not _field_fits(name, event[name])]
        extra = event.get("extra")
        kept = {plain(str(key)): plain(value) for key, value in extra.items()} if isinstance(extra, dict) else {}
        for name in wrong:
            value = event.pop(name)
            if name != "extra" or not isinstance(value, dict):
                kept[f"info.{name}"] = f"<{type(value).__name__}>" if self._private else plain(value)
        if "stage" not in event:
            event["stage"] = "host"
        if kept:
            event["extra"] = kept
        self.wrong_fields += len(wrong)
        site = event.get("site")
        self._wrong_sites.add(site)
        self._clean_sites.discard(site)
        return [f"{place}: {name}" for name in wrong]


def _may_be_out_of_range(data: bytes) -> bool:
    """Whether some number has to be looked at, because it may lie outside -2^63 to 2^64-1."""
    if _TWENTY_DIGITS in data.translate(_DIGITS):
        return True
    return b"-9" in data and _FAR_BELOW_ZERO.search(data) is not None


def _fits(event: dict[str, Any]) -> bool:
    try:
        msgspec.convert(event, Event)
        data = msgspec.json.encode(event)
    except _UNFIT:
        return False
    return not _may_be_out_of_range(data) or _in_range(event)


def _field_fits(name: str, value: Any) -> bool:
    return name in FIELD and _fits({"stage": "host", name: value})


def _in_range(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_in_range, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_in_range, value))
    return not isinstance(value, int) or INTEGER_MIN <= value <= INTEGER_MAX


def plain_mapping(value: Any, depth: int = 0) -> Any:
    """As `plain`, with mappings kept as such; for meta records."""
    if isinstance(value, dict) and depth < 6:
        return {plain(str(key)): plain_mapping(item, depth + 1) for key, item in value.items()}
    return plain(value)


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON takes it: scalars and lists of them; anything else by the name of its type.

    Nothing is asked of a foreign object, because a tensor's text or number would wait for its device.
    """
    kind = type(value)
    if kind is int:
        return value if INTEGER_MIN <= value <= INTEGER_MAX else str(value) if value.bit_length() < 4096 else "<int>"
    if kind in _PLAIN:
        return value.encode("utf-8", "backslashreplace").decode() if kind is str else value
    if kind in (list, tuple, set, frozenset) and depth < 4:
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, bool | int | float | str) and kind.__module__.partition(".")[0] != "torch":
        return plain(
            str(value) if isinstance(value, str) else float(value) if isinstance(value, float) else int(value), depth
        )
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return plain(value.item(), depth + 1) if depth < 4 else f"<{kind.__name__}>"
    return f"<{kind.__name__}>"
