"""What states, cuts and nulls may change in a report, and what they may not."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from faults import KINDS, Injected
from faults.checking import MODEST, analyze_run, inject
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from simulator import Halt, Run, simulate, write_run
from simulator.scenarios import scenario

from divtrace import analyze
from divtrace.report.model import Report

BY_NAME = {kind.name: kind for kind in KINDS}
WEDGED = {
    "abort-reaches-some-ranks": ("tp2-dp2", "eagle"),
    "graph-tier": ("tp4", "eagle"),
    "plan-boundary": ("tp2", "dspark-unsynced"),
    "stop-string": ("tp2-pp2", "eagle"),
    "crossed-order": ("tp2-dp2", "eagle"),
    "other-size": ("tp3", "eagle"),
}
GOING_ON = {
    "near-tie": ("tp4", "eagle"),
    "own-coins": ("tp2", "eagle-coins"),
    "other-text": ("tp2-dp2", "eagle"),
    "parent-order": ("tp2", "eagle-tree"),
    "forced-accept": ("tp4", "eagle-sampling"),
    "kv-alias": ("tp2", "eagle"),
}


@lru_cache(maxsize=64)
def injected(name: str) -> Injected:
    """The fault; where ranks are to wait for each other in the end, with the first seed with which they do."""
    tries = (inject(BY_NAME[name], (WEDGED | GOING_ON)[name], seed) for seed in range(3, 30))
    return next(one for one in tries if name in GOING_ON or one.run.stuck)


def silent_run() -> Run:
    return simulate(scenario("tp4"), Halt(lambda at: at.stage == "accept" and at.step == 104, frozenset({2})))


@pytest.mark.parametrize("name", [*WEDGED, "silent"])
def test_timeout_taken_for_enqueued_changes_only_precedence_and_timeouts(name: str) -> None:
    run = silent_run() if name == "silent" else injected(name).run
    assert run.stuck
    timed_out = {rank: run.records[rank][-1]["seq"] for rank in run.stuck}

    def without_timeout(rank: int, record: dict[str, Any]) -> dict[str, Any]:
        if timed_out.get(rank) == record["seq"]:
            assert record["state"] == "timeout"
            record["state"] = "enqueued"
        return record

    before = msgspec.to_builtins(analyze_run(run))
    after = msgspec.to_builtins(analyze_run(run.edited(without_timeout)))
    changed = {key for key in before if before[key] != after[key]}

    assert after["precedence"] == "no timeout known"
    assert not after["timeouts"]
    assert changed == {"precedence", "timeouts"}


def cut(run: Run, rank: int, keep: int, damaged: bool) -> Report:
    """The report when the file of one rank ends behind its first `keep` events, perhaps inside a line."""
    with TemporaryDirectory() as folder:
        path = write_run(run, Path(folder)) / f"rank{rank}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        rest = lines[keep + 1][: len(lines[keep + 1]) // 2] if damaged and keep + 1 < len(lines) else b""
        path.write_bytes(b"".join(lines[: keep + 1]) + rest)
        return analyze([folder])


@lru_cache(maxsize=64)
def original(name: str) -> tuple[Any, ...] | None:
    return place(analyze_run(injected(name).run))


def place(report: Report) -> tuple[Any, ...] | None:
    first = report.first
    if first is None:
        return None
    return first.rule, first.req, first.attempt, first.round, first.step, first.stage, first.site, first.phase, first.n


@settings(MODEST, max_examples=25)
@given(name=st.sampled_from([*WEDGED, *GOING_ON]), data=st.data(), damaged=st.booleans())
def test_cut_well_behind_the_origin_changes_nothing_about_it(name: str, data: st.DataObject, damaged: bool) -> None:
    one = injected(name)
    rank = data.draw(st.sampled_from(one.run.ranks), label="rank")
    assert one.expected.step is not None
    behind = [i for i, r in enumerate(one.run.records[rank]) if r.get("step", 0) >= one.expected.step + 3]
    assume(behind)
    report = cut(one.run, rank, data.draw(st.sampled_from(behind), label="keep"), damaged)

    assert report.verdict == "divergence"
    assert place(report) == original(name)


@settings(MODEST, max_examples=30)
@given(name=st.sampled_from([*WEDGED, *GOING_ON]), data=st.data(), damaged=st.booleans())
def test_cut_before_the_origin_is_admitted(name: str, data: st.DataObject, damaged: bool) -> None:
    """No other fault is invented; a report without the origin names the rank, its last event, and the reach."""
    one = injected(name)
    rank = data.draw(st.sampled_from(one.run.ranks), label="rank")
    assert one.expected.step is not None
    before = [i for i, r in enumerate(one.run.records[rank]) if 100 < r.get("step", 0) < one.expected.step]
    assume(before)
    keep = data.draw(st.sampled_from(before), label="keep")
    report = cut(one.run, rank, keep, damaged)

    if report.first is not None and place(report) == original(name):
        return
    assert report.first is None or report.first.step is None or report.first.step >= one.expected.step
    if report.first is None:
        last = one.run.records[rank][keep - 1]
        whys = [each.why for each in report.coverage.not_compared if each.rank == rank]
        assert whys
        assert any(last["stage"] in why for why in whys), (last, whys)
        assert "step" in report.summary


@pytest.mark.parametrize("form", ["jsonl.gz", "jsonl.zst"])
def test_cut_of_a_compressed_file_costs_only_its_end(form: Any) -> None:
    one = injected("near-tie")
    with TemporaryDirectory() as folder:
        path = write_run(one.run, Path(folder), form) / f"rank3.{form}"
        path.write_bytes(path.read_bytes()[:-20])
        report = analyze([folder])

    assert report.coverage.damage
    assert report.coverage.damage[0].file == path.name


@settings(MODEST, max_examples=30)
@given(name=st.sampled_from(list(GOING_ON)), data=st.data())
def test_null_never_makes_a_difference(name: str, data: st.DataObject) -> None:
    """A value set to null on a rank can hide a finding; it never makes one before the origin."""
    one = injected(name)
    rank = data.draw(st.sampled_from(one.run.ranks), label="rank")
    index = data.draw(st.integers(0, len(one.run.records[rank]) - 1), label="event")
    hidden = data.draw(st.sampled_from(["correct_len", "bonus", "verify_len", "finished", "row", "draft_tokens"]))

    def forget(r: int, record: dict[str, Any]) -> dict[str, Any]:
        if r == rank and record["seq"] >= index and hidden in record:
            record[hidden] = None
        return record

    found = analyze_run(one.run.edited(forget)).first
    assert found is None or found.step is None or (one.expected.step is not None and found.step >= one.expected.step)
    assert found is None or found.field != hidden or len({str(v) for v in found.values.values() if v is not None}) > 1
