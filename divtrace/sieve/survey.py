"""Which rank each file belongs to, without reading it: from its first lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from divtrace.events import Event, Meta
from divtrace.sieve.cursor import NotSievableError
from divtrace.trace.compression import PARQUET, StreamDamage, open_stream
from divtrace.trace.discover import Source
from divtrace.trace.lines import split_lines
from divtrace.trace.model import RankId
from divtrace.trace.provenance import InputFacts
from divtrace.trace.records import BadRecordError, decode_line


class RankFiles(msgspec.Struct):
    """The files of one rank in the order of their first `seq`, and the metas that stand in front of their records."""

    sources: list[Source] = msgspec.field(default_factory=list)
    metas: list[Meta] = msgspec.field(default_factory=list)
    parquet: int = 0
    """How many of the files are Parquet."""
    facts: list[InputFacts] = msgspec.field(default_factory=list)
    """What converted files say of their input."""


class Start(msgspec.Struct):
    """What the first lines of a file tell, or its footer."""

    source: Source
    rank: RankId
    seq: int
    metas: list[Meta]
    is_parquet: bool = False
    facts: InputFacts | None = None


def survey(
    sources: Iterable[Source], run: str | None, footers: dict[str, Any] | None = None
) -> dict[RankId, RankFiles]:
    """The files by rank; `footers` takes the metadata of Parquet files by their paths.

    Raises:
        NotSievableError: a file is compressed Parquet, damaged at its start, of an unknown rank, or without `seq`; or
            the files belong to several runs.
    """
    return by_rank([_start(source, footers) for source in sources], run)


def by_rank(starts: Iterable[Start], run: str | None) -> dict[RankId, RankFiles]:
    """The same of what is known of the files; raises NotSievableError if they belong to several runs."""
    starts = sorted(starts, key=lambda start: (start.rank, start.seq, start.source.name))
    runs = {meta.run for start in starts for meta in start.metas if meta.run is not None}
    if len(runs) > 1 or (run is not None and runs and run not in runs):
        raise NotSievableError("several runs")
    found: dict[RankId, RankFiles] = {}
    for start in starts:
        files = found.setdefault(start.rank, RankFiles())
        files.sources.append(start.source)
        files.metas += start.metas
        files.parquet += start.is_parquet
        if start.facts is not None:
            files.facts.append(start.facts)
    return dict(sorted(found.items()))


def _start(source: Source, footers: dict[str, Any] | None) -> Start:
    metas: list[Meta] = []
    try:
        with source.open() as file:
            stream = open_stream(file, source.size)
            if stream.peek(4) == PARQUET and stream.plain and source.size is not None:
                from divtrace.sieve.columnar.survey import parquet_start

                rank, seq, metas, facts = parquet_start(source, footers)
                return Start(source, rank, seq, metas, is_parquet=True, facts=facts)
            if source.size is None or stream.peek(4) == PARQUET:
                raise NotSievableError(f"{source.name} is a pipe, or compressed Parquet")
            for block in split_lines(stream):
                for line in block.lines:
                    record, _ = decode_line(line)
                    if isinstance(record, Meta):
                        metas.append(record)
                    elif isinstance(record, Event):
                        return _placed(source, record, metas)
    except (OSError, StreamDamage, BadRecordError) as error:
        raise NotSievableError(str(error)) from error
    raise NotSievableError(f"{source.name} has no record")


def _placed(source: Source, event: Event, metas: list[Meta]) -> Start:
    ranks = [meta.rank for meta in metas if meta.rank is not None]
    worlds = [meta.world for meta in metas if meta.world is not None]
    rank = event.rank if event.rank is not None else ranks[0] if ranks else source.rank
    world = event.world if event.world is not None else worlds[0] if worlds else 0
    if rank is None or event.seq is None or any(other != rank for other in ranks) or len(set(worlds)) > 1:
        raise NotSievableError(f"{source.name} tells no rank, several, or no seq")
    return Start(source, (world, rank), event.seq, metas)
