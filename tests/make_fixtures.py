"""Writes the traces of `fixtures/`: small runs of the simulator, most with one fault.

    python tests/make_fixtures.py [CASE ...]

The golden reports are written by `DIVTRACE_UPDATE_GOLDEN=1 pytest tests/test_fixtures.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator import (
    Acceptance,
    Algorithm,
    At,
    Change,
    Form,
    Halt,
    Record,
    RequestPlan,
    Run,
    Scenario,
    Topology,
    simulate,
    write_parquet,
    write_run,
)
from simulator.recorder import EPOCH
from simulator.scenario import DSPARK, EAGLE, EAGLE_COINS, EAGLE_SAMPLING, EAGLE_TREE, NGRAM
from simulator.scenarios import busy

FIXTURES = Path(__file__).parent.parent / "fixtures"
CASES: dict[str, Callable[[Path], object]] = {}


def case(make: Callable[[], Run], form: Form = "jsonl", without: tuple[int, ...] = ()) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        run = make()
        for rank in without:
            del run.records[rank]
        write_run(run, folder, form)

    return write


def engine(
    topology: Topology,
    algorithm: Algorithm = EAGLE,
    requests: tuple[tuple[RequestPlan, ...], ...] | None = None,
    **habits: Any,
) -> Scenario:
    """A short run: two requests for each replica, no evidence beyond the decisions."""
    names = ("chat", "code", "mail", "poem", "quiz", "song", "tale", "wiki")
    asked = requests or tuple(
        (RequestPlan(names[2 * i], 7 + i), RequestPlan(names[2 * i + 1], 5 + 2 * i)) for i in range(topology.data)
    )
    plan = Scenario(topology=topology, algorithm=algorithm, requests=asked, steps=7, extras=False, time_limit=False)
    return plan.but(**habits)


def wrong(
    plan: Scenario,
    ranks: set[int],
    field: str,
    how: Callable[[Any], Any],
    req: str | None = None,
    round_: int | None = None,
    step: int | None = None,
    phase: str = "used",
    stage: str | None = None,
    site: str | None = None,
) -> Run:
    """The run in which these ranks decide otherwise, once."""

    def where(at: At) -> bool:
        wanted = {
            "field": field,
            "req": req,
            "round": round_,
            "step": step,
            "phase": phase,
            "stage": stage,
            "site": site,
        }
        return all(value is None or getattr(at, name) == value for name, value in wanted.items())

    fault = Change(where, frozenset(ranks), lambda value, _: how(value))
    run = simulate(plan, fault)
    if all(fault.before[rank] == fault.after[rank] for rank in ranks):
        raise SystemExit("the fault changes nothing")
    return run


def other(tokens: list[int], index: int) -> list[int]:
    return [*tokens[:index], tokens[index] + 13, *tokens[index + 1 :]]


def near_tie() -> Run:
    """One argmax: rank 0 reaches the length limit, rank 1 goes on, and the next reduction has two sizes."""
    requests = ((RequestPlan("chat", 9, new_tokens=11), RequestPlan("code", 6, new_tokens=40)),)
    plan = engine(Topology(2), requests=requests, steps=9)
    return wrong(plan, {1}, "target_tokens", lambda t: other(t, 1), "chat", 4)


def healed_and_drifting() -> Run:
    """Raw n-gram proposals that nobody uses, and target tokens in rows that decide nothing."""
    run = simulate(engine(Topology(3), NGRAM))
    for target in run.find(2, stage="verify", site="target"):
        (accept,) = run.find(2, stage="accept", req=target["req"], round=target["round"])
        if accept["correct_len"] + 1 < len(target["target_tokens"]):
            target["target_tokens"][-1] += 1
    return run


def dp_attention() -> Run:
    """Eight ranks, four replicas; one is idle in the end, all slots and clocks differ."""
    plan = engine(
        Topology(2, data=4),
        requests=(
            (RequestPlan("chat", 9), RequestPlan("code", 6)),
            (RequestPlan("chat", 7, new_tokens=6),),
            (RequestPlan("mail", 11),),
            (RequestPlan("poem", 5, arrives=2),),
        ),
        steps=6,
    )
    return simulate(plan)


def skipped_plan() -> Run:
    """The confidence was not on the host yet: rank 2 takes the uniform layout, the others sit in the broadcast."""
    plan = engine(Topology(4), DSPARK, (((RequestPlan("chat", 7)),),))

    def where(at: At) -> bool:
        plan_event = (at.stage, at.site, at.step) == ("verify", "dspark-plan", 104)
        return plan_event and (at.field == "performed" or (at.field == "recorded" and at.phase == "local"))

    return simulate(plan, Change(where, frozenset({2}), lambda _value, _at: False, once=False))


def crossed() -> Run:
    """Rank 1 enters the experts' gather before its group's reduction."""
    return wrong(engine(Topology(2, data=2)), {1}, "order", lambda operations: operations[::-1], step=104)


def raised() -> Run:
    return _waiting_raise(simulate(engine(Topology(4)), _halt({3}, "verify", "allocation of 512 MiB failed")))


def silent() -> Run:
    return _waiting_raise(simulate(engine(Topology(2, data=2)), _halt({3}, "verify")))


def stalled() -> Run:
    """All ranks stop between launch and result; only their watchdogs go on."""
    plan = engine(Topology(4))
    run = simulate(plan, _halt({0, 1, 2, 3}, "collective"))
    for rank in run.ranks:
        last = run.records[rank][-1]
        note = {"stage": "host", "site": "watchdog", "note": "no forward finished in 300 s"}
        run.records[rank].append(
            {"seq": last["seq"] + 1, "ts": last["ts"] + 300_000_000_000 + 7 * rank, "step": last["step"], **note}
        )
    return run


def _halt(ranks: set[int], stage: str, error: str | None = None) -> Halt:
    return Halt(lambda at: at.stage == stage and at.step == 104, frozenset(ranks), error)


def _waiting_raise(run: Run) -> Run:
    for rank in run.stuck:
        last = run.records[rank][-1]
        error = {
            "stage": "host",
            "site": "error",
            "error": "operation timed out after 300 s",
            "error_type": "DistError",
        }
        run.records[rank].append({"seq": last["seq"] + 1, "ts": last["ts"] + 90_000, "step": last["step"], **error})
    return run


def other_configuration() -> Run:
    run = simulate(engine(Topology(2), steps=4))
    run.metas[1]["sync"] = "all,-dspark-plan"
    run.metas[0]["sync"] = "all"
    return run


def hostile() -> Run:
    name = "<img src=x onerror=alert(1)>\n::error file=a::b\x1b[31m\u202e\"'|`</script>"
    requests = ((RequestPlan(name, 7), RequestPlan("code", 5)),)
    return wrong(engine(Topology(2), EAGLE_COINS, requests), {1}, "acceptance", _one_less, name, 3)


def _one_less(accepted: Acceptance) -> Acceptance:
    path = accepted.path[:-1] if accepted.correct_len else (0, 1)
    return Acceptance(path, accepted.bonus, accepted.trimmed)


def lost_events() -> Run:
    """Gaps and a dropped count: what is missing was lost, not skipped."""
    run = simulate(engine(Topology(2)))
    lost = {30, 31, 45}

    def edit(rank: int, record: Record) -> Record | None:
        return None if rank == 1 and record["seq"] in lost else record

    run = run.edited(edit)
    run.metas[1]["dropped"] = len(lost)
    return run


def two_worlds(folder: Path) -> None:
    """One Parquet file of two engines, in which rank numbers repeat."""
    metas: list[Record] = []
    rows: list[Record] = []
    for world in (0, 1):
        plan = engine(Topology(2), EAGLE_COINS, world=world, seed=world + 1, steps=5)
        fault = Change(
            lambda at: at.field == "acceptance" and (at.req, at.round) == ("chat", 2),
            frozenset({1} if world else ()),
            lambda accepted, _: Acceptance(accepted.path, accepted.bonus + 13),
        )
        run = simulate(plan, fault)
        metas += run.metas.values()
        rows += [record | {"world": world, "rank": rank} for rank, record in run.events()]
    rows.sort(key=lambda record: (record["ts"] - EPOCH) % 1_000_003)
    write_parquet(folder / "night.parquet", metas, rows)


def one_rank_aborts() -> Run:
    """Each pipeline stage checks a request's age by its own clock."""
    plan = engine(Topology(2, pipeline=2), time_limit=True)
    return wrong(plan, {2, 3}, "decision", lambda _: "abort", "code", step=104)


