"""Lines as nearly all of them are: decoded without the fields that hardly any record has.

A line with such a field, or with a number outside of 64 bits, does not decode here, so that nobody has to ask each
record for them. What is decoded may be used as an `Event`: the fields that are left out read as None.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, cast, get_args, get_type_hints

import msgspec

from divtrace.events import INTEGER_MIN, Event

_RARE = frozenset({"n", "draft_parents", "cap_trim_len", "extra", "error", "error_type", "note"})
"""Fields that make a record unusual: they change how it is keyed, checked or kept, or hardly ever occur."""
_LARGEST = 2**63 - 1


def _narrow(hint: Any) -> Any:
    """The same type with integers of 64 bits."""
    number = Annotated[int, msgspec.Meta(ge=INTEGER_MIN, le=_LARGEST)]
    parts: dict[Any, Any] = {int: number, list[int]: list[number]}
    found: Any = None
    for one in get_args(hint) or (hint,):
        found = parts.get(one, one) if found is None else found | parts.get(one, one)
    return found


def _usual_type() -> type[msgspec.Struct]:
    hints = get_type_hints(Event)
    fields: list[Any] = []
    for field in msgspec.structs.fields(Event):
        if field.name in _RARE:
            continue
        hint = hints[field.name]
        kind = _narrow(hint) if int in get_args(hint) or list[int] in get_args(hint) else hint
        fields.append((field.name, kind) if field.required else (field.name, kind, field.default))
    return msgspec.defstruct(
        "UsualEvent",
        fields,
        namespace=dict.fromkeys(sorted(_RARE)),
        module=__name__,
        kw_only=True,
        gc=False,
        forbid_unknown_fields=True,
    )


UsualEvent = _usual_type()
_decode = msgspec.json.Decoder(UsualEvent).decode


def decode_usual(lines: list[bytes]) -> list[Event]:
    """The records of the first lines, up to one that is not usual."""
    events: list[Any] = []
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        events.extend(map(_decode, lines))  # what was decoded before an error stays
    return cast("list[Event]", events)


def whole_event(event: Event) -> Event:
    """The same record with all fields."""
    if type(event) is Event:
        return event
    return Event(**{name: getattr(event, name) for name in event.__struct_fields__})
