"""When something goes wrong outside the traces: a crash, an interrupt, a reader that leaves, a disk that is full."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import divtrace.api
from cli import traces
from cli.command import Call, Result, environment, python

Broken = Callable[..., Result]


@pytest.fixture
def broken(call: Call, monkeypatch: pytest.MonkeyPatch) -> Broken:
    """`broken("RuntimeError('x')")`: a command in whose core this exception is raised."""

    def run(error: str, *arguments: str, **variables: str) -> Result:
        def fail(*_arguments: object, **_more: object) -> None:
            raise eval(error)

        monkeypatch.setattr(divtrace.api, "analyze", fail)
        return call("analyze", "x", *arguments, cwd=None, **variables)

    return run


def test_a_fault_of_ours_exits_101_with_one_line_and_a_hint(broken: Broken) -> None:
    run = broken(r"RuntimeError('lost\x1b[31m')")

    assert (run.returncode, run.stdout) == (101, "")
    error, hint = run.stderr.splitlines()
    assert error.startswith("divtrace: error: internal error: RuntimeError: lost")
    assert "\x1b" not in run.stderr
    assert "-vv" in hint


def test_a_real_process_exits_101_too(tmp_path: Path) -> None:
    code = """
import sys
import divtrace.api
from divtrace.cli import main
divtrace.api.analyze = None
sys.exit(main(sys.argv[1:]))
"""
    run = python(code, "analyze", tmp_path)

    assert (run.returncode, run.stdout) == (101, "")
    assert len(run.stderr.splitlines()) == 2


@pytest.mark.parametrize("arguments", [("-vv",), ("-v", "-v"), ("--verbose", "--verbose")])
def test_the_traceback_comes_with_vv(broken: Broken, arguments: tuple[str, ...]) -> None:
    run = broken("RuntimeError('deep inside')", *arguments)

    assert run.returncode == 101
    assert run.stderr.startswith("Traceback (most recent call last):\n")
    assert "in fail" in run.stderr


def test_the_traceback_comes_with_the_variable_too(broken: Broken) -> None:
    assert "Traceback" in broken("RuntimeError()", DIVTRACE_VERBOSE="2").stderr
    assert "Traceback" not in broken("RuntimeError()", DIVTRACE_VERBOSE="1").stderr


@pytest.mark.parametrize(
    "error", ["MemoryError()", "RecursionError()", "AssertionError()", "OSError(5, 'Input/output error')"]
)
def test_no_exception_of_any_kind_looks_like_a_divergence(broken: Broken, error: str) -> None:
    assert broken(error).returncode == 101


def test_an_interrupt_exits_130(broken: Broken) -> None:
    run = broken("KeyboardInterrupt()")

    assert (run.returncode, run.stdout, run.stderr) == (130, "", "divtrace: error: interrupted\n")


def left_alone(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and standard error of a command whose standard output nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        run = subprocess.run(
            [sys.executable, "-m", "divtrace", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=closed,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
            check=False,
        )
    return run.returncode, run.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("explain",), ("schema", "report")])
def test_a_reader_that_leaves_is_no_error_to_talk_about(arguments: tuple[str, ...]) -> None:
    assert left_alone(*arguments) == (141, "")


def test_a_reader_that_leaves_does_not_look_like_a_divergence(tmp_path: Path) -> None:
    assert left_alone("analyze", traces.clean(tmp_path)) == (141, "")


def test_files_are_written_even_if_the_reader_of_standard_output_leaves(tmp_path: Path) -> None:
    folder = traces.clean(tmp_path / "traces")

    left_alone("analyze", folder, "--report", f"json={tmp_path / 'report.json'}")

    assert (tmp_path / "report.json").read_text(encoding="utf-8").startswith("{")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("explain",), ("--version",)])
def test_a_full_disk_is_an_error_of_use(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [sys.executable, "-m", "divtrace", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
            check=False,
        )

    assert run.returncode == 2
    assert run.stderr == "divtrace: error: cannot write to standard output: No space left on device\n"


def test_closed_standard_output_is_an_error_of_use() -> None:
    run = subprocess.run(
        ["sh", "-c", '"$0" -m divtrace explain >&-', sys.executable],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment(),
        check=False,
    )

    assert run.returncode == 2
    assert run.stderr.startswith("divtrace: error: standard output is closed\n")


ERASE_LINE = "\x1b[2K"

WATCHED = """
import sys
import divtrace.cli._progress
from divtrace.cli import main

divtrace.cli._progress.PATIENCE = 0
sys.exit(main(sys.argv[1:]))
"""


def watched(*arguments: str | Path) -> tuple[str, str]:
    """Standard output and standard error, the latter a terminal, of a command that shows progress at once."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "wb") as terminal:
        run = subprocess.run(
            [sys.executable, "-c", WATCHED, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            encoding="utf-8",
            env=environment(TERM="xterm"),
            check=False,
        )
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux says EIO where the other side is closed and all is read.
            break
        if not part:
            break
        seen += part
    os.close(master)
    return run.stdout, seen.decode()


def test_progress_is_shown_on_a_terminal_and_leaves_the_report_alone(call: Call, tmp_path: Path) -> None:
    folder = traces.clean(tmp_path)

    report, seen = watched("analyze", folder)

    assert "reading" in seen
    assert seen.endswith(ERASE_LINE)
    assert report == call("analyze", folder).stdout


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    run = python(WATCHED, "analyze", traces.clean(tmp_path), TERM="xterm", FORCE_COLOR="1")

    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("option", ["--no-progress", "--quiet", "-q"])
def test_progress_can_be_switched_off(tmp_path: Path, option: str) -> None:
    assert watched("analyze", traces.clean(tmp_path), option)[1] == ""
