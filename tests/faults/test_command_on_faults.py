"""The command says the same as the library, and its exit status says whether there was a divergence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from simulator import Run, simulate, write_run
from simulator.scenarios import scenario

from divtrace import analyze
from divtrace.report.model import encode
from faults import KINDS
from faults.checking import inject
from faults.test_halted_ranks import halt

BY_NAME = {kind.name: kind for kind in KINDS}


def divtrace(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "divtrace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


def runs() -> dict[str, tuple[Run, int]]:
    return {
        "clean": (simulate(scenario("tp2-dp2")), 0),
        "divergence": (inject(BY_NAME["near-tie"], ("tp4", "eagle")).run, 1),
        "broken invariant": (inject(BY_NAME["kv-alias"], ("one", "eagle")).run, 1),
        "rank_silent": (halt(scenario("tp4"), {2}, "verify"), 3),
        "rank_failed": (halt(scenario("tp4"), {2}, "verify", error="out of memory"), 3),
        "uniform_stall": (halt(scenario("tp2"), {0, 1}, "verify", "launch"), 3),
        "insufficient": (simulate(scenario("one")), 3),
    }


@pytest.mark.parametrize("name", runs())
def test_report_and_exit_status(name: str, tmp_path: Path) -> None:
    run, status = runs()[name]
    folder = write_run(run, tmp_path / "trace")
    result = divtrace("analyze", folder, "--format", "json")

    assert result.returncode == status, result.stderr.decode()
    assert result.stdout == encode(analyze([folder]))


def test_folder_without_a_trace_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")

    assert divtrace("analyze", tmp_path).returncode == 2


def test_two_runs_in_one_folder_are_refused_by_name(tmp_path: Path) -> None:
    write_run(simulate(scenario("one", run="night-1")), tmp_path / "a")
    write_run(simulate(scenario("one", run="night-2")), tmp_path / "b")
    result = divtrace("analyze", tmp_path)

    assert result.returncode == 2
    assert b"night-1" in result.stderr
    assert b"night-2" in result.stderr
