"""What the records cannot show, or may show, is no finding."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from simulator import Record, Run, Scenario, simulate
from simulator.scenarios import busy, every_scenario, scenario

from divtrace.events import FIELDS
from divtrace.report.model import Report
from faults import Case, clean_run
from faults.checking import analyze_run
from faults.control import shorter_or_longer
from faults.model import change


def assert_no_finding(report: Report) -> None:
    assert (report.verdict, report.first, report.findings) == ("clean", None, ())


GRID = {name: plan for name, plan in every_scenario().items() if not name.startswith("one-")}


@pytest.mark.parametrize("name", GRID)
def test_run_without_fault_is_clean(name: str) -> None:
    assert_no_finding(analyze_run(clean_run(GRID[name])))


@pytest.mark.parametrize("algorithm", ["eagle", "dspark", "eagle-tree"])
def test_run_of_one_rank_has_nothing_to_compare(algorithm: str) -> None:
    report = analyze_run(simulate(scenario("one", algorithm)))

    assert (report.verdict, report.findings) == ("insufficient", ())


@pytest.mark.parametrize("topology", ["tp2", "tp4", "tp2-cp2", "tp2-dp2"])
def test_target_tokens_behind_the_first_reject_are_drift(topology: str) -> None:
    run = simulate(scenario(topology))
    changed = 0
    for target in run.find(1, stage="verify", site="target"):
        (accept,) = run.find(1, stage="accept", req=target["req"], round=target["round"])
        if accept["correct_len"] + 1 < len(target["target_tokens"]):
            target["target_tokens"][-1] += 1
            changed += 1
    report = analyze_run(run)

    assert_no_finding(report)
    assert [(d.site, d.field, d.count) for d in report.drift] == [("target", "target_tokens", changed)]


def test_target_tokens_off_the_accepted_path_are_drift() -> None:
    run = simulate(scenario("tp2", "eagle-tree"))
    changed = 0
    for target in run.find(1, stage="verify", site="target"):
        (accept,) = run.find(1, stage="accept", req=target["req"], round=target["round"])
        off_path = set(range(len(target["target_tokens"]))) - set(accept["accept_path"])
        for node in off_path:
            target["target_tokens"][node] += 1
        changed += bool(off_path)
    report = analyze_run(run)

    assert_no_finding(report)
    assert [(d.site, d.field, d.count) for d in report.drift] == [("target", "target_tokens", changed)]


@pytest.mark.parametrize("topology", ["tp2", "tp8", "tp2-dp2", "tp2-cp2"])
def test_local_differences_that_the_sync_heals_are_counted(topology: str) -> None:
    case = Case(scenario(topology, "eagle-sampling"), seed=5)
    pick = case.pick("accept", phase="local")
    source, *others = case.scenario.topology.sync_group(pick.ranks[0])
    run = change(case, pick, "acceptance", shorter_or_longer, frozenset(others))
    report = analyze_run(run)

    assert_no_finding(report)
    assert ("eagle-sampling", "correct_len", 1) in [(h.site, h.field, h.count) for h in report.healed]
    assert source == pick.ranks[0]


SOMETIMES_ABSENT = [
    field.name
    for field in FIELDS
    # Without `draft_parents` a draft is a chain, which is a statement of its own.
    if field.kind in ("control", "logical-layout", "shape") and field.name != "draft_parents"
]


@pytest.mark.parametrize("name", SOMETIMES_ABSENT)
@pytest.mark.parametrize("as_null", [False, True])
def test_field_that_one_rank_does_not_record_is_no_difference(name: str, as_null: bool) -> None:
    """Neither zero, nor empty, nor unequal: whether left out everywhere or in every third event."""

    def forget(rank: int, record: Record) -> Record:
        if rank == 1 and name in record and (not as_null or record["seq"] % 3 == 0):
            if as_null:
                record[name] = None
            else:
                del record[name]
        return record

    for plan in (scenario("tp2", "dspark", steps=6), scenario("tp2", "eagle-tree", steps=6)):
        report = analyze_run(clean_run(plan).edited(forget))
        assert [(f.rule, f.site, f.field) for f in report.findings] == []
        assert report.verdict == "clean"


def _slots_elsewhere(rank: int, record: Record) -> Record:
    for name in ("kv_slots", "pool_free"):
        if rank == 1 and name in record:
            record[name] = [5000 - slot for slot in record[name]] if name == "kv_slots" else record[name] // 2
    return record


def _clocks_that_jump(rank: int, record: Record) -> Record:
    record["ts"] += random.Random(rank * 10_000 + record["seq"]).randrange(-(10**13), 10**13)
    return record


def _other_evidence(rank: int, record: Record) -> Record:
    if rank == 1:
        record |= {name: record[name] * 7 + 1 for name in ("margin", "decided_on") if name in record}
        record["note"] = f"note {record['seq']}"
        if "extra" in record:
            record["extra"] |= {"info.rank": 77, "physical.pages": [9], "unknown.key": record["seq"]}
    return record


def _garbage_in_padding(rank: int, record: Record) -> Record:
    if rank == 1 and record["stage"] == "commit":
        record["out_tokens"] = [*record["out_tokens"], 7, 7]
    if rank == 1 and "accept_path" in record:
        record["accept_path"] = [*record["accept_path"], -1]
    if rank == 1 and record["stage"] == "verify" and "positions" in record and "verify_len" in record:
        record["positions"] = [*record["positions"], 0]
    return record


@pytest.mark.parametrize("edit", [_slots_elsewhere, _clocks_that_jump, _other_evidence, _garbage_in_padding])
@pytest.mark.parametrize(
    "plan", [busy("tp2"), busy("tp2-dp2", overlap=True), scenario("tp2-cp2", "eagle-tree")], ids=str
)
def test_legal_difference_is_no_finding(edit: Callable[[int, Record], Record], plan: Scenario) -> None:
    assert_no_finding(analyze_run(clean_run(plan).edited(edit)))


def test_round_behind_the_finish_is_not_compared() -> None:
    run = simulate(busy(overlap=True))
    finished = {(r["req"], r["round"] + 1) for _, r in run.events() if r.get("finished")}
    behind = [r for r in run.records[1] if (r.get("req"), r.get("round")) in finished]
    assert behind
    for record in behind:
        for name in ("correct_len", "bonus", "seq_len"):
            if name in record:
                record[name] += 1

    assert_no_finding(analyze_run(run))


def _lost(run: Run, rank: int, chosen: set[int]) -> Run:
    return run.edited(lambda r, record: None if r == rank and record["seq"] in chosen else record)


@pytest.mark.parametrize("seed", range(8))
def test_lost_events_are_not_skipped(seed: int) -> None:
    plan = busy("tp4", overlap=seed % 2 == 0) if seed % 3 else scenario("tp2-cp2", "dspark")
    run = clean_run(plan)
    rng = random.Random(seed)
    rank = rng.choice(run.ranks)
    chosen = set(rng.sample(range(1, len(run.records[rank]) - 1), 1 + seed))
    report = analyze_run(_lost(run, rank, chosen))

    assert_no_finding(report)
    assert report.coverage.lost_events == len(chosen)


@pytest.mark.parametrize("seed", range(4))
def test_events_that_the_recorder_dropped_without_a_gap_are_not_skipped(seed: int) -> None:
    run = clean_run(scenario("tp4")).copy()
    rng = random.Random(seed)
    kept = [r for r in run.records[2] if r["stage"] in ("host", "collective") or rng.random() > 0.1]
    run.metas[2]["dropped"] = len(run.records[2]) - len(kept)
    run.records[2] = [record | {"seq": number} for number, record in enumerate(kept)]

    assert_no_finding(analyze_run(run))


@pytest.mark.parametrize("seed", range(8))
def test_rings_that_begin_late_are_compared_where_they_overlap(seed: int) -> None:
    run = clean_run(busy("tp2-dp2" if seed % 2 else "tp3", overlap=seed > 3)).copy()
    rng = random.Random(seed)
    for rank in run.ranks:
        run.records[rank] = run.records[rank][rng.randrange(0, 60) :]

    assert_no_finding(analyze_run(run))
