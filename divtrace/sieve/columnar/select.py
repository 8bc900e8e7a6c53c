"""Loads the rows that the walk has to look at, of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from divtrace.events import Event
from divtrace.sieve.columnar.chunk import Chunk
from divtrace.sieve.columnar.cursor import ColumnReading, Piece
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.columnar.stretch import holding
from divtrace.sieve.facts import RankFacts
from divtrace.trace.model import Record
from divtrace.trace.provenance import Origins

if TYPE_CHECKING:
    import pyarrow as pa

    from divtrace.sieve.select import Wanted


def load_rows(reading: ColumnReading, facts: RankFacts, wanted: Wanted) -> list[Record]:
    """The wanted records of one rank, in order, with their positions in the whole trace."""
    records: list[Record] = []
    opened: dict[str, ParquetTrace] = {}
    try:
        for piece in reading.pieces:
            trace = opened.get(piece.source.path)
            if trace is None:
                trace = opened[piece.source.path] = ParquetTrace(piece.source)
            if not _may_hold(piece, facts, wanted, trace):
                continue
            if piece is reading.pieces[-1] and _is_in_tail(piece, reading, facts, wanted, trace):
                records += [record for record in reading.tail if is_wanted(record.event, record.pos, wanted)]
            else:
                records += _records(piece, trace, wanted)
    finally:
        for trace in opened.values():
            trace.close()
    return records


def _may_hold(piece: Piece, facts: RankFacts, wanted: Wanted, trace: ParquetTrace) -> bool:
    """False if nothing of a piece can be wanted."""
    first, end = piece.pos, piece.pos + piece.rows
    if any(first <= pos < end for pos in wanted.positions) or wanted.operations or wanted.collectives:
        return True
    for step in wanted.steps_to_read:
        if step in facts.first_of_step and facts.first_of_step[step] < end and facts.last_of_step[step] >= first:
            return True
    return any(trace.may_hold(group, req) for req in wanted.requests for group in piece.groups)


def _is_in_tail(piece: Piece, reading: ColumnReading, facts: RankFacts, wanted: Wanted, trace: ParquetTrace) -> bool:
    """True if all that is wanted of the last piece is still at hand."""
    if (
        wanted.operations
        or wanted.collectives
        or any(trace.may_hold(group, req) for req in wanted.requests for group in piece.groups)
    ):
        return False
    if any(piece.pos <= pos < reading.tail_from for pos in wanted.positions):
        return False
    inside = [step for step in wanted.steps_to_read if facts.last_of_step.get(step, -1) >= piece.pos]
    return all(facts.first_of_step[step] >= reading.tail_from for step in inside)


def is_wanted(event: Event, pos: int, wanted: Wanted) -> bool:
    """True if a record is wanted for its position, its request or its step."""
    if pos in wanted.positions or (event.req is not None and event.req in wanted.requests):
        return True
    if event.stage == "collective" and wanted.collectives:
        return True
    if event.step is None or event.stage == "host":
        return False
    return event.step in wanted.steps or (event.step in wanted.parted_steps and event.req in wanted.parted)


def _chunk(piece: Piece, trace: ParquetTrace) -> Chunk:
    if not trace.is_large(piece.groups):
        return Chunk(trace, piece.groups, piece.rows, piece.first_row)
    start = trace.first_row(piece.groups[0])
    for batch in trace.batches(piece.groups, list(trace.fields)):
        if start == piece.first_row:
            return Chunk(
                trace, piece.groups, piece.rows, start, dict(zip(batch.schema.names, batch.columns, strict=True))
            )
        start += batch.num_rows
    raise AssertionError("a piece lies outside of its row group")


def _records(piece: Piece, trace: ParquetTrace, wanted: Wanted) -> list[Record]:
    import pyarrow as pa
    import pyarrow.compute as pc

    chunk = _chunk(piece, trace)
    chunk.find_order()
    chunk.sort()
    mask = _wanted_rows(chunk, piece, wanted)
    rows = pc.indices_nonzero(mask)
    if not len(rows):
        return []
    origins = Origins(trace.source.name, chunk.origin_columns(rows), trace.provenance)
    found = []
    for at, (event, row) in enumerate(zip(chunk.events(rows), rows.to_pylist(), strict=True)):
        file, line, is_row = origins.of(at, chunk.row(row))
        found.append(Record(event, piece.pos + row, file, line, is_row))
    assert isinstance(rows, pa.Array)
    return found


def _wanted_rows(chunk: Chunk, piece: Piece, wanted: Wanted) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    positions = [pos - piece.pos for pos in wanted.positions if piece.pos <= pos < piece.pos + piece.rows]
    mask: Any = pc.is_in(pa.array(range(piece.rows), pa.int64()), pa.array(positions, pa.int64()))
    mask = pc.or_(mask, holding(chunk.column("req"), sorted(wanted.requests), piece.rows))
    host = holding(chunk.column("stage"), ("host",), piece.rows)
    step = chunk.column("step")
    if step is not None and wanted.steps:
        inside = pc.is_in(step, pa.array(sorted(wanted.steps), step.type))
        mask = pc.or_(mask, pc.and_(pc.fill_null(inside, False), pc.invert(host)))
    if step is not None and wanted.parted:
        steps = wanted.parted_steps
        inside = pc.and_(pc.greater_equal(step, steps.start), pc.less(step, steps.stop))
        mine = holding(chunk.column("req"), sorted(wanted.parted), piece.rows)
        mask = pc.or_(mask, pc.and_(pc.fill_null(inside, False), pc.and_(mine, pc.invert(host))))
    if wanted.collectives:
        mask = pc.or_(mask, holding(chunk.column("stage"), ("collective",), piece.rows))
    number = chunk.column("comm_seq")
    if wanted.operations and number is not None:
        collective = holding(chunk.column("stage"), ("collective",), piece.rows)
        numbers = {operation for _, operation in wanted.operations}
        maybe = pc.indices_nonzero(
            pc.and_(collective, pc.fill_null(pc.is_in(number, pa.array(numbers, number.type)), False))
        )
        comm = chunk.column("comm")
        names = [None] * len(maybe) if comm is None else comm.take(maybe).to_pylist()
        chosen = [
            row
            for row, name, operation in zip(maybe.to_pylist(), names, number.take(maybe).to_pylist(), strict=True)
            if (name, operation) in wanted.operations
        ]
        mask = pc.or_(mask, pc.is_in(pa.array(range(piece.rows), pa.int64()), pa.array(chosen, pa.int64())))
    return mask
