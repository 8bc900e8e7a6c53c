"""A process ends without being taken apart, unless something waits for its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from divtrace.version import __version__

SCRIPT = """
import atexit, sys
atexit.register(lambda: print("told", file=sys.stderr))
sys.argv[1:] = ["--version"]
{before}
from divtrace.cli import process
process()
"""


def ended(before: str = "pass") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SCRIPT.format(before=before)], capture_output=True, encoding="utf-8")


def test_nothing_is_taken_apart() -> None:
    run = ended()
    assert (run.returncode, run.stdout, run.stderr) == (0, f"divtrace {__version__}\n", "")


@pytest.mark.parametrize(
    "before",
    [
        "import multiprocessing.util",
        "import types; sys.modules['ray'] = types.ModuleType('ray')",
        "import divtrace.record.recorder",
        "import threading, time; threading.Thread(target=time.sleep, args=(0.1,)).start()",
        "sys.setprofile(lambda *_: None)",
        "sys.settrace(lambda *_: None)",
    ],
)
def test_who_waits_for_the_end_is_told(before: str) -> None:
    run = ended(before)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"divtrace {__version__}\n", "told\n")


def test_a_measured_process_shows_its_measurements() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "cProfile", "-m", "divtrace", "--version"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert "function calls" in run.stdout


def test_the_status_and_what_was_buffered_survive(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before="sys.argv[1:] = ['analyze', sys.argv.pop()]"), str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
    )
    assert run.returncode == 2
    assert run.stderr.startswith("divtrace: error: ")
    printed = ended("print('x' * 100_000)").stdout
    assert printed == "x" * 100_000 + f"\ndivtrace {__version__}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_stream_that_takes_nothing_is_not_passed_over() -> None:
    before = "import divtrace.cli; divtrace.cli.main = lambda: print(1) or 0"
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(before=before)], stdout=full, stderr=subprocess.PIPE, encoding="utf-8"
        )
    assert run.returncode != 0
    assert "No space left on device" in run.stderr
