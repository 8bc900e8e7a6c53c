"""Questions to lines and records of several ranks: are they alike but for what may differ?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from divtrace.events import VALUE_FIELDS, Event

_decode_slots = msgspec.json.Decoder(list[int]).decode
_SLOTS = b'"kv_slots":['
_BEFORE_LIST = len(_SLOTS) - 1


def equal_but_slots(tail: bytes, other: bytes) -> list[int] | None:
    """The other rank's slots, if its line is equal to the reference's in everything else."""
    here, there = tail.find(_SLOTS), other.find(_SLOTS)
    if here < 0 or here != there or not other.startswith(tail[:here]):
        return None
    end = other.find(b"]", there)
    if end < 0 or other[end:] != tail[tail.find(b"]", here) :]:
        return None
    try:
        return _decode_slots(other[there + _BEFORE_LIST : end + 1])
    except msgspec.DecodeError:
        return None


def has_compared(event: Event) -> bool:
    """True if the record holds anything that is compared between ranks."""
    if any(getattr(event, name) is not None for name in VALUE_FIELDS):
        return True
    return any(key.startswith(("control.", "layout.", "shape.")) for key in event.extra or {})


def unevenly_recorded(events: Sequence[Event]) -> bool:
    """True if a field is recorded on some ranks only: one rank's records then do not stand for all."""
    if len(events) < 2 or events[0].req is None:
        return False
    for name in VALUE_FIELDS:
        recorded = [getattr(event, name) is None for event in events]
        if any(recorded) and not all(recorded):
            return True
    return False
