"""From the parts of a rank that its files hold to one trace in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby, pairwise

import msgspec

from divtrace.events import Meta
from divtrace.trace.model import Damage, PlacedMeta, RankId, RankTrace, Record, canonical
from divtrace.trace.provenance import Provenance

_SHARED_KEYS = ("format", "run", "engine", "algorithm", "device", "backend", "parallel", "groups", "sync")
"""What all metas of one rank have to agree in; world and rank do by construction."""


class Part(msgspec.Struct):
    """What one file holds of one rank."""

    file: str
    records: list[Record] = msgspec.field(default_factory=list)
    """In line order; empty if the file has only metas for the rank."""
    metas: list[PlacedMeta] = msgspec.field(default_factory=list)
    bad_lines: list[int] = msgspec.field(default_factory=list)
    """Unreadable lines of the file, sorted; an event of any of its ranks may have stood there."""


class Assembled(msgspec.Struct):
    """A rank's trace and what became evident while putting it in order."""

    trace: RankTrace
    duplicates: int
    bad: list[Damage]
    notes: list[str]
    """Without the rank's name."""


def assemble(rank: RankId, parts: list[Part]) -> Assembled:
    """Put the parts of one rank in order, whatever the order of the parts.

    The trace's order is that of `seq`. If a record lacks it, the lines of each file keep their order and the files
    stand by the time of their first record.

    Args:
        rank: The rank's identity.
        parts: One per file, together with at least one record.
    """
    has_seq = all(record.event.seq is not None for part in parts for record in part.records)
    parts = _files_in_order([part for part in parts if part.records]) + [part for part in parts if not part.records]
    every = [record for part in parts for record in part.records]
    if has_seq:
        every.sort(key=_seq)
    kept = _Kept(every, by_seq=has_seq)
    gaps, lost = _gaps(kept.records)
    gaps |= kept.contested
    if not has_seq:
        gaps |= {record.pos for record in _behind_bad_lines(parts)}
    metas = _metas_in_order(parts)
    trace = RankTrace(
        id=rank,
        metas=metas,
        records=kept.records,
        gaps=sorted(gaps),
        lost=lost,
        starts_at_zero=kept.records[0].event.seq == 0,
        has_seq=has_seq,
        # The counter only rises, so the last value is the largest, and that does not depend on the order of lines.
        dropped=max((meta.dropped for meta in metas if meta.dropped is not None), default=0),
        files=tuple(sorted({part.file for part in parts})),
    )
    return Assembled(trace, kept.duplicates, kept.bad, disagreements(metas))


def restored(rank: RankId, part: Part, origin: Provenance) -> Assembled:
    """The trace of a rank that is in one converted file, as it was before the conversion."""
    for pos, record in enumerate(part.records):
        record.pos = pos
    trace = RankTrace(
        id=rank,
        metas=[placed.meta for placed in part.metas],
        records=part.records,
        gaps=origin.gaps,
        lost=origin.lost,
        starts_at_zero=origin.starts_at_zero,
        has_seq=origin.has_seq,
        dropped=origin.dropped,
        files=tuple(origin.files),
    )
    return Assembled(trace, 0, [], [])


def _seq(record: Record) -> int:
    seq = record.event.seq
    assert seq is not None
    return seq


def _files_in_order(parts: list[Part]) -> list[Part]:
    """By time and text of the first record; only where these are equal by all of their records."""

    def first(part: Part) -> tuple[bool, int, bytes]:
        event = part.records[0].event
        return (event.ts is None, event.ts or 0, canonical(event))

    ordered: list[Part] = []
    for _, group in groupby(sorted(parts, key=first), key=first):
        alike = list(group)
        if len(alike) > 1:
            alike.sort(key=lambda part: ([canonical(record.event) for record in part.records], part.file))
        ordered += alike
    return ordered


