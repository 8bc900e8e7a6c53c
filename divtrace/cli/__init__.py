"""The command line: it reads arguments, calls the core, writes what came back, and says what went wrong.

Nothing heavy is imported here: `--version` is answered before typer is loaded, and each command is loaded when it is
called (`divtrace.cli.app`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (`divtrace.exitcodes`); without arguments, those of the process."""
    from divtrace.cli._run import run

    return run(list(sys.argv[1:] if arguments is None else arguments))
