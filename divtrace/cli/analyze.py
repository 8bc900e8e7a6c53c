"""`divtrace analyze`: the whole answer for one input."""

from __future__ import annotations

from divtrace.cli._console import console_for
from divtrace.cli._options import Analysis, Paths, Reporting, Terminal, spelled_out
from divtrace.cli._reporting import deliver, exit_status, targets
from divtrace.exitcodes import ExitCode


@spelled_out
def command(*, paths: Paths, analysis: Analysis, reporting: Reporting, terminal: Terminal) -> ExitCode:
    """Name the first place where ranks that had to agree did not, and show where it led.

    Reads the traces of all ranks, compares what must be equal, and reports the first control, logical-layout or shape
    divergence with every rank's value, the chain of its consequences, and what was not compared. Without a divergence
    it says what the records do support, and what is missing.
    """
    wanted = targets(reporting)
    from divtrace.api import analyze

    console = console_for(terminal)
    with console.progress_bar(paths) as progress:
        report = analyze(paths, analysis.options(), progress=progress)
    deliver(report, wanted, terminal, console)
    return exit_status(report)
