"""One request alone in Parquet files: is there surely nothing to be found about it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from divtrace.sieve.columnar.chunk import Chunk
from divtrace.sieve.columnar.differences import Differences, aligned_rows
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.columnar.judge import Judge
from divtrace.sieve.columnar.own_rows import OwnRows, own_rows
from divtrace.sieve.columnar.ragged import integer
from divtrace.sieve.columnar.rounds import Unplain
from divtrace.sieve.columnar.stretch import Part, Stretch, holding
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.neighbours import Claim, Finish, Neighbours
from divtrace.sieve.requests import Requests
from divtrace.sieve.single import UnsureError, check_events
from divtrace.topology import ReplicaGroup, Topology
from divtrace.walk.compare import Comparison

if TYPE_CHECKING:
    import pyarrow as pa

    from divtrace.sieve.survey import RankFiles

_LARGEST_TABLE = 1 << 24
"""Bytes of a table of slots."""


def check_columns(
    world: int,
    files: Mapping[int, RankFiles],
    replica: ReplicaGroup,
    groups: Topology,
    algorithm: str | None,
    req: str,
    footers: Mapping[str, Any],
) -> bool:
    """Whether a replica served a request; `footers` are metadata of files, by path, that were read before.

    Raises:
        UnsureError: the request may have a finding there.
        NotSievableError: the files have to be loaded as a whole.
    """
    import pyarrow as pa

    traces: list[ParquetTrace] = []
    try:
        for one in files.values():
            if one.parquet != 1 or len(one.sources) != 1:
                raise UnsureError
            source = one.sources[0]
            traces.append(ParquetTrace(source, footers.get(source.path)))
        of_ranks = own_rows(traces, req)
        found = [own for own in of_ranks if own is not None]
        if not found:
            return False
        if len(found) < len(of_ranks) or len({own.chunk.rows for own in found}) > 1:
            raise UnsureError
        for rank, own in zip(files, found, strict=True):
            if not all(_is_throughout(own.chunk, name, number) for name, number in (("rank", rank), ("world", world))):
                raise UnsureError
        parts = [Part(rank, own.chunk, 0, own.chunk.rows) for rank, own in zip(files, found, strict=True)]
        try:
            _check(Stretch(parts), replica, groups, algorithm, req)
            if not all(_apart(own, req) for own in found):
                raise UnsureError
        except pa.ArrowException as error:
            raise UnsureError from error
        return True
    finally:
        for trace in traces:
            trace.close()


def _is_throughout(chunk: Chunk, name: str, number: int) -> bool:
    """True if every row that records a field holds this number in it."""
    import pyarrow.compute as pc

    column = chunk.column(name)
    return column is None or pc.min_max(column).as_py() == {"min": number, "max": number}


def _apart(rows: OwnRows, req: str) -> bool:
    """`Neighbours.are_apart` over the columns of one rank, or as the conversion told it."""
    import pyarrow.compute as pc

    contested = rows.are_contested()
    if contested is not None:
        return not contested
    trace, chunk = rows.trace, rows.chunk
    slots, names, seq = (chunk.column(name) for name in ("kv_slots", "req", "seq"))
    if slots is None or names is None or seq is None:
        return True
    mine = holding(names, (req,), chunk.rows)
    slots, seq = slots.filter(mine), seq.filter(mine)
    own = Neighbours(req, lambda: zip(seq.to_pylist(), slots.to_pylist(), strict=True))
    return own.are_apart(_claims(trace, own, _Wanted(pc.unique(slots.flatten()))), partial(_finishes, trace))


class _Wanted:
    """Slots that are looked for in others."""

    def __init__(self, slots: pa.Array) -> None:
        """Make a table of them, which is faster than a hash of them, unless it were large."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._slots = slots
        self._table: pa.Array | None = None
        bounds = pc.min_max(slots).as_py()
        if bounds["min"] is not None and bounds["min"] >= 0 and bounds["max"] < _LARGEST_TABLE:
            # One more: what lies behind the highest slot is looked up there.
            table = bytearray(bounds["max"] + 2)
            for slot in slots.to_pylist():
                table[slot] = 1
            self._table = pa.Array.from_buffers(pa.uint8(), len(table), [None, pa.py_buffer(table)])

    def hits(self, values: pa.Array) -> pa.Array:
        """Where values are among them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._table
        if table is None or values.type != pa.int64() or pc.any(pc.less(values, integer(0))).as_py():
            return pc.indices_nonzero(pc.is_in(values, self._slots.cast(values.type)))
        inside = pc.min_element_wise(values, pa.scalar(len(table) - 1, pa.int64()), skip_nulls=False)
        return pc.indices_nonzero(table.take(inside))


def _claims(trace: ParquetTrace, own: Neighbours, wanted: _Wanted) -> Iterator[Claim]:
    """What other requests lay of the slots that are wanted."""
    import pyarrow.compute as pc

    for piece in trace.pieces():
        for groups in _by_owner(trace, piece, own.req):
            slots = trace.read(groups, ["kv_slots"])["kv_slots"]
            hits = wanted.hits(slots.flatten())
            if not len(hits):
                continue
            columns = trace.read(groups, ["req", "seq"])
            rows = pc.unique(pc.list_parent_indices(slots).take(hits))
            names = columns["req"].take(rows)
            rows = rows.filter(pc.invert(holding(names, (own.req,), len(names))))
            taken = (column.take(rows).to_pylist() for column in (columns["req"], columns["seq"], slots))
            for req, seq, given in zip(*taken, strict=True):
                yield from ((seq, req, slot) for slot in given if slot in own.slots)


def _by_owner(trace: ParquetTrace, piece: Sequence[int], req: str) -> list[list[int]]:
    """Row groups that hold slots: those of others only, of which hardly any lay the same, and those that may be own."""
    laying = [group for group in piece if trace.has_values([group], "kv_slots")]
    own = [group for group in laying if trace.may_hold(group, req)]
    return [groups for groups in ([group for group in laying if group not in own], own) if groups]


def _finishes(trace: ParquetTrace) -> Iterator[Finish]:
    import pyarrow.compute as pc

    if "finished" not in trace.fields:
        return
    for groups in trace.pieces():
        columns = trace.read(groups, ["req", "seq", "finished"])
        finished = columns["finished"]
        over = pc.and_(finished.is_valid(), pc.invert(holding(finished, ("",), len(finished))))
        rows = pc.indices_nonzero(over)
        yield from zip(columns["req"].take(rows).to_pylist(), columns["seq"].take(rows).to_pylist(), strict=True)


def _check(stretch: Stretch, replica: ReplicaGroup, groups: Topology, algorithm: str | None, req: str) -> None:
    import pyarrow.compute as pc

    comparison = Comparison(replica)
    if aligned_rows(stretch) < stretch.count:
        raise UnsureError
    differences = Differences(stretch, comparison)
    if differences.requests(()) or differences.steps() or differences.wrong_syncs(groups):
        raise UnsureError
    decision = stretch.column("decision")
    ranks = [part.rank for part in stretch.parts]
    facts = ReplicaFacts({})
    requests = Requests(facts, algorithm, ranks)
    restarts = pc.any(holding(decision, ("retract", "extend"), stretch.count)).as_py()
    try:
        if restarts or stretch.column("attempt") is not None:
            raise Unplain
        Judge(stretch, requests, ranks).take_in()
    except Unplain:
        rows = range(stretch.count)
        check_events({part.rank: part.chunk.events(rows) for part in stretch.parts}, groups, algorithm, req)
        return
    requests.close_all()
    if facts.suspects or facts.stepless or facts.irregular:
        raise UnsureError
