"""The rows of one request in Parquet files: few row groups are read, and of ranks that stored the same bytes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from divtrace.sieve.columnar.chunk import Chunk
from divtrace.sieve.columnar.file import ParquetTrace, whole
from divtrace.sieve.columnar.ragged import counted
from divtrace.sieve.columnar.stretch import holding
from divtrace.sieve.cursor import NotSievableError

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_NEEDED = frozenset({"ts", "pool_index", "pool_free"})
"""Integers that are never compared, and that no check looks at."""


class _Piece(msgspec.Struct, frozen=True):
    """Row groups that hold rows of the request, and which rows they are."""

    groups: Sequence[int]
    mask: pa.Array


class _Own(msgspec.Struct, frozen=True):
    """The rows of the request in one file."""

    trace: ParquetTrace
    candidates: Sequence[Sequence[int]]
    """Row groups that may hold the request, by piece."""
    pieces: Sequence[_Piece]
    chunk: Chunk
    order: pa.Array
    """Where rows stand in the order of `seq`."""


def own_rows(traces: Sequence[ParquetTrace], req: str) -> list[Chunk | None]:
    """The rows of a request, and of batches that hold it, of every file in the order of `seq`; None if there are none.

    Raises:
        NotSievableError: a record has no `seq`, or one stands twice.
    """
    lead: _Own | None = None
    found: list[Chunk | None] = []
    for trace in traces:
        candidates = _candidates(trace, req)
        alike = lead is not None and _same_rows(trace, candidates, lead)
        pieces = lead.pieces if alike and lead is not None else _pieces(trace, candidates, req)
        if not pieces:
            found.append(None)
            continue
        own = None
        if alike and lead is not None:
            pieces = [_Piece(groups, mine.mask) for groups, mine in zip(_hit(candidates, lead), pieces, strict=True)]
            own = _read(trace, candidates, pieces, lead)
        own = own or _read(trace, candidates, pieces, None)
        lead = lead or own
        found.append(own.chunk if own is not None else None)
    return found


def _candidates(trace: ParquetTrace, req: str) -> list[list[int]]:
    """Row groups that may hold the request by their statistics, piece by piece."""
    if "req" not in trace.fields:
        return []
    found = []
    for groups in trace.pieces():
        wanted = [
            group
            for group in groups
            if trace.may_hold(group, req) or (trace.may_be_null(group, "req") and trace.may_hold(group, req, "batch"))
        ]
        if wanted:
            found.append(wanted)
    return found


def _same_rows(trace: ParquetTrace, candidates: Sequence[Sequence[int]], lead: _Own) -> bool:
    """True if the same rows as in another file are the request's."""
    return len(candidates) == len(lead.candidates) and all(
        trace.same_bytes(groups, lead.trace, others, name)
        for name in ("req", "batch")
        if name in trace.fields or name in lead.trace.fields
        for groups, others in zip(candidates, lead.candidates, strict=True)
    )


def _hit(candidates: Sequence[Sequence[int]], lead: _Own) -> list[Sequence[int]]:
    """Of row groups that may hold the request those that do, as in another file with the same rows."""
    holding_it = {tuple(piece.groups) for piece in lead.pieces}
    pairs = zip(candidates, lead.candidates, strict=True)
    return [groups for groups, others in pairs if tuple(others) in holding_it]


def _pieces(trace: ParquetTrace, candidates: Sequence[Sequence[int]], req: str) -> list[_Piece]:
    found = []
    for groups in candidates:
        columns = trace.read(groups, [name for name in ("req", "batch") if name in trace.fields])
        names = columns["req"]
        mask = _equal(names, req)
        if "batch" in columns:
            mask = _or_in_batch(mask, names, columns["batch"], req)
        if mask.true_count:
            found.append(_Piece(groups, mask))
    return found


def _equal(names: pa.Array, req: str) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_dictionary(names.type):
        names = names.cast(pa.string()).dictionary_encode()
    return holding(names, (req,), len(names))


def _or_in_batch(mask: pa.Array, names: pa.Array, batch: pa.Array, req: str) -> pa.Array:
    """The mask with batch-level rows whose batch holds the request."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(batch.type):
        return mask
    hits = pc.indices_nonzero(pc.equal(batch.flatten(), pa.scalar(req, batch.type.value_type)))
    if not len(hits):
        return mask
    rows = pc.unique(pc.list_parent_indices(batch).take(hits)).cast(pa.int64())
    return pc.or_(mask, pc.and_(pc.is_in(counted(len(batch)), rows), names.is_null()))


def _read(
    trace: ParquetTrace, candidates: Sequence[Sequence[int]], pieces: Sequence[_Piece], lead: _Own | None
) -> _Own | None:
    """The rows of the request; None if they do not stand in the order of those of `lead`.

    Args:
        trace: the file.
        candidates: row groups that may hold the request.
        pieces: those that do.
        lead: another file with the same rows, of which columns that are stored in the same bytes are taken.

    Raises:
        NotSievableError: a record has no `seq`, or one stands twice.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    needed = [name for name in trace.fields if name not in _NOT_NEEDED]
    names = [name for name in needed if any(trace.has_values(piece.groups, name) for piece in pieces)]
    shared = [] if lead is None else [name for name in names if _same_column(trace, pieces, name, lead)]
    read = [name for name in names if name not in shared]
    columns: dict[str, pa.Array] = {}
    if read:
        tables = []
        for piece in pieces:
            table = trace.file.read_row_groups(list(piece.groups), columns=read, use_threads=False)
            tables.append(table.unify_dictionaries().filter(piece.mask))
        table = pa.concat_tables(tables).unify_dictionaries()
        columns = {name: whole(table.column(name)) for name in read}
    if lead is not None and "seq" in shared:
        order = lead.order
    else:
        seq = columns.get("seq")
        if seq is None or seq.null_count:
            raise NotSievableError(f"{trace.source.name}: a record has no seq")
        order = pc.sort_indices(seq)
        ordered = seq.take(order)
        if len(seq) > 1 and not pc.all(pc.greater(ordered[1:], ordered[:-1])).as_py():
            raise NotSievableError(f"{trace.source.name}: a seq stands twice")
        if lead is not None and not order.equals(lead.order):
            return None
    chunk = Chunk(trace, [], len(order), 0, {name: column.take(order) for name, column in columns.items()})
    if lead is not None:
        for name in shared:
            chunk.adopt(lead.chunk, name)
    return _Own(trace, candidates, pieces, chunk, order)


def _same_column(trace: ParquetTrace, pieces: Sequence[_Piece], name: str, lead: _Own) -> bool:
    """True if a column's values are those of another file in all of these row groups."""
    return name in lead.trace.fields and all(
        trace.same_bytes(mine.groups, lead.trace, other.groups, name)
        for mine, other in zip(pieces, lead.pieces, strict=True)
    )
