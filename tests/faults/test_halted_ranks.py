"""Ranks that stop, raise or stall: no divergence, and the verdict that the records support."""

from __future__ import annotations

import pytest
from simulator import At, Halt, Run, Scenario, simulate
from simulator.scenarios import scenario

from faults.checking import analyze_run

TOPOLOGIES = ("tp2", "tp3", "tp8", "tp2-cp2", "cp2", "tp2-pp2", "pp2", "tp2-dp2", "tp2-cp2-dp2", "tp2-dp2-pp2")
STEP = 104


def halt(plan: Scenario, ranks: set[int], stage: str, site: str | None = None, error: str | None = None) -> Run:
    """The run in which these ranks end before their first event of this stage in the step."""

    def where(at: At) -> bool:
        return (at.stage, at.step) == (stage, STEP) and site in (None, at.site)

    return simulate(plan, Halt(where, frozenset(ranks), error))


def with_errors_of_the_waiting(run: Run) -> Run:
    """Ranks whose operation timed out raise afterwards, as they do in real runs."""
    run = run.copy()
    for rank in run.stuck:
        last = run.records[rank][-1]
        error = {"error": "the operation timed out", "error_type": "DistBackendError"}
        run.records[rank].append(
            {
                "seq": last["seq"] + 1,
                "ts": last["ts"] + 1000,
                "step": last["step"],
                "stage": "host",
                "site": "error",
                **error,
            }
        )
    return run


def closed(run: Run, rank: int) -> Run:
    run = run.copy()
    last = run.records[rank][-1]
    run.records[rank].append(
        {"seq": last["seq"] + 1, "ts": last["ts"] + 9, "step": last["step"], "stage": "host", "site": "end"}
    )
    return run


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("timeouts", [True, False])
def test_rank_that_stops_is_silent_and_behind(topology: str, timeouts: bool) -> None:
    plan = scenario(topology, timeouts=timeouts)
    victim = plan.topology.ranks[-1]
    run = halt(plan, {victim}, "verify")
    assert run.stuck, "the peers must wait"
    report = analyze_run(run)

    assert (report.verdict, report.first) == ("rank_silent", None)
    assert report.progress.behind == (victim,)
    assert report.progress.cycle == ()
    assert report.precedence == ("not shown" if timeouts else "no timeout known")


@pytest.mark.parametrize("topology", ["tp2", "tp8", "tp2-pp2", "tp2-dp2"])
def test_errors_of_ranks_that_timed_out_are_not_failures(topology: str) -> None:
    victim = 1
    report = analyze_run(with_errors_of_the_waiting(halt(scenario(topology), {victim}, "verify", "layout")))

    assert (report.verdict, report.progress.behind) == ("rank_silent", (victim,))


@pytest.mark.parametrize("topology", ["tp2", "tp4", "tp2-dp2"])
def test_rank_that_closed_its_trace_early_is_silent(topology: str) -> None:
    report = analyze_run(closed(halt(scenario(topology), {1}, "schedule"), 1))

    assert (report.verdict, report.progress.behind) == ("rank_silent", (1,))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_rank_that_raises_before_its_peers_wait_failed(topology: str) -> None:
    plan = scenario(topology)
    victim = plan.topology.ranks[-1]
    report = analyze_run(with_errors_of_the_waiting(halt(plan, {victim}, "verify", error="out of memory")))

    assert (report.verdict, report.first) == ("rank_failed", None)
    assert report.progress.behind == (victim,)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("error", [None, "device lost"])
def test_all_ranks_ending_at_the_same_place_is_a_uniform_stall(topology: str, error: str | None) -> None:
    plan = scenario(topology)
    run = halt(plan, set(plan.topology.ranks), "verify", "launch", error)
    report = analyze_run(run)

    assert (report.verdict, report.first) == ("uniform_stall", None)
    assert report.progress.behind == report.progress.ahead == report.progress.cycle == ()


def test_one_rank_alone_is_no_uniform_stall() -> None:
    report = analyze_run(halt(scenario("one"), {0}, "verify"))

    assert report.verdict == "insufficient"


@pytest.mark.parametrize("topology", ["tp3", "tp8", "tp2-cp2", "tp2-pp2", "tp2-dp2"])
def test_waiting_for_a_rank_without_a_trace_is_insufficient(topology: str) -> None:
    plan = scenario(topology)
    victim = plan.topology.ranks[-1]
    run = halt(plan, {victim}, "verify")
    del run.records[victim]
    report = analyze_run(run)

    assert (report.verdict, report.first) == ("insufficient", None)
    assert report.progress.behind == ()
    assert victim in [each.rank for each in report.coverage.not_compared]
    assert f"rank {victim} left no trace" in report.summary


@pytest.mark.parametrize("topology", ["tp3", "tp8", "tp2-cp2", "tp2-dp2"])
def test_rank_without_a_trace_is_named_and_the_others_are_compared(topology: str) -> None:
    run = simulate(scenario(topology))
    victim = run.ranks[-1]
    del run.records[victim]
    report = analyze_run(run)

    assert report.verdict == "clean"
    assert victim in [each.rank for each in report.coverage.not_compared]


@pytest.mark.parametrize("topology", ["tp2", "cp2", "pp2"])
def test_one_rank_of_two_is_insufficient(topology: str) -> None:
    run = simulate(scenario(topology))
    del run.records[1]
    report = analyze_run(run)

    assert report.verdict == "insufficient"
    assert [each.rank for each in report.coverage.not_compared] == [1]
