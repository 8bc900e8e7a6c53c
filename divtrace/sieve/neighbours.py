"""Does another request hold a KV slot at the time when one request lays it? Asked of one rank's lines, as text.

A slot is surely free if every other request that laid it before has finished in between. Whatever is not sure is left
to the whole analysis: rows that were cut, retractions, requests whose end nobody recorded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Set
from functools import cached_property
from itertools import accumulate

import msgspec

from divtrace.events import Event
from divtrace.trace.records import BadRecordError, decode_line

_NAME = b'"kv_slots"'
_LIST = re.compile(rb"\s*:\s*\[([^\]]*)\]")
_FINISH = re.compile(rb'"finished"\s*:\s*"[^"]')
_decode_lists = msgspec.json.Decoder(list[list[int]]).decode


Blocks = Callable[[], Iterable[tuple[bytes, int]]]
"""Gives a rank's lines as often as it is called, in blocks: bytes, and how many of them are whole lines."""
Claim = tuple[int, str | None, int]
"""`seq` and request of a record that lays a slot, and the slot."""
Finish = tuple[str | None, int]
"""A request, and `seq` of the record in which it finishes."""


class Neighbours:
    """The slots of one request on one rank, and when it lays them."""

    def __init__(self, req: str, lays: Callable[[], Iterable[tuple[int, Iterable[int] | None]]]) -> None:
        """Take what gives `seq` and slots of the records of the request; it is called once, if at all."""
        self.req = req
        self._lays = lays

    @cached_property
    def slots(self) -> Set[int]:
        """All of them."""
        return frozenset(self._laid)

    @cached_property
    def _laid(self) -> dict[int, list[int]]:
        """When each of them is laid."""
        laid: dict[int, list[int]] = {}
        for seq, slots in self._lays():
            for slot in slots or ():
                laid.setdefault(slot, []).append(seq)
        for times in laid.values():
            times.sort()
        return laid

    def are_apart(self, claims: Iterable[Claim], finishes: Callable[[], Iterable[Finish]]) -> bool:
        """True if surely nobody else held a slot when the request laid it.

        Args:
            claims: what other requests lay of these slots.
            finishes: gives the ends of requests; called only if there are claims.
        """
        claimed = list(claims)
        if not claimed:
            return True
        finished: dict[str | None, list[int]] = {}
        for req, seq in finishes():
            finished.setdefault(req, []).append(seq)
        for ends in finished.values():
            ends.sort()
        return all(self._is_over(*claim, finished) for claim in claimed)

    def _is_over(self, seq: int, req: str | None, slot: int, finished: dict[str | None, list[int]]) -> bool:
        """True if the other request has finished before the slot is laid again, if it is."""
        times = self._laid[slot]
        at = bisect_right(times, seq)
        if at == len(times):
            return True
        ends = finished.get(req, [])
        end = bisect_right(ends, seq)
        return end < len(ends) and ends[end] < times[at]


def apart_in_lines(req: str, events: Iterable[Event], blocks: Blocks) -> bool:
    """`Neighbours.are_apart` over one rank's lines.

    Raises:
        BadRecordError: a line that counts is no record, or has no `seq`.
    """
    own = Neighbours(req, lambda: ((_seq(event), event.kv_slots) for event in events))
    if not own.slots:
        return True
    claims = (
        (_seq(event), event.req, slot)
        for text, end in blocks()
        for event in _laying(text, end, own.slots)
        if event.req != req
        for slot in event.kv_slots or ()
        if slot in own.slots
    )
    finishes = (
        (event.req, _seq(event)) for text, end in blocks() for event in _matching(text, end, _FINISH) if event.finished
    )
    return own.are_apart(claims, lambda: finishes)


def _seq(event: Event) -> int:
    if event.seq is None:
        raise BadRecordError("a record has no seq")
    return event.seq


def _laying(text: bytes, end: int, slots: Set[int]) -> Iterator[Event]:
    """Records of a block that lay one of these slots, and maybe others."""
    if text.find(b"\\", 0, end) >= 0:
        yield from _every(text, end)
        return
    pieces = text[:end].split(_NAME)
    # Nearly all lists stand right behind the name; what else may stand there is looked at with more care.
    lists = [piece[2 : piece.find(b"]")] if piece.startswith(b":[") else _list_of(piece) for piece in pieces[1:]]
    try:
        decoded = _decode_lists(b"[[" + b"],[".join(lists) + b"]]") if lists else []
    except msgspec.DecodeError:
        yield from _every(text, end)
        return
    hits = [at for at, given in enumerate(decoded) if not slots.isdisjoint(given)]
    if hits:
        ends = [*accumulate(map(len, pieces))]
        for at in hits:
            yield from _at(text, end, ends[at] + at * len(_NAME))


def _list_of(piece: bytes) -> bytes:
    found = _LIST.match(piece)
    return b"" if found is None else found[1]


def _matching(text: bytes, end: int, pattern: re.Pattern[bytes]) -> Iterator[Event]:
    """Records of a block whose line matches, and maybe others."""
    if text.find(b"\\", 0, end) >= 0:
        yield from _every(text, end)
        return
    for found in pattern.finditer(text, 0, end):
        yield from _at(text, end, found.start())


def _every(text: bytes, end: int) -> Iterator[Event]:
    """All records, where an escape may stand for any letter of a name, or a list is none."""
    for line in text[:end].split(b"\n"):
        yield from _event(line)


def _at(text: bytes, end: int, place: int) -> Iterator[Event]:
    stop = text.find(b"\n", place, end)
    yield from _event(text[text.rfind(b"\n", 0, place) + 1 : end if stop < 0 else stop])


def _event(line: bytes) -> Iterator[Event]:
    record, _ = decode_line(line)
    if isinstance(record, Event):
        yield record
