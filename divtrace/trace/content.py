"""Whose records a file holds: rank, world and run of every one, from itself, its meta or the file's name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from divtrace.events import Event, Meta
from divtrace.trace.discover import Source
from divtrace.trace.model import Block, Damage, PlacedMeta, RankId, Record
from divtrace.trace.order import Part
from divtrace.trace.provenance import Provenance


class FileContent(msgspec.Struct):
    """What one file adds to the input."""

    name: str
    parts: dict[RankId, Part] = msgspec.field(default_factory=dict)
    loose_metas: list[tuple[PlacedMeta, int | None, int | None]] = msgspec.field(default_factory=list)
    """Metas that fit no record of the file, each with the rank and the world that it speaks of."""
    shared_metas: list[Meta] = msgspec.field(default_factory=list)
    """Metas that hold for every rank of the file."""
    formats: set[str] = msgspec.field(default_factory=set)
    runs: set[str] = msgspec.field(default_factory=set)
    bad: list[Damage] = msgspec.field(default_factory=list)
    damage: list[Damage] = msgspec.field(default_factory=list)
    unknown: dict[str, int] = msgspec.field(default_factory=dict)
    conversions: list[Provenance] = msgspec.field(default_factory=list)
    """What the file says of its conversion, if it is a converted one."""
    other_run: bool = False
    """The file belongs to another run than the one asked for; nothing of it counts."""


class _Segment(msgspec.Struct):
    """Records for which the same metas hold: in JSON Lines those behind a meta line, in Parquet the whole file."""

    rank: int | None = None
    world: int | None = None
    run: str | None = None
    worlds: dict[int, int] = msgspec.field(default_factory=dict)
    """In Parquet, the world of each rank that the metas name one for."""
    events: list[Event] = msgspec.field(default_factory=list)
    lines: list[int] = msgspec.field(default_factory=list)
    metas: list[PlacedMeta] = msgspec.field(default_factory=list)

    def behind(self, placed: PlacedMeta) -> _Segment:
        """The segment that starts at a further meta line; a meta of another rank inherits nothing."""
        meta = placed.meta
        if meta.rank is not None and meta.rank != self.rank and self.rank is not None:
            return _Segment(meta.rank, meta.world, meta.run)
        return _Segment(
            self.rank if meta.rank is None else meta.rank,
            self.world if meta.world is None else meta.world,
            self.run if meta.run is None else meta.run,
        )

    def take(self, events: Sequence[Event], lines: Sequence[int]) -> None:
        self.events += events
        self.lines += lines


def collect(source: Source, blocks: Iterable[Block], run: str | None) -> FileContent:
    """Read the blocks of one file and give every record to its rank.

    Args:
        source: The file.
        blocks: What its reader yields.
        run: Leave out what belongs to another run than this; None takes all.
    """
    content = FileContent(source.name)
    segments = [_Segment()]
    is_row = False
    is_empty = True
    for block in blocks:
        if block.provenance is not None:
            return collect_converted(source, block, blocks, run)
        is_empty = False
        content.bad += block.bad
        content.damage += block.damage
        for name, count in block.unknown.items():
            content.unknown[name] = content.unknown.get(name, 0) + count
        if any(placed.line is None for placed in block.metas):
            segments = [_whole_file(block.metas)]
        else:
            _split(block, segments)
        is_row = is_row or block.is_row
    if is_empty:
        content.damage.append(Damage(source.name, None, "the file is empty"))
    _fill_first(segments)
    metas = [placed.meta for segment in segments for placed in segment.metas]
    content.runs = {meta.run for meta in metas if meta.run is not None}
    content.formats = {meta.format for meta in metas if meta.format is not None}
    if run is not None and content.runs and run not in content.runs:
        content.other_run = True
        return content
    if run is not None:
        segments = [segment for segment in segments if segment.run in (None, run)]
    _own(content, segments, source.rank, is_row=is_row)
    return content


def collect_converted(source: Source, first: Block, blocks: Iterable[Block], run: str | None) -> FileContent:
    """Read a converted file: its records as they were before the conversion.

    Args:
        source: The file.
        first: Its first block, with the metas.
        blocks: The others.
        run: As for `collect`.
    """
    provenance = first.provenance
    assert provenance is not None
    content = FileContent(source.name, conversions=[provenance])
    content.runs = set(provenance.facts.runs)
    content.shared_metas = list(provenance.facts.shared_metas)
    content.bad, content.damage = list(first.bad), list(first.damage)
    part = Part(source.name, metas=first.metas)
    for block in blocks:
        content.bad += block.bad
        content.damage += block.damage
        for event, line in zip(block.events, block.lines, strict=True):
            file, place, is_row = source.name, line, True
            if block.origins is not None:
                file, place, is_row = block.origins.of(line - block.first_row, line)
            part.records.append(Record(event, -1, file, place, is_row))
    content.other_run = run is not None and bool(content.runs) and run not in content.runs
    if part.records and not content.other_run:
        if provenance.has_seq:
            part.records.sort(key=_seq_or_none)
        content.parts[provenance.world, provenance.rank] = part
    return content


def _seq_or_none(record: Record) -> int:
    return record.event.seq or 0


def _split(block: Block, segments: list[_Segment]) -> None:
    start = 0
    for placed in block.metas:
        assert placed.line is not None
        end = bisect_left(block.lines, placed.line)
        segments[-1].take(block.events[start:end], block.lines[start:end])
        start = end
        segment = segments[-1].behind(placed)
        if (segment.rank, segment.world, segment.run) != (segments[-1].rank, segments[-1].world, segments[-1].run):
            segments.append(segment)
        segments[-1].metas.append(placed)
    segments[-1].take(block.events[start:] if start else block.events, block.lines[start:])


def _fill_first(segments: list[_Segment]) -> None:
    """Let the first meta of a JSON Lines file hold for the lines above it as well."""
    first, *others = segments
    if others and first.rank is None and first.world is None and first.run is None and not first.metas:
        first.rank, first.world, first.run = others[0].rank, others[0].world, others[0].run


def _whole_file(metas: list[PlacedMeta]) -> _Segment:
    ranks = {placed.meta.rank for placed in metas} - {None}
    worlds = {placed.meta.world for placed in metas if placed.meta.rank is None} - {None}
    runs = {placed.meta.run for placed in metas} - {None}
    by_rank: dict[int, set[int]] = {}
    for placed in metas:
        if placed.meta.rank is not None and placed.meta.world is not None:
            by_rank.setdefault(placed.meta.rank, set()).add(placed.meta.world)
    return _Segment(
        rank=next(iter(ranks)) if len(ranks) == 1 else None,
        world=next(iter(worlds)) if len(worlds) == 1 else None,
        run=next(iter(runs)) if len(runs) == 1 else None,
        worlds={rank: next(iter(found)) for rank, found in by_rank.items() if len(found) == 1},
        metas=list(metas),
    )


def _own(content: FileContent, segments: list[_Segment], named: int | None, *, is_row: bool) -> None:
    name = content.name
    orphans: list[int] = []
    for segment in segments:
        default = named if segment.rank is None else segment.rank
        for event, line in zip(segment.events, segment.lines, strict=True):
            rank = default if event.rank is None else event.rank
            if rank is None:
                orphans.append(line)
                continue
            world = event.world
            if world is None:
                world = segment.worlds.get(rank, segment.world or 0)
            part = content.parts.get((world, rank))
            if part is None:
                part = content.parts[world, rank] = Part(name)
            part.records.append(Record(event, -1, name, line, is_row))
    if orphans:
        what = f"{len(orphans)} records have no rank: neither they, nor a meta record, nor the file name gives one"
        content.damage.append(Damage(name, orphans[0], what))
    bad_lines = sorted({damage.line for damage in (*content.bad, *content.damage) if damage.line is not None})
    for part in content.parts.values():
        part.bad_lines = bad_lines
    for segment in segments:
        for placed in segment.metas:
            _attach(content, placed, segment)


def _attach(content: FileContent, placed: PlacedMeta, segment: _Segment) -> None:
    """Give a meta to the ranks of its file for which it holds."""
    meta = placed.meta
    if placed.line is None:
        rank, world = meta.rank, meta.world
    else:
        rank, world = segment.rank, segment.world
    if rank is None:
        content.shared_metas.append(meta)
    fitting = [
        part
        for (part_world, part_rank), part in content.parts.items()
        if rank in (None, part_rank) and world in (None, part_world)
    ]
    for part in fitting:
        part.metas.append(placed)
    if not fitting:
        content.loose_metas.append((placed, rank, world))
