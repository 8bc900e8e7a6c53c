"""From a report to the places where it was asked for, and to an exit status."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from divtrace.cli._console import wants_color
from divtrace.cli._files import STDOUT, check_writable, encoded, write_answer
from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode
from divtrace.timing import stage

if TYPE_CHECKING:
    from divtrace.cli._console import Console
    from divtrace.cli._options import Reporting, Terminal
    from divtrace.report.model import Report

NARROWEST = 40
WIDTH_OF_FILES = 80


@dataclass(frozen=True, slots=True)
class Target:
    """One format and the file it goes to; `-` is standard output."""

    format: str
    file: str


def targets(reporting: Reporting) -> tuple[Target, ...]:
    """What has to be written where, checked before the work begins.

    Raises:
        UsageError: an unknown format, one file asked for twice, or a file that cannot be written.
    """
    wanted = [_target(text) for text in reporting.report or ()]
    if reporting.output is not None or all(target.file != STDOUT for target in wanted):
        wanted.insert(0, Target(reporting.format, reporting.output or STDOUT))
    _check_formats(target.format for target in wanted)
    seen: set[str] = set()
    for target in wanted:
        if target.file in seen:
            where = "standard output" if target.file == STDOUT else target.file
            raise UsageError(f"two reports for {where}", hint="give each --report and -o a file of its own")
        seen.add(target.file)
        check_writable(target.file)
    return tuple(wanted)


def deliver(report: Report, wanted: Sequence[Target], terminal: Terminal, console: Console) -> None:
    """Render the report in each format, and write the files before standard output, which may be closed early."""
    if report.coverage.damage and Target("text", STDOUT) not in wanted:
        first = report.coverage.damage[0]
        place = first.file if first.line is None else f"{first.file}:{first.line}"
        bad = report.coverage.bad_lines
        console.warn(f"{place}: {first.what}" + (f"; {bad:,} bad lines in all" if bad > 1 else ""))
    with stage("render"):
        rendered = [(target.file, render(report, target, terminal)) for target in wanted]
    for file, content in sorted(rendered, key=lambda pair: pair[0] == STDOUT):
        write_answer(file, content)
        if file != STDOUT:
            console.note(f"wrote {file}")


def render(report: Report, target: Target, terminal: Terminal) -> str | bytes:
    """The report in the format of this target: text for people, who may use any encoding, and bytes for programs."""
    from divtrace.output import OUTPUTS, OutputOptions

    to_stdout = target.file == STDOUT
    options = OutputOptions(
        width=max(NARROWEST, shutil.get_terminal_size().columns) if to_stdout else WIDTH_OF_FILES,
        color=wants_color(terminal.color, sys.stdout if to_stdout else None),
        verbose=terminal.verbose > 0,
    )
    content = OUTPUTS[target.format].render(report, options)
    return content if target.format == "text" else encoded(content)


def _target(text: str) -> Target:
    """`FORMAT=FILE` taken apart; raises UsageError if it is not of that form."""
    form, equals, file = text.partition("=")
    if not equals or not form or not file:
        raise UsageError(f"--report {text!r} is not FORMAT=FILE", hint="for instance: --report json=divtrace.json")
    return Target(form, file)


def _check_formats(formats: Iterable[str]) -> None:
    from divtrace.output import OUTPUTS

    for form in formats:
        if form not in OUTPUTS:
            raise UsageError(f"there is no format {form!r}", hint="formats are " + ", ".join(OUTPUTS))


def exit_status(report: Report) -> ExitCode:
    """The exit status that a verdict stands for."""
    if report.verdict == "divergence":
        return ExitCode.DIVERGENCE
    return ExitCode.CLEAN if report.verdict == "clean" else ExitCode.NOT_CLEAN