class _Kept:
    """The records that stay when each (rank, seq) is held once, with their places."""

    def __init__(self, records: list[Record], *, by_seq: bool) -> None:
        self.duplicates = 0
        self.bad: list[Damage] = []
        self.contested: set[int] = set()
        """Places around which another event was recorded under the same seq, and is lost."""
        stay: dict[int, Record] = {}
        """By id of each record that goes, the one that stands for it."""
        rivals: list[Record] = []
        for group in _same_seq(records, by_seq=by_seq):
            self._settle(group, stay, rivals)
        self.records = [record for record in records if id(record) not in stay] if stay else records
        for pos, record in enumerate(self.records):
            record.pos = pos
        for record in records if stay else ():
            if (standing := stay.get(id(record))) is not None:
                record.pos = standing.pos
        for record in rivals:
            self.contested.update(range(record.pos, min(record.pos + 2, len(self.records))))

    def _settle(self, group: list[Record], stay: dict[int, Record], rivals: list[Record]) -> None:
        def rank(record: Record) -> tuple[bool, int, bytes, str, int]:
            event = record.event
            return (event.ts is None, event.ts or 0, canonical(event), record.file, record.line)

        first, *others = sorted(group, key=rank)
        text = canonical(first.event)
        for other in others:
            stay[id(other)] = first
            if canonical(other.event) == text:
                self.duplicates += 1
            else:
                what = f"another event has the same seq {first.event.seq} and stays, in {first.file}:{first.line}"
                self.bad.append(Damage(other.file, other.line, what))
                rivals.append(first)


def _same_seq(records: list[Record], *, by_seq: bool) -> Iterator[list[Record]]:
    """Groups of two or more records that share their seq."""
    if by_seq:
        if any(before.event.seq == after.event.seq for before, after in pairwise(records)):
            yield from (group for _, found in groupby(records, key=_seq) if len(group := list(found)) > 1)
        return
    groups: dict[int, list[Record]] = {}
    for record in records:
        if record.event.seq is not None:
            groups.setdefault(record.event.seq, []).append(record)
    yield from (group for group in groups.values() if len(group) > 1)


def _gaps(records: list[Record]) -> tuple[set[int], int]:
    gaps = set()
    lost = 0
    for before, after in pairwise(records):
        if before.event.seq is None or after.event.seq is None or after.event.seq == before.event.seq + 1:
            continue
        gaps.add(after.pos)
        lost += max(0, after.event.seq - before.event.seq - 1)
    return gaps, lost


def _behind_bad_lines(parts: list[Part]) -> list[Record]:
    """The records directly behind an unreadable line, in the order of the parts."""
    behind = []
    pending = False
    for part in parts:
        bad = iter(part.bad_lines)
        line = next(bad, None)
        for record in part.records:
            while line is not None and line < record.line:
                pending = True
                line = next(bad, None)
            if pending:
                behind.append(record)
                pending = False
        pending = pending or line is not None
    return behind


def _metas_in_order(parts: list[Part]) -> list[Meta]:
    """By the records beside them, so that neither file names nor the order of files count."""
    placed: list[tuple[float, bytes, Meta]] = []
    for part in parts:
        lines = [record.line for record in part.records]
        for meta in part.metas:
            at = bisect_right(lines, meta.line or 0)
            if at < len(lines):
                anchor: float = part.records[at].pos
            else:
                anchor = part.records[-1].pos + 0.5 if lines else float("inf")
            placed.append((anchor, canonical(meta.meta), meta.meta))
    placed.sort(key=lambda entry: entry[:2])
    return [meta for _, _, meta in placed]


def disagreements(metas: list[Meta]) -> list[str]:
    """A note for every key that the metas of one rank do not agree in."""
    notes = []
    for key in _SHARED_KEYS:
        values = [value for meta in metas if (value := getattr(meta, key)) is not None]
        if any(value != values[0] for value in values[1:]):
            notes.append(f"a later meta record has another `{key}`; the first one holds")
    return notes
