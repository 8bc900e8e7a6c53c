"""Loads the records that the walk has to look at: suspects, irregular steps, single records. One pass over a rank."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, cast

import msgspec

from divtrace.events import Event
from divtrace.sieve.cursor import LineSpan, NotSievableError, Reading, opened
from divtrace.sieve.facts import RankFacts
from divtrace.trace.compression import open_stream, plain_stream
from divtrace.trace.discover import Source
from divtrace.trace.lines import Lines, split_lines
from divtrace.trace.model import Record
from divtrace.trace.records import BadRecordError, decode_line

if TYPE_CHECKING:
    from divtrace.sieve.columnar.cursor import ColumnReading

_EVER = float("inf")
_MOST_NEEDLES = 8
"""With more requests than these, decoding every line is cheaper than searching for each."""


class Wanted(msgspec.Struct, frozen=True):
    """What to load of one rank."""

    requests: frozenset[str]
    steps: frozenset[int]
    positions: frozenset[int]
    operations: frozenset[tuple[str | None, int]]
    """Communicator name and number."""
    parted: frozenset[str] = frozenset()
    """Requests of which only the records of some steps are wanted, namely `parted_steps`."""
    parted_steps: range = range(0)
    collectives: bool = False
    """Whether all collectives are wanted."""

    @property
    def steps_to_read(self) -> frozenset[int]:
        """Steps of which something is wanted."""
        return self.steps.union(self.parted_steps) if self.parted else self.steps

    @property
    def needles(self) -> list[bytes] | None:
        """Texts one of which stands in every line that may be wanted for its request; None if every line may be."""
        if len(self.requests) > _MOST_NEEDLES:
            return None
        found = [msgspec.json.encode(req)[1:-1] for req in sorted(self.requests)]
        if self.operations or self.collectives:
            found.append(b'"collective"')
        return found


def needs_reading(facts: RankFacts, wanted: Wanted) -> bool:
    """False if what is wanted of a rank is still at hand."""
    at_hand = {record.pos for record in facts.kept}
    by_content = wanted.requests or wanted.steps or wanted.operations or wanted.parted or wanted.collectives
    return bool(by_content or wanted.positions - at_hand)


def load_wanted(facts: RankFacts, wanted: Wanted) -> list[Record]:
    """The wanted records of one rank, in order, with their positions in the whole trace.

    Raises:
        NotSievableError: a file cannot be read any more as it was before.
    """
    if not needs_reading(facts, wanted):
        return facts.kept
    if facts.reading.in_columns:
        from divtrace.sieve.columnar.select import load_rows

        return load_rows(cast("ColumnReading", facts.reading), facts, wanted)
    kept = {record.pos: record for record in facts.kept if record.pos in wanted.positions}
    records: list[Record] = []
    ranges = _position_ranges(facts, wanted, wanted.positions - kept.keys())
    needles = wanted.needles
    spans = facts.reading.spans
    for first_span, last_span in _by_file(spans):
        source = spans[first_span].source
        inside = spans[first_span:last_span]
        # Without a needle nothing is wanted in front of the first range or behind the last one.
        low, high = (0, _EVER) if needles != [] else _bounds(ranges, inside[0].pos, _next_pos(spans, last_span))
        if low > high:
            continue
        number, offset = _start(facts.reading, source, inside, low)
        with opened(source) as file:
            file.seek(offset)
            size = None if source.size is None else source.size - offset
            stream = open_stream(file, size) if not offset else plain_stream(file, size)
            for block in split_lines(stream, number=number, offset=offset):
                if _position(inside, block.first) > high:
                    break
                for pos, number, line in _candidates(block, inside, ranges, needles):
                    event = _decode(line)
                    if event is not None and _is_wanted(event, pos, wanted):
                        records.append(Record(event, pos, source.name, number, False))
                if block.cut is not None and not _is_known(block.cut, source, facts.reading):
                    raise NotSievableError(f"{source.name} could be read further before: {block.cut}")
    for record in records:
        kept.pop(record.pos, None)
    return sorted([*records, *kept.values()], key=lambda record: record.pos)


def _next_pos(spans: list[LineSpan], index: int) -> float:
    return spans[index].pos if index < len(spans) else _EVER


def _bounds(ranges: list[tuple[int, int]], first: int, end: float) -> tuple[float, float]:
    """The lowest and the highest position wanted of the records from `first` up to `end`; (1, 0) if none is."""
    here = [one for one in ranges if one[1] >= first and one[0] < end]
    return (here[0][0], here[-1][1]) if here else (1, 0)


def _start(reading: Reading, source: Source, spans: list[LineSpan], low: float) -> tuple[int, int]:
    """Line and offset from which a file has to be read to see all records from a position on."""
    best = (1, 0)
    for mark in reading.marks:
        if mark.source is source and _position(spans, mark.line) <= low:
            best = (mark.line, mark.offset)
    return best


def _is_known(cut: str, source: Source, reading: Reading) -> bool:
    return any(one.file == source.name and one.what == cut for one in (*reading.damage, *reading.bad))


def _by_file(spans: list[LineSpan]) -> Iterator[tuple[int, int]]:
    start = 0
    for index in range(1, len(spans) + 1):
        if index == len(spans) or spans[index].source is not spans[start].source:
            yield start, index
            start = index


def _position_ranges(facts: RankFacts, wanted: Wanted, positions: Set[int]) -> list[tuple[int, int]]:
    """Positions between which something is wanted for its step, or one of these, merged and sorted."""
    found = [(pos, pos) for pos in positions]
    first, last = facts.first_of_step, facts.last_of_step
    # A step's records may stand among those of the steps beside it: drafts are written early, commits late.
    found += [(first[step], last.get(step, first[step])) for step in wanted.steps_to_read if step in first]
    merged: list[tuple[int, int]] = []
    for low, high in sorted(found):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _candidates(
    block: Lines, spans: list[LineSpan], ranges: list[tuple[int, int]], needles: list[bytes] | None
) -> Iterator[tuple[int, int, bytes]]:
    """(position, line number, line) of every line of a block that may be wanted."""
    everything = needles is None
    lines, text = block.lines, block.text
    escaped = b"\\" in text
    here = [] if everything or needles is None else [needle for needle in needles if needle in text]
    start = _position(spans, block.first)
    end = _position(spans, block.first + len(lines) - 1)
    at = bisect_left(ranges, (start, -1))
    touched = (at < len(ranges) and ranges[at][0] <= end) or (at > 0 and ranges[at - 1][1] >= start)
    if not (everything or here or touched or (escaped and needles)):
        return
    for index, line in enumerate(lines):
        number = block.first + index
        if everything or any(needle in line for needle in here) or (escaped and needles and b"\\" in line):
            yield _position(spans, number), number, line
        elif touched:
            pos = _position(spans, number)
            at = bisect_left(ranges, (pos + 1, -1)) - 1
            if at >= 0 and ranges[at][1] >= pos:
                yield pos, number, line


def _position(spans: list[LineSpan], number: int) -> int:
    """The position of the record on a line; that of the next record if there is none on it."""
    at = bisect_left(spans, number + 1, key=lambda span: span.line) - 1
    span = spans[max(at, 0)]
    return max(span.pos + number - span.line, span.pos)


def _decode(line: bytes) -> Event | None:
    try:
        record, _ = decode_line(line)
    except BadRecordError:
        return None
    return record if isinstance(record, Event) else None


def _is_wanted(event: Event, pos: int, wanted: Wanted) -> bool:
    if pos in wanted.positions or (event.req is not None and event.req in wanted.requests):
        return True
    if event.step is not None and event.step in wanted.steps and event.stage != "host":
        return True
    if event.step is not None and event.step in wanted.parted_steps and event.req in wanted.parted:
        return True
    if event.stage != "collective":
        return False
    return wanted.collectives or (event.comm, event.comm_seq) in wanted.operations
