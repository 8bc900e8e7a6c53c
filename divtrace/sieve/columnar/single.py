"""One request alone in Parquet files: only row groups are read that can hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from divtrace.sieve.columnar.chunk import Chunk
from divtrace.sieve.columnar.cursor import ParquetCursor
from divtrace.sieve.columnar.differences import Differences, aligned_rows
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.columnar.judge import Judge
from divtrace.sieve.columnar.rounds import Unplain
from divtrace.sieve.columnar.stretch import Part, Stretch, holding
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.lane import Lane
from divtrace.sieve.neighbours import Claim, Finish, Neighbours
from divtrace.sieve.operations import OperationTable
from divtrace.sieve.requests import Requests
from divtrace.sieve.single import UnsureError, check_events
from divtrace.topology import ReplicaGroup, Topology
from divtrace.walk.compare import Comparison

if TYPE_CHECKING:
    import pyarrow as pa

    from divtrace.sieve.survey import RankFiles


def check_columns(
    world: int,
    files: Mapping[int, RankFiles],
    replica: ReplicaGroup,
    groups: Topology,
    algorithm: str | None,
    req: str,
) -> bool:
    """Whether a replica served a request.

    Raises:
        UnsureError: the request may have a finding there.
        NotSievableError: the files have to be loaded as a whole.
    """
    import pyarrow as pa

    traces: list[ParquetTrace] = []
    try:
        chunks: dict[int, Chunk | None] = {}
        for rank, one in files.items():
            if one.parquet != 1 or len(one.sources) != 1:
                raise UnsureError
            traces.append(ParquetTrace(one.sources[0]))
            chunks[rank] = _chunk(traces[-1], rank, world, req)
        found = [chunk for chunk in chunks.values() if chunk is not None]
        if not found:
            return False
        if len(found) < len(chunks) or len({chunk.rows for chunk in found}) > 1:
            raise UnsureError
        table = OperationTable(world, groups, frozenset(files))
        parts = [
            Part(Lane(ParquetCursor(world, rank, [trace], []), table), chunk, 0, chunk.rows)
            for rank, trace, chunk in zip(files, traces, found, strict=True)
        ]
        try:
            _check(Stretch(parts), replica, groups, algorithm, req)
            if not all(_apart(trace, chunk, req) for trace, chunk in zip(traces, found, strict=True)):
                raise UnsureError
        except pa.ArrowException as error:
            raise UnsureError from error
        return True
    finally:
        for trace in traces:
            trace.close()


def _chunk(trace: ParquetTrace, rank: int, world: int, req: str) -> Chunk | None:
    """The rows of a request, and of batches that hold it, in the order of `seq`; None if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "req" not in trace.fields:
        return None
    tables: list[pa.Table] = []
    for groups in trace.pieces():
        wanted = [group for group in groups if _holds(trace, group, req)]
        if not wanted:
            continue
        table = trace.file.read_row_groups(wanted, columns=list(trace.fields), use_threads=False).unify_dictionaries()
        mask = pc.fill_null(pc.equal(table.column("req").cast(pa.large_string()), req), False)
        if "batch" in trace.fields:
            mask = pc.or_(mask, _in_batch(table, req))
        tables.append(table.filter(mask))
    if not tables:
        return None
    table = pa.concat_tables(tables).unify_dictionaries()
    if not len(table):
        return None
    seq = table.column("seq")
    if seq.null_count:
        raise UnsureError
    table = table.take(pc.sort_indices(seq)).combine_chunks()
    seq = table.column("seq").combine_chunks()
    if len(seq) > 1 and not pc.all(pc.greater(seq[1:], seq[:-1])).as_py():
        raise UnsureError
    for name, expected in (("rank", rank), ("world", world)):
        if name in table.column_names and pc.all(pc.equal(table.column(name), expected)).as_py() not in (True, None):
            raise UnsureError
    given = {name: _one(table.column(name)) for name in trace.fields}
    return Chunk(trace, [], len(table), 0, given)


def _apart(trace: ParquetTrace, chunk: Chunk, req: str) -> bool:
    """`Neighbours.are_apart` over the columns of one rank."""
    slots, names, seq = (chunk.column(name) for name in ("kv_slots", "req", "seq"))
    if slots is None or names is None or seq is None:
        return True
    mine = zip(names.to_pylist(), seq.to_pylist(), slots.to_pylist(), strict=True)
    own = Neighbours(req, ((at, given) for name, at, given in mine if name == req))
    return own.are_apart(_claims(trace, own), partial(_finishes, trace))


def _claims(trace: ParquetTrace, own: Neighbours) -> Iterator[Claim]:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(own.slots), pa.int64())
    for groups in trace.pieces():
        columns = trace.read(groups, ["req", "seq", "kv_slots"])
        slots = columns["kv_slots"]
        hits = pc.indices_nonzero(pc.is_in(slots.flatten(), wanted.cast(slots.type.value_type)))
        rows = pc.unique(pc.list_parent_indices(slots).take(hits))
        taken = (columns[name].take(rows).to_pylist() for name in ("req", "seq", "kv_slots"))
        for req, seq, given in zip(*taken, strict=True):
            if req != own.req:
                yield from ((seq, req, slot) for slot in given if slot in own.slots)


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


def _holds(trace: ParquetTrace, group: int, req: str) -> bool:
    """False if no row of a row group is of a request, or of a batch that holds it."""
    if trace.may_hold(group, req):
        return True
    if "batch" not in trace.fields or not trace.may_be_null(group, "req"):
        return False
    import pyarrow.compute as pc

    batch = trace.read([group], ["batch"])["batch"]
    return bool(pc.index(batch.flatten(), req).as_py() >= 0)


def _one(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _in_batch(table: pa.Table, req: str) -> pa.Array:
    """Batch-level rows whose batch holds the request."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = _one(table.column("batch"))
    hits = pc.indices_nonzero(pc.equal(batch.flatten(), req))
    rows = pc.unique(pc.list_parent_indices(batch).take(hits))
    mask = pc.is_in(pa.array(range(len(batch)), rows.type), rows)
    return pc.and_(mask, table.column("req").is_null())


def _check(stretch: Stretch, replica: ReplicaGroup, groups: Topology, algorithm: str | None, req: str) -> None:
    import pyarrow.compute as pc

    comparison = Comparison(replica)
    if aligned_rows(stretch) < stretch.count:
        raise UnsureError
    differences = Differences(stretch, comparison)
    if any(True for _ in differences.requests()) or differences.steps() or differences.wrong_syncs(groups):
        raise UnsureError
    decision = stretch.column("decision")
    ranks = [part.lane.rank for part in stretch.parts]
    facts = ReplicaFacts({})
    requests = Requests(facts, algorithm, ranks)
    restarts = pc.any(holding(decision, ("retract", "extend"), stretch.count)).as_py()
    try:
        if restarts or stretch.column("attempt") is not None:
            raise Unplain
        Judge(stretch, requests, ranks).take_in()
    except Unplain:
        rows = range(stretch.count)
        check_events({part.lane.rank: part.chunk.events(rows) for part in stretch.parts}, groups, algorithm, req)
        return
    requests.close_all()
    if facts.suspects or facts.stepless or facts.irregular:
        raise UnsureError
