"""From paths to the records of every rank, in order, with all damage counted and named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from divtrace.errors import NoTraceError, RunsError
from divtrace.events import TRACE_FORMAT, Meta
from divtrace.trace.compression import PARQUET, StreamDamage, open_stream
from divtrace.trace.content import FileContent, collect
from divtrace.trace.discover import Discovery, Source, discover, readable, reason
from divtrace.trace.jsonl import read_jsonl
from divtrace.trace.model import Block, Damage, RankId, Traces, canonical
from divtrace.trace.order import Assembled, Part, assemble, restored
from divtrace.trace.parquet import read_parquet, spooled

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes of the whole input."""


def read_blocks(source: Source) -> Iterator[Block]:
    """The blocks of one trace file, whatever its format and compression, in line order.

    Damage comes as part of the blocks; nothing that the file holds raises.
    """
    try:
        with source.open() as file:
            stream = open_stream(file, source.size)
            magic = stream.peek(4)
            if magic == PARQUET:
                if stream.plain and source.size is not None:
                    yield from read_parquet(file, source.name)
                else:
                    with spooled(stream) as whole:
                        yield from read_parquet(whole, source.name)
            elif magic and ".parquet" in source.name.lower() and magic.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
                yield Block([], [], damage=[Damage(source.name, None, "no Parquet file: it does not start with PAR1")])
            else:
                for block in read_jsonl(stream, source.name):
                    block.consumed = file.tell() if source.size is not None else 0
                    yield block
    except StreamDamage as damage:
        yield Block([], [], damage=[Damage(source.name, None, str(damage))])
    except OSError as error:
        yield Block([], [], damage=[Damage(source.name, None, f"the file cannot be read: {reason(error)}")])


def load(
    paths: Sequence[str | os.PathLike[str]],
    *,
    run: str | None = None,
    progress: Progress | None = None,
    found: Discovery | None = None,
) -> Traces:
    """Read all traces in `paths`, files and directories.

    Damage costs the line or the file and is part of the result. The result is the same whatever the order of the
    paths, the names of the files and the order of lines with `seq`; only the names and lines in it differ.

    Args:
        paths: What to read.
        run: Take only files of this run; a file that names none belongs to any.
        progress: Told how far reading has come, now and then.
        found: The files, where they were looked for already.

    Raises:
        UsageError: a path does not exist.
        NoTraceError: there is no trace file in the input, or none has a usable record.
        RunsError: there are several runs and `run` is None, or there is no run of that name.
    """
    found = discover(paths) if found is None else found
    if not found.sources:
        raise NoTraceError(_nothing_found(paths, found), hint=_TRACE_NAMES)
    total = sum(source.size or 0 for source in found.sources)
    done = 0
    contents = []
    for source in found.sources:
        blocks = read_blocks(source)
        contents.append(collect(source, blocks if progress is None else _told(blocks, progress, done, total), run))
        done += source.size or 0
    if progress is not None:
        progress(total, total)
    runs = tuple(sorted({name for content in contents for name in content.runs}))
    _check_runs(runs, run)
    return _assembled(found, [content for content in contents if not content.other_run], runs, len(contents), paths)


def _told(blocks: Iterator[Block], progress: Progress, done: int, total: int) -> Iterator[Block]:
    progress(done, total)
    for block in blocks:
        yield block
        progress(min(done + block.consumed, total), total)


_TRACE_NAMES = "traces end in .jsonl, .ndjson or .parquet, also with .gz or .zst; a file named itself is always read"


def _nothing_found(paths: Sequence[str | os.PathLike[str]], found: Discovery) -> str:
    text = f"no trace in {_looked_at(paths)}"
    if found.ignored_files:
        text += f"; {found.ignored_files} other file{'s' if found.ignored_files > 1 else ''} ignored"
    if found.damage:
        text += f"; {found.damage[0].file}: {found.damage[0].what}"
    return text


def _looked_at(paths: Sequence[str | os.PathLike[str]]) -> str:
    shown = [readable(os.fspath(path)) for path in paths[:3]]
    return ", ".join(shown) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _check_runs(runs: tuple[str, ...], run: str | None) -> None:
    if run is None and len(runs) > 1:
        raise RunsError(f"the input mixes {len(runs)} runs: {', '.join(runs)}", hint="pick one with --run NAME")
    if run is not None and runs and run not in runs:
        raise RunsError(f"no file is of run {run}; the runs are: {', '.join(runs)}", hint="pick one of them with --run")


