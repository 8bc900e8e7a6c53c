"""The command line: it reads arguments, calls the core, writes what came back, and says what went wrong.

Nothing heavy is imported here: `--version` is answered before typer is loaded, and each command is loaded when it is
called (`divtrace.cli.app`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_TOLD_AT_EXIT = frozenset({"coverage", "divtrace.record.recorder", "multiprocessing.util", "ray"})
"""Modules that have something to do when a process ends."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (`divtrace.exitcodes`); without arguments, those of the process."""
    from divtrace.cli._run import run

    return run(list(sys.argv[1:] if arguments is None else arguments))


def process() -> NoReturn:
    """Run the command of this process, and end it.

    Python takes every module apart at its end, which takes about as long as all of `divtrace --version`. Nothing needs
    that: files are closed where they were written, and the memory goes back to the system anyway.
    """
    status = main()
    if not _has_to_be_told():
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        except (OSError, ValueError):
            sys.exit(status)  # Python says what is wrong with the stream
        os._exit(status)
    sys.exit(status)


def _has_to_be_told() -> bool:
    """Whether something waits for the end of the process: workers, other threads, a debugger, who measures it."""
    import threading

    return (
        not _TOLD_AT_EXIT.isdisjoint(sys.modules)
        or threading.active_count() > 1
        or sys.gettrace() is not None
        or sys.getprofile() is not None
        or bool(sys.flags.inspect)
    )
