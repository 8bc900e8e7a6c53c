"""Decoding of plain event lines at full speed, also where every line has fields that the format does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from divtrace.events import Event

_MOST_NAMES = 64
"""Unknown fields that are learned; a trace with more of them is decoded line by line."""

_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
"""What JSON escapes in a key; msgspec takes no field of such a name."""


class EventDecoder:
    """Decodes lines into events, and learns fields that the format does not know.

    A trace of a later version has the same unknown fields in all of its lines. Once they are learned, they are
    decoded along with the rest, counted and dropped, instead of making an exception of every line.
    """

    def __init__(self) -> None:
        """Know the fields of the format and no other."""
        self._names: list[str] = []
        self.decode: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode
        """Decodes one line; raises msgspec.DecodeError if it is not a plain event."""

    def learn(self, names: Iterable[str]) -> None:
        """Take `names` for fields from now on."""
        new = [name for name in names if name not in self._names and not _ESCAPED.search(name)]
        if not new or len(self._names) + len(new) > _MOST_NAMES:
            return
        self._names += new
        attributes = {f"unknown_{at}": name for at, name in enumerate(self._names)}
        wide: type[Event] = msgspec.defstruct(  # type: ignore[assignment]
            "WideEvent",
            [(attribute, Any, None) for attribute in attributes],
            bases=(Event,),
            rename=attributes,
            kw_only=True,
            gc=False,
        )
        self.decode = msgspec.json.Decoder(wide).decode

    def plain(self, events: list[Event], counts: dict[str, int]) -> list[Event]:
        """The events without the learned fields; `counts` grows by the values that these had."""
        if not self._names:
            return events
        wide = [event for event in events if type(event) is not Event]
        for at, name in enumerate(self._names):
            attribute = f"unknown_{at}"
            if count := sum(getattr(event, attribute, None) is not None for event in wide):
                counts[name] = counts.get(name, 0) + count
        return [
            event if type(event) is Event else msgspec.convert(event, Event, from_attributes=True) for event in events
        ]
