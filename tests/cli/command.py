"""Running the real command in a process of its own, as a shell would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TALKATIVE = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "GITHUB_STEP_SUMMARY", "PYTHONWARNINGS")


def environment(**variables: str) -> dict[str, str]:
    """The environment of this process, without what would change the command's behaviour, and with `variables`."""
    kept = {
        name: value for name, value in os.environ.items() if name not in TALKATIVE and not name.startswith("DIVTRACE_")
    }
    return {**kept, "COLUMNS": "80", **variables}


def divtrace(
    *arguments: str | Path, cwd: Path | None = None, timeout: float = 60, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m divtrace` with these arguments and environment variables, its streams captured, without input."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "divtrace", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        env=environment(**variables),
        timeout=timeout,
        check=False,
    )


def python(code: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python, for what a command line alone cannot arrange."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=environment(**variables),
        timeout=60,
        check=False,
    )
