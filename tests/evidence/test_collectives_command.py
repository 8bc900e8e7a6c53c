"""`divtrace collectives`: one table from all sources."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from cli.command import divtrace

from evidence.jobs import LEFT, WORLD, Op, four_ranks
from evidence.runs import steps, write_traces
from evidence.test_log_analysis import watchdog

CROSSED = {"r0": [Op(LEFT, done=False)], **{f"r{rank}": [Op(WORLD, done=False)] for rank in (1, 2, 3)}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Traces of two ranks, dumps of four, and a log."""
    four_ranks(**CROSSED).write(tmp_path / "run")
    (tmp_path / "run" / "server.log").write_text(watchdog(0, 0, 7, 7, "9(other)"))
    return write_traces(tmp_path / "run", {0: steps(3, last="enqueued"), 1: steps(2)})


def test_json_holds_every_operation_of_every_source(folder: Path) -> None:
    found = json.loads(divtrace("collectives", folder, "--format", "json").stdout)
    assert found["schema"] == "divtrace.collectives/1"
    sources = [one["source"] for one in found["operations"]]
    assert {source: sources.count(source) for source in sources} == {"trace": 5, "flight-recorder": 40, "log": 1}


def test_filters(folder: Path) -> None:
    command = ("collectives", folder, "--format", "json", "--comm", LEFT, "--rank", "0-1", "--number", "6,7")
    found = json.loads(divtrace(*command).stdout)["operations"]
    assert [(one["rank"], one["comm_seq"], one["state"]) for one in found] == [
        (0, 6, "completed"),
        (0, 7, "enqueued"),
        (1, 6, "completed"),
    ]


def test_parquet_has_the_same_rows(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    assert divtrace("collectives", folder, "--format", "parquet", "-o", target).returncode == 0
    frame = pl.read_parquet(target)
    listed = json.loads(divtrace("collectives", folder, "--format", "json").stdout)["operations"]
    assert frame.to_dicts() == listed


def test_the_timeline_puts_one_operation_in_one_column(folder: Path) -> None:
    lines = divtrace("collectives", folder, "--comm", LEFT, "--comm", WORLD).stdout.splitlines()
    ranks = [line for line in lines if line.startswith("  rank ") and "#" in line]
    assert len(ranks) == 4
    assert "default_pg#4*" in ranks[1]
    column = ranks[1].index("default_pg#4*")
    assert ranks[0][column] == "-"
    assert ranks[2].index("default_pg#4*") == ranks[3].index("default_pg#4*") == column


@pytest.mark.parametrize("arguments", [("--rank", "x"), ("--number", "3-"), ("--format", "markdown"), ("--number", "")])
def test_wrong_usage(folder: Path, arguments: tuple[str, str]) -> None:
    result = divtrace("collectives", folder, *arguments)
    assert (result.returncode, result.stdout) == (2, "")


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing\n")
    assert divtrace("collectives", tmp_path).returncode == 2


def test_gloo_does_not_tell_whether_the_last_operation_was_given_up(tmp_path: Path) -> None:
    job = four_ranks(r0=[Op(LEFT)])
    job.backend = "gloo"
    result = divtrace("collectives", job.write(tmp_path), "--format", "json", "--rank", "0")
    states = [row["state"] for row in json.loads(result.stdout)["operations"]]
    assert states == ["completed"] * (len(states) - 1) + ["retired"]
