"""`divtrace collectives`: the table of all collectives, and each rank's last ones side by side."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from divtrace.cli._console import console_for, is_terminal, wants_color
from divtrace.cli._files import document, is_stdout, write_answer
from divtrace.cli._options import Output, Paths, Reading, Terminal, option, spelled_out
from divtrace.cli._text import line_width
from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from divtrace.join.collectives import Collective, Timeline

FORMATS = ("text", "json", "parquet")
MOST_ROWS = 40
"""Operations listed as text, without -v: the last ones."""
MARKS = {"enqueued": "*", "started": "*", "timeout": "!", "missing": "-"}

Comm = Annotated[
    list[str] | None, option("--comm", help="Only this communicator, as listed; repeatable.", metavar="NAME")
]
Ranks = Annotated[list[str] | None, option("--rank", help="Only these global ranks, such as 0-3,7.", metavar="RANKS")]
Numbers = Annotated[
    list[str] | None, option("--number", help="Only these numbers of the communicator, such as 16-18.", metavar="N")
]
Format = Annotated[
    str,
    option(
        "--format",
        "-f",
        help="text (default), json or parquet.",
        metavar="FORMAT",
        autocompletion=lambda incomplete: [name for name in FORMATS if name.startswith(incomplete)],
    ),
]


@spelled_out
def command(
    *,
    paths: Paths,
    comm: Comm = None,
    rank: Ranks = None,
    number: Numbers = None,
    form: Format = "text",
    reading: Reading,
    output: Output,
    terminal: Terminal,
) -> ExitCode:
    """List the collectives of traces, flight-recorder dumps and logs, and every rank's last ones side by side.

    An operation that several sources recorded stands once for each. In the timelines * is pending, ! timed out, and
    - stands where a rank's records of that communicator end before it. Exits 0 if there is anything to list.
    """
    if form not in FORMATS:
        raise UsageError(f"this command does not write {form!r}", hint="--format is text, json or parquet here")
    if form == "parquet" and is_stdout(output.output) and is_terminal(sys.stdout):
        raise UsageError("parquet is not for terminals", hint="write it to a file with -o FILE")
    from divtrace.api import collectives
    from divtrace.join.collectives import COLLECTIVES_FORMAT, Wanted, timelines

    ranges = _ranges("--rank", rank)
    wanted = Wanted(
        comms=None if comm is None else frozenset(comm),
        ranks=None if ranges is None else frozenset(one for a, b in ranges for one in range(a, b + 1)),
        numbers=_ranges("--number", number),
    )
    console = console_for(terminal)
    with console.progress_bar(paths) as progress:
        rows = collectives(paths, reading.options(), wanted, progress=progress)
    if form == "json":
        write_answer(output.output, document({"schema": COLLECTIVES_FORMAT, "operations": rows}))
    elif form == "parquet":
        write_answer(output.output, _parquet(rows))
    else:
        from divtrace.output.layout import finished

        color = wants_color(terminal.color, sys.stdout if is_stdout(output.output) else None)
        lines = _lines(rows, timelines(rows), verbose=terminal.verbose > 0)
        write_answer(output.output, finished(lines, color=color))
    return ExitCode.CLEAN


def _ranges(name: str, values: list[str] | None) -> list[tuple[int, int]] | None:
    """`0-3,7` as ranges; raises UsageError for anything else."""
    if values is None:
        return None
    found = []
    for part in ",".join(values).split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 40:
            raise UsageError(f"{name} {part!r} is neither a number nor a range", hint="for instance: 0-3,7")
        found.append((int(first), int(last if dash else first)))
    if name == "--rank" and sum(b - a + 1 for a, b in found) > 1 << 20:
        raise UsageError("that are more ranks than there can be")
    return found


def _lines(rows: list[Collective], lines_of: list[Timeline], *, verbose: bool) -> list[str]:
    from divtrace.output.layout import emphasised
    from divtrace.output.quantities import count

    lines = []
    for timeline in lines_of:
        lines += [emphasised(f"Last operations ({timeline.source})", "strong"), *_timeline(timeline), ""]
    shown = rows if verbose else rows[-MOST_ROWS:]
    title = count(len(rows), "operation")
    if len(shown) < len(rows):
        title += f", the last {len(shown)} (-v, JSON and Parquet have all)"
    return [*lines, emphasised(title, "strong"), *_table(shown)]


def _timeline(timeline: Timeline) -> list[str]:
    """One line for each rank; as many of the last operations as fit."""
    from divtrace.output.escape import name
    from divtrace.output.layout import columns, padded

    many = len({world for (world, _), _ in timeline.rows}) > 1
    heads = [f"{name(comm, 24)}#{number}" for comm, number in timeline.columns]
    ranks = [f"rank {world}/{rank}" if many else f"rank {rank}" for (world, rank), _ in timeline.rows]
    room = line_width() - 2 - max(map(len, ranks))
    first = len(heads)
    while first and room >= columns(heads[first - 1]) + 3:
        first -= 1
        room -= columns(heads[first]) + 3
    lines = []
    for who, (_, cells) in zip(ranks, timeline.rows, strict=True):
        line = "  " + padded(who, max(map(len, ranks)))
        for head, state in zip(heads[first:], cells[first:], strict=True):
            mark = MARKS.get(state or "", "")
            text = "" if state is None else "-" if state == "missing" else head + mark
            line += "  " + padded(text, columns(head) + 1)
        lines.append(line)
    return lines


def _table(rows: list[Collective]) -> list[str]:
    from divtrace.output.escape import name
    from divtrace.output.layout import columns, padded

    many = len({one.world for one in rows}) > 1
    cells = [("rank", "communicator", "number", "op", "size", "dtype", "state", "source")]
    for one in rows:
        rank = "?" if one.rank is None else f"{one.world}/{one.rank}" if many else str(one.rank)
        size = "x".join(map(str, one.shape)) if one.shape else "" if one.numel is None else str(one.numel)
        place = name(one.file) + ("" if one.line is None else f":{one.line}")
        texts = [name(text) if text else "" for text in (one.comm, one.op, one.dtype, one.state)]
        comm, op, dtype, state = texts
        cells.append((rank, comm, "" if one.comm_seq is None else str(one.comm_seq), op, size, dtype, state, place))
    widths = [max(columns(row[at]) for row in cells) for at in range(len(cells[0]))]
    return ["  " + "  ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def _parquet(rows: list[Collective]) -> bytes:
    import io

    import msgspec
    import polars as pl

    integers, texts = pl.Int64, pl.String
    schema: dict[str, Any] = {
        "source": texts,
        "world": integers,
        "rank": integers,
        "comm": texts,
        "comm_ranks": pl.List(integers),
        "comm_seq": integers,
        "op": texts,
        "numel": integers,
        "shape": pl.List(integers),
        "dtype": texts,
        "state": texts,
        "step": integers,
        "ts": integers,
        "file": texts,
        "line": integers,
        "text": texts,
    }
    frame = pl.DataFrame([msgspec.structs.asdict(one) for one in rows], schema=schema, orient="row", strict=False)
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()
