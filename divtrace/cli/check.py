"""`divtrace check`: the same answer for a pipeline, which chooses what fails it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, get_args

from divtrace.cli._console import Console, console_for
from divtrace.cli._files import append_file
from divtrace.cli._options import Analysis, Paths, Reporting, Terminal, option, spelled_out
from divtrace.cli._reporting import Target, deliver, exit_status, render, targets
from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from divtrace.report.model import Report

FailOn = Annotated[
    list[str] | None,
    option(
        "--fail-on",
        help="Classes and verdicts that fail the job: control, logical-layout, shape, divergence, rank_failed, "
        "rank_silent, uniform_stall, insufficient; all (default) or none. Separate by commas, or repeat.",
        metavar="LIST",
    ),
]


@spelled_out
def command(
    *, paths: Paths, fail_on: FailOn = None, analysis: Analysis, reporting: Reporting, terminal: Terminal
) -> ExitCode:
    """Analyze in CI: exit by class and verdict, and add to the job's summary.

    Reads and reports like analyze. An outcome that --fail-on lists exits as below, any other exits 0 and is reported
    all the same. The markdown report is appended to the file that GITHUB_STEP_SUMMARY names, whenever that is set.
    """
    listed = _outcomes(fail_on or ["all"])
    wanted = targets(reporting)
    from divtrace.api import analyze

    console = console_for(terminal)
    with console.progress_bar(paths) as progress:
        report = analyze(paths, analysis.options(), progress=progress)
    _add_to_summary(report, terminal, console)
    deliver(report, wanted, terminal, console)
    return exit_status(report) if _fails(report, listed) else ExitCode.CLEAN


def _outcomes(values: list[str]) -> frozenset[str]:
    """The classes and verdicts that were listed; raises UsageError for a word that is neither."""
    from divtrace.report.model import VERDICTS, RuleClass

    known = {*get_args(RuleClass), *VERDICTS}
    words = [word.strip() for value in values for word in value.split(",")]
    unknown = [word for word in words if word not in {*known, "all", "none"}]
    if unknown:
        raise UsageError(
            f"--fail-on does not know {unknown[0]!r}", hint="it takes all, none, " + ", ".join(sorted(known))
        )
    if "none" in words:
        if len(words) > 1:
            raise UsageError("--fail-on none stands alone", hint="leave out none, or everything else")
        return frozenset()
    return frozenset(known if "all" in words else words)


def _fails(report: Report, listed: frozenset[str]) -> bool:
    return report.verdict in listed or (report.first is not None and report.first.rule_class in listed)


def _add_to_summary(report: Report, terminal: Terminal, console: Console) -> None:
    """Append the markdown to the job's summary; a summary that takes nothing must not cost the report."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            append_file(summary, render(report, Target("markdown", summary), terminal))
        except UsageError as error:
            console.warn(str(error))
