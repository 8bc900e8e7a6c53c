"""The simulator against checks of its own: clean runs are clean, and the checks can fail."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator import At, Change, Halt, Run, Scenario, simulate
from simulator.checks import broken_invariants, disagreements, problems
from simulator.faults import NoFault
from simulator.scenarios import busy, every_scenario, scenario

GRID = every_scenario()


@pytest.mark.parametrize("name", GRID)
def test_run_without_fault_is_clean(name: str) -> None:
    run = simulate(GRID[name])

    assert problems(run) == []
    assert all(run.records[rank][-1]["site"] == "end" for rank in run.ranks)


@pytest.mark.parametrize("seed", range(6))
def test_run_is_the_same_every_time(seed: int) -> None:
    plan = busy("tp2-dp2", seed=seed)

    assert simulate(plan).records == simulate(plan).records


def test_grid_contains_what_traces_of_engines_contain() -> None:
    runs = {name: simulate(plan) for name, plan in GRID.items()}
    events = [record for run in runs.values() for _, record in run.events()]

    assert {r["stage"] for r in events} == {
        "init",
        "schedule",
        "prefill",
        "draft",
        "verify",
        "accept",
        "commit",
        "collective",
        "host",
    }
    assert {r.get("decision") for r in events} >= {"admit", "keep", "abort", "retract"}
    assert {r.get("op") for r in events} >= {"all_reduce", "all_gather", "broadcast", "send", "recv"}
    assert {r.get("phase") for r in events} >= {"local", "synced"}
    assert {r.get("forward_mode") for r in events} >= {"extend", "decode", "idle"}
    assert {r.get("attempt") for r in events} >= {1}
    assert any(r.get("draft_tokens") == [] for r in events)
    assert any((r.get("cap_trim_len") or 0) > 0 for r in events)
    assert any(r.get("prefix_hit") for r in events)
    assert any(r["stage"] == "prefill" and r.get("n") for r in events)
    assert any(r.get("finished") == "length" for r in events)


def test_acceptance_varies() -> None:
    lengths = {record["correct_len"] for _, record in simulate(scenario(steps=20)).events() if "correct_len" in record}

    assert lengths == {0, 1, 2, 3}


def test_overlap_writes_the_commit_behind_the_next_schedule_and_runs_one_round_too_many() -> None:
    run = simulate(busy(overlap=True))
    records = run.records[0]
    sites = [(r["step"], r["stage"]) for r in records if r["stage"] in ("schedule", "commit") and r["site"] != "queue"]
    finish = next(r for r in records if r.get("finished") == "length")
    overshoot = [r for r in records if r.get("req") == finish["req"] and r.get("round") == finish["round"] + 1]

    assert any(a[1] == "schedule" and b == (a[0] - 1, "commit") for a, b in pairwise(sites))
    assert overshoot
    assert not [r for r in overshoot if r["stage"] == "commit"]


def test_physical_slots_differ_between_ranks_and_context_peers_own_other_positions() -> None:
    run = simulate(scenario("tp2-cp2"))
    layouts = [run.find(rank, stage="verify", site="layout")[0] for rank in run.ranks]

    assert len({tuple(r["kv_slots"]) for r in layouts}) == 4
    assert [r["kv_positions"] for r in layouts[:2]] != [r["kv_positions"] for r in layouts[2:]]


def _token_flip(plan: Scenario, rank: int) -> Run:
    def where(at: At) -> bool:
        return at.field == "target_tokens" and at.round == 2

    return simulate(plan, Change(where, frozenset({rank}), lambda tokens, _: [tokens[0] + 1, *tokens[1:]]))


def test_check_sees_a_changed_decision_and_what_follows_from_it() -> None:
    found = list(disagreements(_token_flip(scenario("tp4"), 3)))

    assert any("target_tokens" in text for text in found)
    assert any("bonus" in text for text in found)


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("new_seq_len", "commit-arithmetic"),
        ("commit_len", "commit-arithmetic"),
        ("positions", "position-arithmetic"),
        ("draft_root", "anchor-continuity"),
        ("seq_len", "sequence-continuity"),
        ("kv_slots", "holds"),
    ],
)
def test_check_sees_broken_invariants(field: str, rule: str) -> None:
    run = simulate(scenario("one"))
    for record in run.records[0]:
        if record.get("round") == 3 and field in record:
            value = record[field]
            record[field] = [item + 1 for item in value] if isinstance(value, list) else value + 1
            break
    if field == "kv_slots":
        layouts = run.find(0, stage="verify", site="layout", round=3)
        layouts[1]["kv_slots"] = layouts[0]["kv_slots"]

    assert any(rule in text for text in broken_invariants(run))


def test_rank_that_stops_leaves_its_peers_waiting() -> None:
    stop = Halt(lambda at: at.stage == "accept" and at.round == 2, frozenset({1}))
    run = simulate(scenario("tp4"), stop)

    assert set(run.stuck) == {0, 2, 3}
    assert run.records[0][-1]["state"] == "timeout"
    assert run.records[1][-1]["stage"] == "verify"


def test_rank_that_raises_records_the_error_last() -> None:
    run = simulate(scenario(), Halt(lambda at: at.stage == "draft" and at.round == 3, frozenset({0}), "out of memory"))

    assert run.records[0][-1]["error"] == "out of memory"
    assert run.stuck.keys() == {1}


def test_fault_that_answers_like_everybody_changes_nothing() -> None:
    plan = scenario("tp2-dp2")
    changed = Change(lambda at: at.rank == 0, frozenset({0}), lambda value, _: value, once=False)

    assert simulate(plan, changed).records == simulate(plan, NoFault()).records
