"""Lines as nearly all of them are: decoded without the fields that hardly any record has.

A line with such a field, or with a number outside of 64 bits, does not decode here, so that nobody has to ask each
record for them. What is decoded may be used as an `Event`: the fields that are left out read as None.

Of the other fields, too, a record has only those that the trace has shown so far: making and clearing fields that no
line has would be a tenth of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, cast, get_args, get_type_hints

import msgspec

from divtrace.events import INTEGER_MIN, Event

_RARE = frozenset({"n", "draft_parents", "cap_trim_len", "extra", "error", "error_type", "note"})
"""Fields that make a record unusual: they change how it is keyed, checked or kept, or hardly ever occur."""
_LARGEST = 2**63 - 1
_MOST_TYPES = 32
"""Types that are kept: the replicas of a run show the same fields sooner or later."""

_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _narrow(hint: Any) -> Any:
    """The same type with integers of 64 bits."""
    number = Annotated[int, msgspec.Meta(ge=INTEGER_MIN, le=_LARGEST)]
    parts: dict[Any, Any] = {int: number, list[int]: list[number]}
    found: Any = None
    for one in get_args(hint) or (hint,):
        found = parts.get(one, one) if found is None else found | parts.get(one, one)
    return found


@lru_cache(1)
def _definitions() -> dict[str, Any]:
    """By name of every usual field, its type, and its default unless it is required."""
    hints = get_type_hints(Event)
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(Event):
        if field.name not in _RARE:
            hint = hints[field.name]
            kind = _narrow(hint) if int in get_args(hint) or list[int] in get_args(hint) else hint
            found[field.name] = (field.name, kind) if field.required else (field.name, kind, field.default)
    return found


@lru_cache(_MOST_TYPES)
def _decoder(names: tuple[str, ...]) -> Callable[[bytes], Event]:
    """Decodes a line that has no other fields than these."""
    kind = msgspec.defstruct(
        "UsualEvent",
        [_definitions()[name] for name in names],
        namespace=dict.fromkeys(sorted({*Event.__struct_fields__}.difference(names))),
        module=__name__,
        kw_only=True,
        gc=False,
        forbid_unknown_fields=True,
    )
    return cast("Callable[[bytes], Event]", msgspec.json.Decoder(kind).decode)


class UsualLines:
    """Decodes the usual lines of a trace."""

    def __init__(self) -> None:
        """Start without having seen a line."""
        self.fields = {"stage"}
        """Those that lines have had so far."""
        self._decode: Callable[[bytes], Event] | None = None

    def decode(self, lines: Sequence[bytes]) -> list[Event]:
        """The records of the first lines, up to one that is not usual."""
        events: list[Event] = []
        while len(events) < len(lines):
            rest = lines[len(events) :] if events else lines
            if self._decode is not None:
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    events.extend(map(self._decode, rest))  # what was decoded before an error stays
                    break
                rest = lines[len(events) :]
            if not self._learn(rest):
                break
        return events

    def _learn(self, lines: Sequence[bytes]) -> bool:
        """Take in the fields of lines of which the first one did not decode; False if it has none that are new."""
        known = len(self.fields)
        self._note(lines[0])
        if len(self.fields) == known and self._decode is not None:
            return False
        for line in lines[1:]:
            self._note(line)
        self._decode = _decoder(tuple(name for name in _definitions() if name in self.fields))
        return True

    def _note(self, line: bytes) -> None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            names = _keys(line)
            if names.keys() <= _definitions().keys():
                self.fields.update(names)


_of_any = UsualLines()


def decode_usual(lines: Sequence[bytes]) -> list[Event]:
    """The records of the first lines, up to one that is not usual, for those that keep no `UsualLines` of their own."""
    return _of_any.decode(lines)


def whole_event(event: Event) -> Event:
    """The same record with all fields."""
    if type(event) is Event:
        return event
    return Event(**{name: getattr(event, name) for name in event.__struct_fields__})
