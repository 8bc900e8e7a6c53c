"""`divtrace convert`: traces of any form as sorted Parquet."""

from __future__ import annotations

from typing import Annotated

import typer

from divtrace.cli._console import console_for
from divtrace.cli._options import RunName, Terminal, spelled_out
from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode

Places = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH... OUT", help="Traces and folders to read, and the folder to write.", show_default=False
    ),
]


@spelled_out
def command(*, places: Places, run: RunName = None, terminal: Terminal) -> ExitCode:
    """Turn traces into sorted Parquet, one file for every rank.

    What was damaged, and the file and line of every record, travel with it: the folder analyses to the same report. One
    request is found in it without reading the rest. Files that are there already are not overwritten.
    """
    if len(places) < 2:
        raise UsageError("there is no folder to write to", hint="name the traces first, and the folder last")
    *paths, out = places
    from divtrace.convert.run import convert
    from divtrace.output.escape import name
    from divtrace.output.quantities import count

    console = console_for(terminal)
    with console.progress_bar(paths) as progress:
        done = convert(paths, out, run=run, progress=progress)
    for one in done.damage:
        place = name(one.file) + ("" if one.line is None else f":{one.line}")
        console.note(f"{place}: {one.what}")
    if done.damage:
        console.warn(f"{count(len(done.damage), 'problem')} in the input, which the converted files tell of")
    files, records = count(len(done.files), "file"), count(done.records, "record")
    typer.echo(f"{files}, {records} in {name(out)}")
    return ExitCode.CLEAN
