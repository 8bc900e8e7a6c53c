"""From traces of any form to sorted Parquet, one file for every rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from divtrace.convert.merge import MergedCursor
from divtrace.convert.writing import Conversion, Row, Writing
from divtrace.errors import UsageError
from divtrace.events import TRACE_FORMAT, Meta
from divtrace.sieve.columnar.cursor import ParquetCursor
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.cursor import Cursor, DisorderError, NotSievableError
from divtrace.sieve.survey import RankFiles, survey
from divtrace.trace.discover import Discovery, discover, readable
from divtrace.trace.load import load
from divtrace.trace.model import Damage, RankId, RankTrace
from divtrace.trace.order import disagreements
from divtrace.trace.provenance import Damaged, InputFacts, Provenance

OnProgress = Callable[[int, int], None]


def convert(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    run: str | None = None,
    progress: OnProgress | None = None,
) -> Conversion:
    """Write the traces in `paths` to a folder as sorted Parquet, which analyses to the same report.

    Files are written under temporary names and renamed when all are complete. Traces in order are streamed, others that
    carry `seq` are sorted through temporary files; the rest is loaded as a whole.

    Args:
        paths: files and folders.
        out: the folder; it is made if it is not there.
        run: which run to take where the input mixes several.
        progress: called with bytes read and bytes in all.

    Raises:
        UsageError: a path does not exist, or files would be overwritten.
        NoTraceError: nothing in the input is a trace, or nothing is readable.
        RunsError: there are several runs and `run` is None, or there is no run of that name.
    """
    folder = Path(out)
    found = discover(paths)
    _check_folder(folder, paths)
    writing = Writing(folder)
    try:
        try:
            _in_order(found, run, writing, progress)
        except NotSievableError:
            writing.discard()
            _whole(paths, run, writing, progress)
        return writing.publish(with_index=True)
    except BaseException:
        writing.discard()
        raise


def convert_in_order(
    found: Discovery, out: Path, *, run: str | None = None, progress: OnProgress | None = None
) -> Conversion:
    """Write traces that carry `seq` to an empty folder, in its order, without ever holding one of them as a whole.

    Raises:
        NotSievableError: they can only be loaded as a whole.
        OSError: the folder cannot be written to.
    """
    writing = Writing(out)
    try:
        _in_order(found, run, writing, progress)
        return writing.publish(with_index=False)
    except BaseException:
        writing.discard()
        raise


def _in_order(found: Discovery, run: str | None, writing: Writing, progress: OnProgress | None) -> None:
    try:
        _stream(found, run, writing, progress, _Stream)
    except DisorderError:
        writing.discard()
        with TemporaryDirectory(prefix="divtrace-") as folder:
            _stream(found, run, writing, progress, partial(_Sorting, Path(folder)))


def _check_folder(folder: Path, paths: Sequence[str | os.PathLike[str]]) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{readable(str(folder))} is no folder", hint="name the folder to write to")
    here = folder.resolve()
    for path in paths:
        source = Path(path).resolve()
        if source.is_dir() and (here == source or source in here.parents):
            raise UsageError(
                f"{readable(str(folder))} lies in the input", hint="write to a folder outside of those that are read"
            )


def _stream(
    found: Discovery,
    run: str | None,
    writing: Writing,
    progress: OnProgress | None,
    opened: Callable[[RankId, RankFiles, Callable[[int], None] | None], _Stream],
) -> None:
    """Convert traces one rank at a time.

    Raises:
        NotSievableError: they are not.
    """
    files = survey(found.sources, run)
    if not files:
        raise NotSievableError("no traces")
    if any(one.facts for one in files.values()):
        raise NotSievableError("traces were converted before")
    total = sum(source.size or 0 for source in found.sources)
    worlds = {world for world, _ in files}
    read = 0
    for index, (rank, one) in enumerate(files.items()):
        stream = opened(rank, one, None if progress is None else _told(progress, read, total))
        rest = _rest(found) if index + 1 == len(files) else InputFacts()
        finish = partial(stream.finish, rest)
        writing.rank(rank, stream.rows, finish, is_sorted=True, several_worlds=len(worlds) > 1)
        writing.note([*stream.cursor.reading.bad, *stream.cursor.reading.damage])
        read += sum(source.size or 0 for source in one.sources)
    writing.note(found.damage)


def _told(progress: OnProgress, before: int, total: int) -> Callable[[int], None]:
    return lambda read: progress(min(before + read, total), total)


def _rest(found: Discovery) -> InputFacts:
    return InputFacts(ignored_files=found.ignored_files, damage=_damaged(found.damage))


def _damaged(damage: Iterable[Damage]) -> list[Damaged]:
    return [Damaged(one.file, one.line, one.what) for one in damage]


class _Stream:
    """One rank's records as they are read."""

    def __init__(self, rank: RankId, files: RankFiles, told: Callable[[int], None] | None) -> None:
        self._rank, self._files, self._told = rank, files, told
        self.cursor = self._open()

    def _open(self) -> Cursor | MergedCursor:
        if not self._files.parquet:
            return Cursor(*self._rank, self._files.sources)
        if self._files.parquet != len(self._files.sources):
            raise NotSievableError("a rank has files of both forms")
        return ParquetCursor(*self._rank, [ParquetTrace(source) for source in self._files.sources], self._files.metas)

    def rows(self) -> Iterator[Row]:
        """The records with their places."""
        self.cursor = cursor = self._open()
        told = -1
        while (event := cursor.take()) is not None:
            yield (event, *cursor.place())
            if self._told is not None and cursor.bytes_read != told:
                told = cursor.bytes_read
                self._told(told)
        if isinstance(cursor, ParquetCursor):
            cursor.close()

    def finish(self, facts: InputFacts) -> tuple[list[Meta], Provenance]:
        """What reading showed, added to `facts`."""
        facts = msgspec.structs.replace(facts)  # this is asked again if a column turns out too narrow
        reading = self.cursor.reading
        metas = reading.metas
        if disagreements(metas) or any(meta.format not in (None, TRACE_FORMAT) for meta in metas):
            raise NotSievableError("metas that need a note")
        facts.files = list(reading.files)
        facts.damage = [*facts.damage, *_damaged([*reading.bad, *reading.damage])]
        facts.bad_lines = len(reading.bad)
        facts.unknown_fields = dict(sorted(reading.unknown.items()))
        facts.runs = sorted({meta.run for meta in metas if meta.run is not None})
        facts.shared_metas = [meta for meta in metas if meta.rank is None]
        world, rank = self._rank
        return metas, Provenance(
            world=world,
            rank=rank,
            files=list(reading.files),
            row_files=[],
            gaps=reading.gaps,
            lost=reading.lost,
            starts_at_zero=reading.first_seq == 0,
            first_seq=reading.first_seq,
            has_seq=True,
            dropped=max((meta.dropped for meta in metas if meta.dropped is not None), default=0),
            windows=[],
            facts=facts,
        )


