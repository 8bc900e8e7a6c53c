"""Whose records a file holds: rank, world and run from the record, else the meta, else the file's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trace_files import Line, event, meta, only, places, seqs, write

from divtrace.errors import NoTraceError, RunsError
from divtrace.trace.load import load
from divtrace.trace.model import Damage, RankId


def ranks(folder: Path, run: str | None = None) -> dict[RankId, list[int | None]]:
    return {rank: seqs(trace) for rank, trace in load([folder], run=run).ranks.items()}


@pytest.mark.parametrize(
    ("name", "lines", "rank"),
    [
        ("rank3.jsonl", [event(0)], (0, 3)),
        ("node-Rank12-part.jsonl", [event(0)], (0, 12)),
        ("tp_rank_5.jsonl", [event(0)], (0, 5)),
        ("rank3.jsonl", [meta(rank=4), event(0)], (0, 4)),
        ("rank3.jsonl", [meta(rank=4), event(0, rank=5)], (0, 5)),
        ("rank3.jsonl", [meta(), event(0)], (0, 3)),
        ("rank3.jsonl", [meta(world=1), event(0)], (1, 3)),
        ("rank3.jsonl", [meta(world=1, rank=4), event(0, world=2)], (2, 4)),
        ("a.jsonl", [event(0), meta(rank=4)], (0, 4)),
        ("a.jsonl", [meta(world=2, rank=4), meta(dropped=1), event(0)], (2, 4)),
    ],
)
def test_record_before_meta_before_name(tmp_path: Path, name: str, lines: list[Line], rank: RankId) -> None:
    write(tmp_path, f"rank9/{name}", *lines)

    traces = load([tmp_path])

    assert list(traces.ranks) == [rank]
    assert traces.damage == []


def test_records_without_any_rank_are_named(tmp_path: Path) -> None:
    write(tmp_path, "rank9/a.jsonl", event(0), event(1, rank=2), event(2))
    write(tmp_path, "rank0-and-rank1.jsonl", event(0))

    traces = load([tmp_path])

    assert {rank: seqs(trace) for rank, trace in traces.ranks.items()} == {(0, 2): [1]}
    lacking = "no rank: neither they, nor a meta record, nor the file name gives one"
    assert traces.damage == [
        Damage("rank0-and-rank1.jsonl", 1, f"1 records have {lacking}"),
        Damage("rank9/a.jsonl", 1, f"2 records have {lacking}"),
    ]
    assert traces.bad_lines == 0


def test_a_file_of_several_ranks(tmp_path: Path) -> None:
    write(tmp_path, "all.jsonl", event(0, rank=1), event(0, rank=0), event(1, rank=1), event(0, rank=0, world=1))

    assert ranks(tmp_path) == {(0, 0): [0], (0, 1): [0, 1], (1, 0): [0]}


def test_files_pasted_together(tmp_path: Path) -> None:
    write(
        tmp_path,
        "all.jsonl",
        meta(rank=0, world=3),
        event(0),
        event(1),
        meta(rank=1),
        event(0),
        meta(dropped=7),
        event(1),
    )

    traces = load([tmp_path])

    assert {rank: seqs(trace) for rank, trace in traces.ranks.items()} == {(0, 1): [0, 1], (3, 0): [0, 1]}
    assert {rank: trace.dropped for rank, trace in traces.ranks.items()} == {(0, 1): 7, (3, 0): 0}


def test_metas_reach_the_ranks_they_speak_of(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", meta(rank=0, host="a"), event(0))
    write(tmp_path, "rank0-late.jsonl", event(1))
    write(tmp_path, "metas.jsonl", meta(rank=0, host="late"), meta(rank=8, host="nobody"))
    write(tmp_path, "both.jsonl", meta(device="npu"), event(0, rank=1), event(0, rank=2))

    traces = load([tmp_path])

    hosts = {rank: [one.host for one in trace.metas] for rank, trace in traces.ranks.items()}
    assert hosts == {(0, 0): ["a", "late"], (0, 1): [None], (0, 2): [None]}
    assert {trace.meta.device for rank, trace in traces.ranks.items() if rank != (0, 0)} == {"npu"}
    assert [(one.rank, one.host, one.device) for one in traces.shared_metas] == [
        (None, None, "npu"),
        (8, "nobody", None),
    ]
    assert [one.file for one in traces.damage] == ["metas.jsonl"]


def test_later_metas_of_a_rank(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rank0.001.jsonl",
        meta(rank=0, run="r", host="b", pid=2, algorithm="EAGLE", dropped=2),
        event(2),
        meta(rank=0, dropped=5),
    )
    write(tmp_path, "rank0.000.jsonl", meta(rank=0, host="a", pid=1, algorithm="NEXTN", dropped=0), event(0), event(1))

    traces = load([tmp_path])

    trace = only(traces)
    assert [(one.pid, one.dropped) for one in trace.metas] == [(1, 0), (2, 2), (None, 5)]
    assert trace.dropped == 5
    assert (trace.meta.algorithm, trace.meta.run, trace.meta.host, trace.meta.dropped) == ("NEXTN", "r", "a", 5)
    assert traces.notes == ["rank 0: a later meta record has another `algorithm`; the first one holds"]


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        ("format", "divtrace.trace/1", "divtrace.trace/2"),
        ("engine", {"name": "sglang", "version": "1"}, {"name": "sglang", "version": "2"}),
        ("algorithm", "EAGLE", "NEXTN"),
        ("device", "cuda", "npu"),
        ("backend", "nccl", "gloo"),
        ("parallel", {"tp_size": 2}, {"tp_size": 4}),
        ("groups", {"attn_tp": [[0, 1]]}, {"attn_tp": [[0], [1]]}),
        ("sync", "all", ["draft"]),
    ],
)
def test_a_shared_key_that_changes_is_noted(tmp_path: Path, key: str, first: Any, second: Any) -> None:
    write(tmp_path, "rank0.jsonl", meta() | {key: first}, event(0), meta() | {key: second}, event(1), meta())

    assert f"rank 0: a later meta record has another `{key}`; the first one holds" in load([tmp_path]).notes


def test_a_key_that_is_left_out_later_is_not_another(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", meta(rank=0, sync="all"), event(0), {"kind": "meta", "dropped": 0})

    assert load([tmp_path]).notes == []


def test_another_format_is_read_with_a_note(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", {"kind": "meta", "format": "divtrace.trace/9"}, event(0))

    assert load([tmp_path]).notes == [
        "a meta record names the format 'divtrace.trace/9'; it was read as divtrace.trace/1"
    ]


def test_notes_name_the_world_where_there_are_several(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", meta(world=1, device="npu"), event(0), meta(world=1, device="cuda"))
    write(tmp_path, "w0-rank0.jsonl", event(0))

    assert load([tmp_path]).notes == ["rank 1/0: a later meta record has another `device`; the first one holds"]


def test_several_runs_are_refused_and_named(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", meta(run="night-2"), event(0))
    write(tmp_path, "rank1.jsonl", event(0), meta(run="night-1"))

    with pytest.raises(RunsError, match="the input mixes 2 runs: night-1, night-2") as raised:
        load([tmp_path])
    assert "--run" in (raised.value.hint or "")


def test_run_picks_the_files_of_one_run(tmp_path: Path) -> None:
    write(tmp_path, "old/rank0.jsonl", meta(run="old"), event(0), b"garbage")
    write(tmp_path, "old/rank1.jsonl", meta(run="old"), event(0, later=1))
    write(tmp_path, "new/rank0.jsonl", meta(run="new"), event(7))
    write(tmp_path, "any/rank1.jsonl", meta(), event(8))

    traces = load([tmp_path], run="new")

    assert {rank: seqs(trace) for rank, trace in traces.ranks.items()} == {(0, 0): [7], (0, 1): [8]}
    assert traces.files == ("any/rank1.jsonl", "new/rank0.jsonl")
    assert (traces.damage, traces.bad_lines, traces.unknown_fields) == ([], 0, {})
    assert traces.notes == ["2 files of other runs left out"]
    assert traces.runs == ("new", "old")


def test_run_picks_inside_a_file_too(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", meta(run="old"), event(0), meta(run="new"), event(1), meta(dropped=3), event(2))

    trace = only(load([tmp_path], run="new"))

    assert (seqs(trace), [one.run for one in trace.metas], trace.dropped) == ([1, 2], ["new", None], 3)


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", meta(run="night-1"), event(0))

    with pytest.raises(RunsError, match="no file is of run night-9; the runs are: night-1"):
        load([tmp_path], run="night-9")


def test_files_that_name_no_run_belong_to_any(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0))

    assert ranks(tmp_path, run="whatever") == {(0, 0): [0]}


def test_only_metas_are_no_trace(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", meta(rank=0))

    with pytest.raises(NoTraceError, match="no usable record"):
        load([tmp_path])


def test_records_know_their_place(tmp_path: Path) -> None:
    write(tmp_path, "node/rank0.jsonl", meta(rank=0), event(1), event(0))

    trace = only(load([tmp_path]))

    assert places(trace) == [("node/rank0.jsonl", 3), ("node/rank0.jsonl", 2)]
    assert [(record.pos, record.is_row) for record in trace.records] == [(0, False), (1, False)]
    assert trace.files == ("node/rank0.jsonl",)
