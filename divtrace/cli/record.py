"""`divtrace record doctor`: what would be recorded here; the same as `python -m divtrace.record doctor`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from divtrace.cli._options import Terminal, option, spelled_out
from divtrace.exitcodes import ExitCode


class Action(StrEnum):
    """What to do about recording."""

    DOCTOR = "doctor"


@spelled_out
def command(
    _action: Annotated[Action, typer.Argument(metavar="doctor", help="Examine this environment.", show_default=False)],
    *,
    steps_per_second: Annotated[
        float, option("--steps-per-second", help="Forwards a second, to reckon the disk of an hour (default 20).")
    ] = 20.0,
    batch: Annotated[int, option("--batch", help="Requests in a forward (default 16).")] = 16,
    collectives: Annotated[int, option("--collectives", help="Collectives of a step outside graphs (default 0).")] = 0,
    _terminal: Terminal,
) -> ExitCode:
    """Say what would be recorded here: the engine and its version, the hooks, the layers, the files, the disk.

    Run it in the serving environment. Nothing is recorded and no engine is imported. Exits 0 if everything that is
    switched on can be recorded, and 2 if not.
    """
    from divtrace.record.doctor import examine, render

    found = examine(steps_per_second=steps_per_second, batch=batch, collectives=collectives)
    for line in render(found):
        typer.echo(line)
    return ExitCode.USAGE if found.problems else ExitCode.CLEAN
