"""The rows of one request in Parquet files: few row groups are read, and of ranks that stored the same bytes one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from divtrace.sieve.columnar.batches import stored_alike
from divtrace.sieve.columnar.chunk import Chunk
from divtrace.sieve.columnar.file import ParquetTrace, whole
from divtrace.sieve.columnar.ragged import counted
from divtrace.sieve.columnar.stretch import holding
from divtrace.sieve.cursor import NotSievableError
from divtrace.trace.provenance import CONTESTED_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_NEEDED = frozenset({"ts", "pool_index", "pool_free"})
"""Integers that are never compared, and that no check looks at."""
_TOLD_OF_ALL = frozenset({"rank", "world"})
"""What a conversion writes into every row as its metadata have it."""


class _Piece(msgspec.Struct, frozen=True):
    """A row group that holds rows of the request."""

    group: int
    mask: pa.Array
    """Which rows they are."""
    known: dict[str, pa.Array]
    """Columns that were read to find that out."""


class OwnRows(msgspec.Struct, frozen=True):
    """The rows of the request in one file."""

    trace: ParquetTrace
    candidates: Sequence[int]
    """Row groups that may hold the request."""
    pieces: Sequence[_Piece]
    chunk: Chunk
    order: pa.Array | None
    """Where rows stand in the order of `seq`; None if they stand in it."""

    def are_contested(self) -> bool | None:
        """Whether one lays a slot that another request laid and had not finished; None if the file does not tell."""
        if not self.trace.tells(CONTESTED_COLUMN):
            return None
        pieces = [piece for piece in self.pieces if self.trace.has_values([piece.group], CONTESTED_COLUMN)]
        return any(
            table.column(0).null_count < len(table)
            for piece, table in zip(pieces, _tables(self.trace, pieces, [CONTESTED_COLUMN]), strict=True)
        )


def own_rows(traces: Sequence[ParquetTrace], req: str) -> list[OwnRows | None]:
    """The rows of a request, and of batches that hold it, of every file in the order of `seq`; None if there are none.

    Raises:
        NotSievableError: a record has no `seq`, or one stands twice.
    """
    found = None
    if alike := stored_alike(traces, _candidates(traces[0], req)):
        found = _all_own(traces, req, alike)
    # Where it has no records of its own, batches alone tell whether the request was served.
    return found or _all_own(traces, req, frozenset()) or [None] * len(traces)


def _all_own(traces: Sequence[ParquetTrace], req: str, without: Collection[int]) -> list[OwnRows | None] | None:
    """The rows in all row groups but these; None if no file has any."""
    lead: OwnRows | None = None
    found: list[OwnRows | None] = []
    for trace in traces:
        own = _own(trace, [group for group in _candidates(trace, req) if group not in without], req, lead)
        lead = lead or own
        found.append(own)
    return None if lead is None else found


def _own(trace: ParquetTrace, candidates: Sequence[int], req: str, lead: OwnRows | None) -> OwnRows | None:
    if lead is not None and _same_rows(trace, candidates, lead):
        counterparts = dict(zip(lead.candidates, candidates, strict=True))
        pieces = [_Piece(counterparts[piece.group], piece.mask, {}) for piece in lead.pieces]
        own = _read(trace, candidates, pieces, lead)
        if own is not None:
            return own
    pieces = [piece for group in candidates if (piece := _piece(trace, group, req)) is not None]
    return _read(trace, candidates, pieces, None) if pieces else None


def _candidates(trace: ParquetTrace, req: str) -> list[int]:
    """Row groups that may hold the request by their statistics."""
    if "req" not in trace.fields:
        return []
    return [
        group
        for groups in trace.pieces()
        for group in groups
        if trace.may_hold(group, req) or (trace.may_be_null(group, "req") and trace.may_hold(group, req, "batch"))
    ]


def _same_rows(trace: ParquetTrace, candidates: Sequence[int], lead: OwnRows) -> bool:
    """True if the same rows as in another file are the request's."""
    return len(candidates) == len(lead.candidates) and all(
        trace.same_bytes(candidates, lead.trace, lead.candidates, name)
        for name in ("req", "batch")
        if name in trace.fields or name in lead.trace.fields
    )


def _piece(trace: ParquetTrace, group: int, req: str) -> _Piece | None:
    """What a row group holds of the request; None if nothing."""
    import pyarrow as pa

    names = [name for name in ("req", "batch") if name in trace.fields and trace.has_values([group], name)]
    known = trace.read([group], names) if names else {}
    mask: pa.Array = pa.repeat(pa.scalar(False, pa.bool_()), trace.group_rows[group])
    if "req" in known:
        mask = _equal(known["req"], req)
    if "batch" in known:
        mask = _or_in_batch(mask, known.get("req"), known["batch"], req)
    return _Piece(group, mask, known) if mask.true_count else None


