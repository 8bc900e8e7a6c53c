"""`divtrace first-divergence`: the answer for one request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from divtrace.cli._console import console_for, wants_color
from divtrace.cli._files import document, is_stdout, write_answer
from divtrace.cli._options import Answer, Paths, Reading, ReplicaNumber, Request, Terminal, option, spelled_out
from divtrace.cli._text import line_width
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from divtrace.report.answers import FirstDivergence, RequestResult

Attempt = Annotated[
    int | None, option("--attempt", help="Only this attempt; attempts count retractions, from 0.", metavar="N", min=0)
]


@spelled_out
def command(
    *,
    paths: Paths,
    req: Request,
    attempt: Attempt = None,
    replica: ReplicaNumber = None,
    reading: Reading,
    answer: Answer,
    terminal: Terminal,
) -> ExitCode:
    """Tell the earliest divergence of one request, and the origin that it follows from.

    That is the earliest finding of the request, or of a batch that holds it on some ranks only, for each replica that
    served it. Exits 0 or 1 by this request alone; an unknown id exits 2 and lists the nearest.
    """
    as_json = answer.as_json()
    from divtrace.api import first_divergence
    from divtrace.output.layout import finished

    console = console_for(terminal)
    with console.progress_bar(paths) as progress:
        found = first_divergence(paths, req, reading.options(), attempt=attempt, replica=replica, progress=progress)
    if as_json:
        write_answer(answer.output, document(found))
    else:
        color = wants_color(terminal.color, sys.stdout if is_stdout(answer.output) else None)
        write_answer(answer.output, finished(_lines(found, verbose=terminal.verbose > 0), color=color))
    return ExitCode.DIVERGENCE if found.diverged else ExitCode.CLEAN


def _lines(found: FirstDivergence, *, verbose: bool) -> list[str]:
    from divtrace.output.escape import name
    from divtrace.output.layout import emphasised

    worlds = len({result.world for result in found.results}) > 1
    lines = []
    for result in found.results:
        where = f"replica {result.replica}" + (f" of world {result.world}" if worlds else "")
        attempt = "" if found.attempt is None else f", attempt {found.attempt}"
        lines += [
            "",
            emphasised(f"Request {name(found.req)}{attempt}, {where}", "strong"),
            *_result(result, verbose=verbose),
        ]
    return lines[1:]


def _result(result: RequestResult, *, verbose: bool) -> list[str]:
    if result.finding is None:
        return ["  no divergence of this request"]
    from divtrace.cli._findings import finding_lines
    from divtrace.output.layout import emphasised

    width = line_width()
    lines = ["  its earliest finding:", "", *finding_lines(result.finding, width, verbose=verbose), ""]
    if result.origin is None or result.origin.id == result.finding.id:
        return [*lines, "  nothing earlier explains it"]
    return [
        *lines,
        emphasised("  It follows from:", "strong"),
        "",
        *finding_lines(result.origin, width, verbose=verbose),
    ]