def _assembled(
    found: Discovery,
    contents: list[FileContent],
    runs: tuple[str, ...],
    read: int,
    paths: Sequence[str | os.PathLike[str]],
) -> Traces:
    parts: dict[RankId, list[Part]] = {}
    for content in contents:
        for rank, part in content.parts.items():
            parts.setdefault(rank, []).append(part)
    shared = _place_loose_metas(contents, parts)
    bad = [damage for content in contents for damage in content.bad]
    damage = found.damage + [damage for content in contents for damage in _of_file(content)]
    if not parts:
        text = f"no usable record in {_looked_at(paths)}"
        if bad or damage:
            first = min(bad + damage, key=_place)
            text += f"; {first.file}{'' if first.line is None else f':{first.line}'}: {first.what}"
        raise NoTraceError(text, hint="a trace has one JSON object a line; `divtrace schema event` shows its fields")
    origins = {
        (one.world, one.rank): one
        for content in contents
        for one in content.conversions
        if len(parts.get((one.world, one.rank), ())) == 1
    }
    assembled = {
        rank: restored(rank, parts[rank][0], origins[rank]) if rank in origins else assemble(rank, parts[rank])
        for rank in sorted(parts)
    }
    facts = [one.facts for content in contents for one in content.conversions]
    bad += [damage for one in assembled.values() for damage in one.bad]
    unknown: dict[str, int] = {}
    for content in contents:
        for name, count in content.unknown.items():
            unknown[name] = unknown.get(name, 0) + count
    for fact in facts:
        damage += [Damage(one.file, one.line, one.what) for one in fact.damage]
        for name, count in fact.unknown_fields.items():
            unknown[name] = unknown.get(name, 0) + count
    files = {content.name for content in contents if not content.conversions}
    files.update(name for fact in facts for name in fact.files)
    return Traces(
        ranks={rank: one.trace for rank, one in assembled.items()},
        files=tuple(sorted(files)),
        ignored_files=found.ignored_files + sum(fact.ignored_files for fact in facts),
        damage=sorted(bad + damage, key=_place),
        bad_lines=len(bad) + sum(fact.bad_lines for fact in facts),
        unknown_fields=dict(sorted(unknown.items())),
        duplicates=sum(one.duplicates for one in assembled.values()) + sum(fact.duplicates for fact in facts),
        notes=[*(note for fact in facts for note in fact.notes), *_notes(assembled, contents, read)],
        runs=runs,
        shared_metas=shared,
    )


def _place(damage: Damage) -> tuple[str, int, str]:
    return (damage.file, damage.line or 0, damage.what)


def _of_file(content: FileContent) -> list[Damage]:
    """Damage of one file, and the fact that nothing in it is of use, unless its damage says so already."""
    if content.parts or content.damage:
        return content.damage
    return [Damage(content.name, None, "no usable record in this file")]


def _place_loose_metas(contents: list[FileContent], parts: dict[RankId, list[Part]]) -> list[Meta]:
    """Give metas that stand in a file without records of their rank to that rank; return those of no rank."""
    shared = [meta for content in contents for meta in content.shared_metas]
    for content in contents:
        for placed, rank, world in content.loose_metas:
            if rank is None:
                continue
            if (trace := parts.get((world or 0, rank))) is not None:
                trace.append(Part(content.name, metas=[placed]))
            else:
                shared.append(placed.meta)
    distinct = {canonical(meta): meta for meta in shared}
    return [distinct[text] for text in sorted(distinct)]


def _notes(assembled: dict[RankId, Assembled], contents: list[FileContent], read: int) -> list[str]:
    several_worlds = len({world for world, _ in assembled}) > 1
    notes = []
    if left_out := read - len(contents):
        notes.append(f"{left_out} file{'s' if left_out > 1 else ''} of other runs left out")
    formats = {name for content in contents for name in content.formats} - {TRACE_FORMAT}
    notes += [f"a meta record names the format {name!r}; it was read as {TRACE_FORMAT}" for name in sorted(formats)]
    for (world, rank), one in assembled.items():
        who = f"rank {world}/{rank}" if several_worlds else f"rank {rank}"
        notes += [f"{who}: {note}" for note in one.notes]
    return notes