def _equal(names: pa.Array, req: str) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_dictionary(names.type):
        names = names.cast(pa.string()).dictionary_encode()
    return holding(names, (req,), len(names))


def _or_in_batch(mask: pa.Array, names: pa.Array | None, batch: pa.Array, req: str) -> pa.Array:
    """The mask with batch-level rows whose batch holds the request."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(batch.type):
        return mask
    hits = pc.indices_nonzero(pc.equal(batch.flatten(), pa.scalar(req, batch.type.value_type)))
    if not len(hits):
        return mask
    rows = pc.unique(pc.list_parent_indices(batch).take(hits)).cast(pa.int64())
    inside = pc.is_in(counted(len(batch)), rows)
    return pc.or_(mask, inside if names is None else pc.and_(inside, names.is_null()))


def _read(
    trace: ParquetTrace, candidates: Sequence[int], pieces: Sequence[_Piece], lead: OwnRows | None
) -> OwnRows | None:
    """The rows of the request; None if they do not stand in the order of those of `lead`.

    Args:
        trace: the file.
        candidates: row groups that may hold the request.
        pieces: those that do.
        lead: another file with the same rows, of which columns that are stored in the same bytes are taken.

    Raises:
        NotSievableError: a record has no `seq`, or one stands twice.
    """

    groups = [piece.group for piece in pieces]
    needless = _NOT_NEEDED if trace.provenance is None else _NOT_NEEDED | _TOLD_OF_ALL
    names = [name for name in trace.fields if name not in needless and trace.has_values(groups, name)]
    shared: list[str] = []
    if lead is not None:
        others = [piece.group for piece in lead.pieces]
        both = [name for name in names if name in lead.trace.fields]
        shared = [name for name in both if trace.same_bytes(groups, lead.trace, others, name)]
    columns = _columns(trace, pieces, [name for name in names if name not in shared])
    if lead is not None and "seq" in shared:
        order = lead.order
    else:
        order = _order(columns.get("seq"), trace)
        if lead is not None and not _is_same(order, lead.order):
            return None
    if order is not None:
        columns = {name: column.take(order) for name, column in columns.items()}
    chunk = Chunk(trace, [], sum(piece.mask.true_count for piece in pieces), 0, columns)
    if lead is not None:
        for name in shared:
            chunk.adopt(lead.chunk, name)
    return OwnRows(trace, candidates, pieces, chunk, order)


def _columns(trace: ParquetTrace, pieces: Sequence[_Piece], names: Sequence[str]) -> dict[str, pa.Array]:
    """Columns of the rows of the request."""
    import pyarrow as pa

    if not names:
        return {}
    table = pa.concat_tables(_tables(trace, pieces, names), promote_options="default").unify_dictionaries()
    return {name: whole(table.column(name)) for name in names}


def _tables(trace: ParquetTrace, pieces: Sequence[_Piece], names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of the request in every row group; columns that were read already are not read again."""
    known = {name for piece in pieces for name in piece.known}
    table = trace.table([piece.group for piece in pieces], [name for name in names if name not in known])
    start = 0
    for piece in pieces:
        rows = table.slice(start, trace.group_rows[piece.group])
        start += trace.group_rows[piece.group]
        for name in names:
            if name in piece.known:
                rows = rows.append_column(name, piece.known[name])
        yield _held(rows, piece.mask)


def _held(table: pa.Table, mask: pa.Array) -> pa.Table:
    """The rows of a mask, which stand together where a file is sorted by request."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, count = pc.index(mask, pa.scalar(True, pa.bool_())).as_py(), mask.true_count
    if mask.slice(first, count).true_count == count:
        return table.slice(first, count)
    return table.filter(mask)


def _order(seq: pa.Array | None, trace: ParquetTrace) -> pa.Array | None:
    """Where rows stand in the order of `seq`, None if in it; raises NotSievableError if one has none, or one twice."""
    import pyarrow.compute as pc

    if seq is None or seq.null_count:
        raise NotSievableError(f"{trace.source.name}: a record has no seq")
    if _rises(seq):
        return None
    order = pc.sort_indices(seq)
    if not _rises(seq.take(order)):
        raise NotSievableError(f"{trace.source.name}: a seq stands twice")
    return order


def _is_same(one: pa.Array | None, two: pa.Array | None) -> bool:
    return one is two if one is None or two is None else bool(one.equals(two))


def _rises(numbers: pa.Array) -> bool:
    import pyarrow.compute as pc

    return len(numbers) < 2 or bool(pc.all(pc.greater(numbers[1:], numbers[:-1])).as_py())