def prefix_per_stage() -> Run:
    plan = engine(Topology(1, pipeline=2), requests=((RequestPlan("chat", 12), RequestPlan("code", 9, arrives=3)),))
    return wrong(plan, {1}, "prefix_hit", lambda hit: hit + 4, "code", 0)


CASES |= {
    "clean-dp-attention": case(dp_attention),
    "clean-healed-and-drifting": case(healed_and_drifting),
    "clean-lost-events": case(lost_events),
    "clean-come-and-go": case(lambda: simulate(busy("tp2-dp2", overlap=True, extras=False)), "jsonl.gz"),
    "init-sync-setting": case(other_configuration),
    "schedule-abort-on-one-stage": case(one_rank_aborts),
    "schedule-batch-late-abort": case(
        lambda: wrong(engine(Topology(2, data=2)), {2}, "batch", lambda names: names[:-1], step=104)
    ),
    "schedule-rows-swapped": case(
        lambda: wrong(engine(Topology(2)), {1}, "batch", lambda names: names[::-1], step=103), "jsonl.gz"
    ),
    "prefill-prefix-per-stage": case(prefix_per_stage),
    "draft-tree-tie": case(
        lambda: wrong(engine(Topology(2), EAGLE_TREE), {1}, "draft_parents", lambda p: [*p[:-1], p[-1] - 1], "chat", 3),
        "jsonl.zst",
    ),
    "verify-near-tie": case(near_tie),
    "verify-plan-skipped": case(skipped_plan),
    "verify-positions-shifted": case(
        lambda: wrong(
            engine(Topology(4)),
            {2, 3},
            "positions",
            lambda positions: [p + 16 for p in positions],
            "chat",
            3,
            stage="verify",
        ),
        "parquet",
    ),
    "verify-kv-slot-twice": case(
        lambda: wrong(engine(Topology(1)), {0}, "kv_slots", lambda slots: [*slots[:-1], slots[0]], "code", 3)
    ),
    "verify-graph-tier": case(
        lambda: wrong(engine(Topology(2), DSPARK), {0}, "padded_tokens", lambda rows: rows + 4, step=104)
    ),
    "accept-own-coins": case(
        lambda: wrong(engine(Topology(4), EAGLE_COINS), {3}, "acceptance", _one_less, "code", 3), "jsonl.zst"
    ),
    "accept-forced-after-sync": case(
        lambda: wrong(engine(Topology(2), EAGLE_SAMPLING), {1}, "acceptance", _one_less, "chat", 3)
    ),
    "accept-broadcast-torn": case(
        lambda: wrong(engine(Topology(2), EAGLE_SAMPLING), {1}, "acceptance", _one_less, "chat", 3, phase="synced"),
        "jsonl.gz",
    ),
    "commit-optimistic-stage": case(
        lambda: wrong(engine(Topology(1, pipeline=2)), {0}, "commit_len", lambda length: length + 1, "chat", 3)
    ),
    "commit-stop-on-one-rank": case(
        lambda: wrong(engine(Topology(2), overlap=True), {1}, "finished", lambda _: "stop", "code", 3)
    ),
    "collective-size-across-replicas": case(
        lambda: wrong(engine(Topology(1, data=2)), {1}, "numel", lambda size: size // 2, step=104, site="moe")
    ),
    "collective-crossed-order": case(crossed),
    "hostile-request-id": case(hostile),
    "two-worlds": two_worlds,
    "rank-failed": case(raised),
    "rank-silent": case(silent),
    "uniform-stall": case(stalled),
    "insufficient-one-of-two": case(lambda: simulate(engine(Topology(2), steps=5)), without=(1,)),
}


def main(names: list[str], fixtures: Path = FIXTURES) -> None:
    for name in names or CASES:
        folder = fixtures / name
        for old in folder.iterdir() if folder.is_dir() else []:
            if old.is_file():
                old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        CASES[name](folder)


if __name__ == "__main__":
    main(sys.argv[1:])