class _Sorting(_Stream):
    """One rank's records, sorted."""

    def __init__(self, folder: Path, rank: RankId, files: RankFiles, told: Callable[[int], None] | None) -> None:
        self._folder = folder
        super().__init__(rank, files, told)

    def _open(self) -> MergedCursor:
        if self._files.parquet:
            raise NotSievableError("rows of Parquet files are not sorted")
        return MergedCursor(*self._rank, self._files.sources, self._folder)

    def finish(self, facts: InputFacts) -> tuple[list[Meta], Provenance]:
        """What reading showed, added to `facts`."""
        if isinstance(self.cursor, MergedCursor):
            facts = msgspec.structs.replace(facts, duplicates=self.cursor.duplicates)
        return super().finish(facts)


def _whole(
    paths: Sequence[str | os.PathLike[str]], run: str | None, writing: Writing, progress: OnProgress | None
) -> None:
    """Convert traces of any order, all of them in memory."""
    traces = load(paths, run=run, progress=progress)
    worlds = {world for world, _ in traces.ranks}
    facts = InputFacts(
        files=list(traces.files),
        ignored_files=traces.ignored_files,
        damage=_damaged(traces.damage),
        bad_lines=traces.bad_lines,
        unknown_fields=traces.unknown_fields,
        duplicates=traces.duplicates,
        notes=traces.notes,
        runs=list(traces.runs),
        shared_metas=list(traces.shared_metas),
    )
    last = max(traces.ranks)
    for rank, trace in traces.ranks.items():
        _write_loaded(writing, rank, trace, facts if rank == last else InputFacts(), len(worlds) > 1)
    writing.note(traces.damage)


def _write_loaded(writing: Writing, rank: RankId, trace: RankTrace, facts: InputFacts, several_worlds: bool) -> None:
    first = trace.records[0].event.seq
    provenance = Provenance(
        world=rank[0],
        rank=rank[1],
        files=list(trace.files),
        row_files=[],
        gaps=trace.gaps,
        lost=trace.lost,
        starts_at_zero=trace.starts_at_zero,
        first_seq=-1 if first is None or not trace.has_seq else first,
        has_seq=trace.has_seq,
        dropped=trace.dropped,
        windows=[],
        facts=facts,
    )
    writing.rank(
        rank,
        lambda: ((record.event, record.file, record.line, record.is_row) for record in trace.records),
        lambda: (trace.metas, provenance),
        is_sorted=trace.has_seq,
        several_worlds=several_worlds,
    )
