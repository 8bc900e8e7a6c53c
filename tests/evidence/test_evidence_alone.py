"""The report on a folder that holds no trace: what the real command says of dumps and logs."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import zstandard
from cli.command import Result, divtrace

from divtrace import analyze
from divtrace.errors import DamageError, NoTraceError
from divtrace.report.model import Evidence
from divtrace.schema_files import generate_schema
from evidence.jobs import LEFT, RIGHT, WORLD, Op, four_ranks
from evidence.test_log_analysis import TIMEOUT, watchdog

STUCK = {f"r{rank}": [Op(WORLD, done=False)] for rank in (0, 2, 3)}
BEHIND = {"r0": [Op(LEFT, done=False)], "r2": [Op(WORLD, done=False)], "r3": [Op(WORLD, done=False)]}


def report_of(result: Result) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(report, generate_schema("report"))
    return report


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_others_wait_for(tmp_path: Path, form: str) -> None:
    result = divtrace("analyze", four_ranks(**BEHIND).write(tmp_path, form=form), "--format", "json")
    report = report_of(result)
    assert (result.returncode, report["verdict"], report["first"]) == (3, "rank_silent", None)
    assert report["progress"]["behind"] == [1]
    assert {"rank": 0, "waits_for": 1, "comm": LEFT, "comm_seq": 7} in report["progress"]["waits"]
    assert report["evidence"]["operations"] == 4 * 9 + 3
    assert [file["rank"] for file in report["evidence"]["files"]] == [0, 1, 2, 3]
    assert report["evidence"]["windows"]["0"]["last"] == {
        "comm": LEFT,
        "comm_seq": 7,
        "op": "all_reduce",
        "state": "enqueued",
    }
    assert (report["coverage"]["files"], report["coverage"]["ranks"], report["coverage"]["events"]) == (4, 4, 0)


def test_the_text_says_who_waits_and_how_far_dumps_reach(tmp_path: Path) -> None:
    text = divtrace("analyze", four_ranks(**BEHIND).write(tmp_path)).stdout
    assert "RANK SILENT: Rank 1" in text
    assert f"rank 0 waits for rank 1 in {LEFT}" in text or f'rank 0 waits for rank 1 in "{LEFT}"' in text
    assert "4 flight-recorder dumps" in text
    assert "rank 1: last all_gather in default_pg #3, completed" in text
    assert "recorded by no rank" not in text, "dumps hold no decisions, and the note says so"


def test_a_crossed_order_is_a_finding_with_its_cycle(tmp_path: Path) -> None:
    crossed = {"r0": [Op(LEFT, done=False)], **{f"r{rank}": [Op(WORLD, done=False)] for rank in (1, 2, 3)}}
    result = divtrace("analyze", four_ranks(**crossed).write(tmp_path), "--format", "json")
    report = report_of(result)
    assert (result.returncode, report["verdict"]) == (1, "divergence")
    assert report["progress"]["cycle"] == [0, 1]
    first = report["first"]
    assert (first["rule"], first["field"], first["ranks"], first["role"]) == (
        "collective-order",
        "comm",
        [0, 1],
        "origin",
    )
    assert first["values"] == {"0": LEFT, "1": WORLD}
    assert first["where"]["0"] == {"file": "trace_rank_0", "line": 10}
    assert "Rank 0 waits in" in first["attribution"]
    assert [one["id"] for one in report["findings"]] == [first["id"]]


def test_a_mismatch_names_odd_ranks_by_majority_only(tmp_path: Path) -> None:
    other = {f"r{rank}": [Op(WORLD, shape=(9 if rank == 3 else 4, 8), done=False)] for rank in range(4)}
    report = analyze(four_ranks(**other).write(tmp_path / "four"))
    assert report.first is not None
    assert (report.first.rule, report.first.odd_ranks, report.first.comm_seq) == ("collective-shape", (3,), 4)
    assert (report.first.field, report.first.index, report.first.values["3"]) == ("shape", 0, [9, 8])
    two = {f"r{rank}": [Op(RIGHT, shape=(rank, 8), done=False)] for rank in (2, 3)}
    report = analyze(four_ranks(**two).write(tmp_path / "two"))
    assert report.first is not None
    assert (report.first.ranks, report.first.odd_ranks) == ((2, 3), ())


def test_a_rank_without_a_dump_is_not_called_behind(tmp_path: Path) -> None:
    report = analyze(four_ranks(**STUCK).write(tmp_path, only=(0, 2, 3)))
    assert (report.verdict, report.progress.behind) == ("insufficient", ())
    assert [entry.rank for entry in report.coverage.not_compared] == [1]
    assert "rank 1 left no dump" in report.summary
    assert report.next[0].startswith("Rank 1 left no dump")


def test_replicas_come_from_the_groups_that_dumps_name(tmp_path: Path) -> None:
    report = analyze(four_ranks().write(tmp_path))
    assert (report.verdict, report.findings) == ("clean", ())
    assert [replica.ranks for replica in report.replicas] == [(0, 1), (2,), (3,)]


def test_a_timeout_that_nothing_explains_is_not_clean(tmp_path: Path) -> None:
    folder = four_ranks().write(tmp_path)
    (folder / "rank2.err").write_text(f"[rank2]: {TIMEOUT}\n")
    report = analyze(folder)
    assert (report.verdict, [timeout.source for timeout in report.timeouts]) == ("insufficient", ["log"])


def test_neither_trace_nor_evidence_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Rank 1 hung after the timeout. Watchdog said nothing.\n")
    (tmp_path / "weights.bin").write_bytes(b"\0" * 4096)
    result = divtrace("analyze", tmp_path, "--format", "json")
    assert (result.returncode, result.stdout) == (2, "")
    assert "2 other files ignored" in result.stderr


def test_a_cut_dump_costs_itself(tmp_path: Path) -> None:
    four_ranks(**BEHIND).write(tmp_path)
    whole = (tmp_path / "trace_rank_1").read_bytes()
    (tmp_path / "trace_rank_1").write_bytes(whole[:-40])
    report = analyze(tmp_path)
    assert [damage.file for damage in report.coverage.damage] == ["trace_rank_1"]
    assert (report.verdict, report.progress.behind) == ("insufficient", ())
    from divtrace.api import Options

    with pytest.raises(DamageError, match="trace_rank_1"):
        analyze(tmp_path, Options(strict=True))
    for rank in (0, 2, 3):
        (tmp_path / f"trace_rank_{rank}").unlink()
    with pytest.raises(NoTraceError):
        analyze(tmp_path)


def test_files_named_on_the_command_line_are_judged_by_content(tmp_path: Path) -> None:
    four_ranks(**BEHIND).write(tmp_path)
    (tmp_path / "rank1.log").write_text(watchdog(1, 1, 7, 7, f"1({LEFT})"))
    everything = sorted(tmp_path.iterdir())
    named = json.loads(divtrace("analyze", *everything, "--format", "json").stdout)
    assert named == json.loads(divtrace("analyze", tmp_path, "--format", "json").stdout)
    assert named["progress"]["behind"] != [1], "the log says that rank 1 issued it"


def test_own_reports_in_the_folder_change_nothing(tmp_path: Path) -> None:
    folder = four_ranks(**BEHIND).write(tmp_path)
    (folder / "rank0.err").write_text(f"[rank0]: {TIMEOUT}\n")
    names = {"text": "a.txt", "markdown": "b.md", "junit": "c.xml"}
    first = divtrace("analyze", folder, "-f", "json", *(f"--report={f}={folder / n}" for f, n in names.items())).stdout
    (folder / "report.json").write_text(first)
    second = divtrace("analyze", folder, "-f", "json").stdout
    ours, theirs = json.loads(first), json.loads(second)
    assert theirs["coverage"].pop("ignored_files") == ours["coverage"].pop("ignored_files") + 4
    assert theirs == ours


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_in_the_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control")
    assert analyze(four_ranks().write(tmp_path)).coverage.ignored_files == 1


def test_names_and_order_of_files_decide_nothing(tmp_path: Path) -> None:
    job = four_ranks(**BEHIND)
    here = analyze(job.write(tmp_path / "a"))
    there = analyze(job.write(tmp_path / "b", name="z{}_of_host7_rank_{}".replace("{}", "{0}")))
    assert (here.verdict, here.progress, here.timeouts) == (there.verdict, there.progress, there.timeouts)
    assert here.first is None


@pytest.mark.parametrize(
    "name", ["host1-pid7.log", "events.jsonl", "events.jsonl.gz", "events.jsonl.zst", "inspector.zst"]
)
def test_inspector_files_of_any_name(tmp_path: Path, name: str) -> None:
    """Its files are JSON Lines as traces are; what they hold tells them apart, compressed or not."""
    line = (
        '{"header":{"id":"0x7f","rank":3,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0",'
        '"hostname":"h","pid":1},"coll_perf":{"coll":"AllReduce","coll_sn":12,"coll_msg_size_bytes":65536}}\n'
    )
    raw = (line * 3).encode()
    packed = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(Path(name).suffix, bytes)(raw)
    (tmp_path / name).write_bytes(packed)
    report = analyze(tmp_path)
    assert isinstance(report.evidence, Evidence)
    assert [(file.path, file.kind, file.operations) for file in report.evidence.files] == [(name, "inspector", 3)]
