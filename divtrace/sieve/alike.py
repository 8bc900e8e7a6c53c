"""Questions to lines and records of several ranks: are they alike but for what may differ?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, zip_longest
from operator import itemgetter, ne

import msgspec

from divtrace.events import VALUE_FIELDS, Event
from divtrace.sieve.usual import decode_usual

_decode_all_slots = msgspec.json.Decoder(list[list[int]]).decode
_SLOTS = b'"kv_slots":['
_TIME = b',"ts":'


Laid = tuple[Event, Sequence[int], Sequence[list[int] | None] | None]
"""A record, the ranks that it stands for, and their slots."""


class Alike(msgspec.Struct):
    """Lines that all ranks share, but for their slots."""

    count: int
    slots: list[dict[int, list[int]]] = msgspec.field(default_factory=list)
    """Per rank but the first: its slots in those lines where they are not the first rank's."""
    others: list[dict[int, Event]] = msgspec.field(default_factory=list)
    """Per rank but the first: its records in those lines that differ in more, and may."""

    def row(self, event: Event, index: int) -> tuple[Event, ...]:
        """A record as every rank made it, but for the slots; `event` is the first rank's."""
        return (event, *[other.get(index, event) for other in self.others])

    def rows(self, events: Sequence[Event]) -> Iterator[tuple[Event, ...]]:
        """All records as every rank made them."""
        others = [[other.get(index, event) for index, event in enumerate(events)] for other in self.others]
        return zip(events, *others, strict=True)

    def laid(self, event: Event, index: int, ranks: Sequence[int]) -> list[Laid]:
        """A record, with the ranks on which it does the same to the slots of its request, and their slots.

        Ranks that recorded it otherwise stand behind, each with its own record.
        """
        own = event.kv_slots
        slots = None if own is None else [own, *[other.get(index, own) for other in self.slots]]
        apart = [
            (place, other)
            for place, others in enumerate(self.others, 1)
            if (other := others.get(index)) is not None and not lays_alike(other, event)
        ]
        if not apart:
            return [(event, ranks, slots)]
        gone = {place for place, _ in apart}
        kept = [place for place in range(len(ranks)) if place not in gone]
        return [
            (event, [ranks[place] for place in kept], None if slots is None else [slots[place] for place in kept]),
            *[
                (other, (ranks[place],), None if other.kv_slots is None else (other.kv_slots,))
                for place, other in apart
            ],
        ]

    @property
    def is_even(self) -> bool:
        """True if no record differs in more than its slots."""
        return not any(self.others)


def alike_at_once(
    columns: Sequence[list[bytes]],
    matches: Sequence[re.Match[bytes]],
    events: Sequence[Event],
    excused: Callable[[Event, Event, int], bool],
) -> Alike | None:
    """How many lines all ranks share, for lines that all begin as the first one does.

    Args:
        columns: lines of every rank, as many as there are events.
        matches: of every rank's first line: `seq`, and all that ranks have to share.
        events: the records of the first rank's lines.
        excused: whether another rank's record, that differs from the first one's, may; asked with the first one's
            record, the other one, and which of the ranks that is.

    Returns:
        None if lines begin differently, or numbers do not rise by one.
    """
    first = matches[0]
    own = first.string[: first.start(1)]
    heads = b"".join(map(itemgetter(slice(first.end(1) + len(_TIME))), columns[0]))
    mine = list(map(itemgetter(slice(first.start(2) - 1, None)), columns[0]))
    if not heads.count(own) == heads.count(_TIME) == len(mine) or min(mine)[:1] != b"," or max(mine)[:1] != b",":
        return None
    alike = Alike(len(mine))
    for number, (lines, match) in enumerate(zip(columns[1:], matches[1:], strict=True), 1):
        start, end, at = match.start(1), match.end(1) + len(_TIME), match.start(2) - 1
        their_own = match.string[:start]
        if match[1] == first[1]:
            expected = heads.replace(own, their_own)
        else:
            low = int(match[1])
            expected = b"".join([b'%b%d,"ts":' % (their_own, seq) for seq in range(low, low + len(lines))])
        if b"".join(map(itemgetter(slice(end)), lines)) != expected:
            return None
        times = list(map(itemgetter(slice(end, at)), lines))
        if not b"".join(times).isdigit() or min(times) < b"1":
            return None
        theirs = list(map(itemgetter(slice(at, None)), lines))
        differing = list(compress(range(alike.count), map(ne, mine, theirs)))
        slots: dict[int, list[int]] = {}
        others: dict[int, Event] = {}
        apart: list[int] = []
        for index, one in zip(differing, slots_of([(mine[i], theirs[i]) for i in differing]), strict=True):
            if one is not None and events[index].kv_slots is not None:
                slots[index] = one
            else:
                apart.append(index)
        # Most often one difference ends the block: only if it may be there are others decoded at once.
        for some in (apart[:1], apart[1:]):
            for index, other in zip_longest(some, decode_usual([lines[index] for index in some])):
                if other is None or not excused(events[index], other, number):
                    alike.count = index
                    break
                others[index] = other
                if other.kv_slots is not None:
                    slots[index] = other.kv_slots
            else:
                continue
            break
        alike.slots.append(slots)
        alike.others.append(others)
    return alike


def slots_of(pairs: Sequence[tuple[bytes, bytes]]) -> list[list[int] | None]:
    """The slots of the other rank, for each pair of lines that differs in nothing else."""
    texts: list[bytes] = []
    good: list[bool] = []
    for tail, other in pairs:
        head, _, rest = tail.partition(_SLOTS)
        other_head, key, other_rest = other.partition(_SLOTS)
        _, _, behind = rest.partition(b"]")
        text, _, other_behind = other_rest.partition(b"]")
        good.append(bool(key) and head == other_head and behind == other_behind)
        if good[-1]:
            texts.append(text)
    try:
        decoded = iter(_decode_all_slots(b"[[" + b"],[".join(texts) + b"]]") if texts else [])
    except msgspec.DecodeError:
        return [None] * len(pairs)
    return [next(decoded) if fits else None for fits in good]


def lays_alike(one: Event, other: Event) -> bool:
    """True if two ranks' records do the same to what a request holds of their slots."""
    return (
        one.kv_positions == other.kv_positions
        and one.new_seq_len == other.new_seq_len
        and one.finished == other.finished
        and one.decision == other.decision
    )


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
