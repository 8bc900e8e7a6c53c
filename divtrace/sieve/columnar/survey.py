"""Which rank a Parquet file belongs to: from its metadata, its name and its first row."""

from __future__ import annotations

from typing import Any

from divtrace.events import Meta
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.cursor import NotSievableError
from divtrace.trace.discover import Source
from divtrace.trace.model import RankId, canonical
from divtrace.trace.provenance import InputFacts


def parquet_start(
    source: Source, footers: dict[str, Any] | None = None
) -> tuple[RankId, int, list[Meta], InputFacts | None]:
    """The rank of a file, its first `seq`, its metas in the order that loading gives them, and what a conversion knew.

    Args:
        source: the file.
        footers: takes the file's metadata by its path, for whoever opens it again: reading it takes milliseconds.

    Raises:
        NotSievableError: the file tells of no rank, or of several, or its rows carry no `seq`.
    """
    trace = ParquetTrace(source)
    try:
        if footers is not None:
            footers[source.path] = trace.metadata
        if trace.provenance is not None:
            origin = trace.provenance
            return (origin.world, origin.rank), origin.first_seq, trace.metas, origin.facts
        groups = next((groups for groups in trace.pieces()), None)
        names = [name for name in ("rank", "world", "seq") if name in trace.fields]
        if groups is None or "seq" not in names:
            raise NotSievableError(f"{source.name} has no rows, or no seq")
        batch = next(trace.file.iter_batches(batch_size=1, row_groups=groups[:1], columns=names, use_threads=False))
        first: dict[str, Any] = {name: batch.column(name)[0].as_py() for name in names}
        ranks = {meta.rank for meta in trace.metas} - {None}
        default = next(iter(ranks)) if len(ranks) == 1 else source.rank
        rank = first.get("rank") if first.get("rank") is not None else default
        worlds = {meta.world for meta in trace.metas} - {None}
        world = first.get("world")
        if world is None:
            world = next(iter(worlds), 0)
        if rank is None or world is None or first["seq"] is None or len(worlds - {world}) or len(ranks - {rank}):
            raise NotSievableError(f"{source.name} tells no rank, several, or no seq")
        if default is not None and default != rank:
            raise NotSievableError(f"{source.name} tells several ranks")
        return (int(world), int(rank)), int(first["seq"]), sorted(trace.metas, key=canonical), None
    finally:
        trace.close()
