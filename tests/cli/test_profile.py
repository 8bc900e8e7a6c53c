"""`--profile`: where time and memory went, on standard error and beside the answer, never in it."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cli import traces
from cli.command import Call
from divtrace.cli._options import Reading
from divtrace.cli._profile import profile_lines
from divtrace.timing import Clock, Cost, collecting, stage

SECOND = 10**9


def rows(table: str) -> dict[str, list[str]]:
    """The cells of every line but the head, by stage; columns stand at least two spaces apart."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    assert lines[0] == ["stage", "wall s", "CPU s", "events", "events/s", "peak MiB"]
    return {cells[0]: cells[1:] for cells in lines[1:]}


def test_the_stages_of_an_analysis_are_told_beside_the_same_report(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path)

    plain = call("analyze", folder)
    profiled = call("analyze", folder, "--profile")

    assert (profiled.returncode, profiled.stdout) == (plain.returncode, plain.stdout)
    assert plain.stderr == ""
    assert list(rows(profiled.stderr)) == ["discover", "load", "walk", "report", "render", "other", "all"]
    assert rows(profiled.stderr)["load"][2] == "20"  # 2 ranks of 3 rounds of 3 events, and an end each


def test_a_large_input_tells_each_replica(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Reading.options
    monkeypatch.setattr(Reading, "options", lambda reading: dataclasses.replace(options(reading), sieve_from=0))
    folder = traces.write(tmp_path, [traces.events(rank) for rank in range(4)])

    told = rows(call("analyze", folder, "--profile", "--tp", "4", "--dp", "2", "--dp-attention").stderr)

    assert list(told)[:6] == ["discover", "survey", "sieve", "replica 0", "replica 1", "load"]
    assert told["replica 0"][2] == told["replica 1"][2] == "20"
    assert told["sieve"][2] == told["all"][2] == "40"


@pytest.mark.parametrize("command", ["analyze", "check", "validate"])
def test_every_command_that_reads_takes_it(call: Call, tmp_path: Path, command: str) -> None:
    assert "load" in rows(call(command, traces.clean(tmp_path), "--profile", "-q").stderr)


def test_it_can_come_from_the_environment(call: Call, tmp_path: Path) -> None:
    assert "load" in rows(call("analyze", traces.clean(tmp_path), DIVTRACE_PROFILE="1").stderr)


def test_a_command_that_fails_still_tells_how_far_it_came(call: Call, tmp_path: Path) -> None:
    run = call("analyze", tmp_path / "none", "--profile")

    assert run.returncode == 2
    table, _, error = run.stderr.partition("divtrace: error: ")
    assert list(rows(table)) == ["discover", "other", "all"]
    assert "No such file" in error


def test_nothing_is_collected_where_nobody_asks() -> None:
    with stage("before"):
        pass
    with collecting() as profile, stage("inside"):
        pass
    with stage("after"):
        pass

    assert list(profile.stages) == ["inside"]


def test_runs_of_one_stage_add_up_even_if_one_fails() -> None:
    with collecting() as profile:
        with stage("load") as loading:
            loading.events = 3
        with suppress(KeyError), stage("load") as loading:
            loading.events = 4
            raise KeyError

    assert profile.stages["load"].cost.events == 7


def test_time_of_other_processes_counts_for_the_stage_and_for_all() -> None:
    with collecting() as profile, stage("sieve") as sieving:
        sieving.part("replica 0", Cost(wall=SECOND, cpu=70 * SECOND, events=5, peak=900 << 20, process=-1))
        sieving.part("replica 1", Clock().cost(events=6))

    told = rows("\n".join(profile_lines(profile)))

    assert told["replica 0"] == ["1.00", "70.00", "5", "5", "900"]
    assert float(told["sieve"][1]) == pytest.approx(70, abs=5)
    assert float(told["all"][1]) == pytest.approx(70, abs=5)
    assert told["sieve"][2] == told["all"][2] == "11"
    assert told["all"][-1] == "900"


HOLDS_MORE = """
from divtrace.timing import peak_memory
before = peak_memory()
held = bytearray(b"x") * (64 << 20)
print(before, peak_memory(), len(held))
"""


def test_the_peak_follows_what_the_process_holds() -> None:
    """In a process of its own: whatever this one held before would hide it."""
    done = subprocess.run([sys.executable, "-c", HOLDS_MORE], capture_output=True, text=True, check=True)
    before, after, held = map(int, done.stdout.split())

    assert 0 < before < after
    assert after >= held
