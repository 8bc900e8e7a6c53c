"""Running the real command in a process of its own, as a shell would."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

FOREIGN = {"COLUMNS", "NO_COLOR", "FORCE_COLOR", "GITHUB_STEP_SUMMARY", "PYTHONWARNINGS"}


def is_foreign(variable: str) -> bool:
    """Whether an environment variable of the tests' caller would change what a command does."""
    return variable in FOREIGN or variable.startswith("DIVTRACE_")


@dataclass(frozen=True, slots=True)
class Result:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


class Call(Protocol):
    """Runs a command with these arguments and environment variables, and without any input."""

    def __call__(self, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> Result: ...


def environment(**variables: str) -> dict[str, str]:
    """The environment of this process, without what would change the command's behaviour, and with `variables`."""
    kept = {name: value for name, value in os.environ.items() if not is_foreign(name)}
    return {**kept, "COLUMNS": "80", **variables}


def divtrace(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Result:
    """Run `python -m divtrace` as a process of its own, for what only that can show."""
    return _run([sys.executable, "-W", "error", "-m", "divtrace", *map(str, arguments)], cwd, variables)


def python(code: str, *arguments: str | Path, **variables: str) -> Result:
    """Run a piece of Python, for what a command line alone cannot arrange."""
    return _run([sys.executable, "-c", code, *map(str, arguments)], None, variables)


def _run(command: list[str], cwd: Path | None, variables: dict[str, str]) -> Result:
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        env=environment(**variables),
        timeout=60,
        check=False,
    )
    return Result(run.returncode, run.stdout, run.stderr)
