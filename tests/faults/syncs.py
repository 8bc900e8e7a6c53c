"""Faults around the broadcast of a decision, and events that a rank leaves out."""

from __future__ import annotations

from typing import Any

from simulator import At, Change, simulate

from faults.control import GROUPS, PEERS, shorter_or_longer
from faults.model import Case, Expected, Injected, Pick, change, difference, fault, odd_ranks, places

SYNCED = "tp2 tp4 tp8 tp2-cp2 tp2-pp2 tp2-dp2 tp2-cp2-dp2"


@fault("broadcast-leaves-own-accept", "sync-ineffective", places(SYNCED, "eagle-sampling"))
def keeps_its_own_accept(case: Case) -> Injected:
    """The victims' own accept differs, and is still there after the broadcast."""
    pick = _seen_by(case, case.pick("accept", phase="synced"))
    victims = _listeners(case, pick)
    run = change(case, pick, "acceptance", shorter_or_longer, victims, phases=("local", "synced"))
    return Injected(run, _ineffective(case, pick, run, victims, "correct_len"))


@fault("broadcast-arrives-torn", "sync-ineffective", places("tp2 tp4 tp2-dp2 tp2-cp2", "dspark"))
def holds_something_else_after_the_broadcast(case: Case) -> Injected:
    """Everybody's own accept is right, and the victims' is overwritten with something else."""
    pick = _seen_by(case, case.pick("accept", phase="synced"))
    victims = _listeners(case, pick)
    run = change(case, pick, "acceptance", shorter_or_longer, victims)
    return Injected(run, _ineffective(case, pick, run, victims, "correct_len"))


@fault("broadcast-leaves-own-plan", "sync-ineffective", places("tp2 tp3 tp2-dp2 tp2-cp2-dp2", "dspark"))
def keeps_its_own_plan(case: Case) -> Injected:
    pick = _seen_by(case, case.pick("verify", "dspark-plan", phase="synced"))
    victims = _listeners(case, pick)
    wanted = pick.record["verify_len"] - 1 if pick.record["verify_len"] > 2 else pick.record["verify_len"] + 1
    run = change(case, pick, "verify_len", lambda _: wanted, victims, phases=("local", "synced"))
    return Injected(run, _ineffective(case, pick, run, victims, "verify_len"))


def _listeners(case: Case, pick: Pick) -> frozenset[int]:
    """Some ranks of one sync group, its source never among them."""
    source, *others = case.scenario.topology.sync_group(case.rng.choice(pick.ranks))
    return frozenset(case.rng.sample(others, case.rng.randrange(1, len(others) + 1))) - {source}


def _seen_by(case: Case, pick: Pick) -> Pick:
    """The event as its lowest rank records it, so that the source is that of its group."""
    records = case.clean.records[pick.ranks[0]]
    return Pick(next(r for r in records if pick.matches(r)), pick.ranks)


def _ineffective(case: Case, pick: Pick, run: Any, victims: frozenset[int], field: str) -> Expected:
    expected = difference(case, pick, run, victims, "sync-ineffective", "control", field)
    if len(case.scenario.topology.sync_group(pick.ranks[0])) < len(pick.ranks):
        # The peers of another sync group hold the right value too, but have a source of their own.
        values = {rank: rank in victims for rank in pick.ranks}
        odd = odd_ranks(values)
        return Expected(**{**vars(expected), "odd_ranks": odd})
    return expected


@fault("sync-groups-differ", "accept-length", places("tp2-cp2-dp2", "eagle-sampling"))
def differs_between_sync_groups(case: Case) -> Injected:
    """Every broadcast works, but context-parallel peers hear another source and hold another accept."""
    pick = _seen_by(case, case.pick("accept", phase="synced"))
    victims = frozenset(case.scenario.topology.sync_group(case.rng.choice(pick.ranks)))
    run = change(case, pick, "acceptance", shorter_or_longer, victims, phases=("local",))
    values = {rank: rank in victims for rank in pick.ranks}
    expected = difference(case, pick, run, victims, "accept-length", "control", "correct_len")
    return Injected(run, Expected(**{**vars(expected), "odd_ranks": odd_ranks(values)}))


@fault("forced-accept", "sync-overridden", places(SYNCED, "eagle-sampling"))
def goes_on_with_another_accept(case: Case) -> Injected:
    """The broadcast works, and the victims go on with something else."""
    pick = case.pick("accept", usable=lambda r: "correct_len" in r)
    victims = case.victims(pick.ranks)
    run = change(case, pick, "acceptance", shorter_or_longer, victims)
    expected = difference(case, pick, run, victims, "sync-overridden", "control", "correct_len")
    hit = tuple(sorted(victims))
    return Injected(run, Expected(**{**vars(expected), "ranks": hit, "odd_ranks": hit}))


@fault("source-outside-the-group", "sync-group", places(SYNCED, "eagle-sampling"))
@fault("source-outside-the-group-dspark", "sync-group", places("tp2 tp3 tp2-dp2 tp2-cp2", "dspark"))
def hears_a_wrong_source(case: Case) -> Injected:
    """A rank of the group counts ranks inside the group and takes the number for a global one."""
    pick = case.pick("accept", phase="synced")
    victims = case.victims(pick.ranks)
    name = case.rng.choice(["src", "comm_ranks"])

    def where(at: At) -> bool:
        return at.field == name and pick.is_at(at)

    wrong = Change(where, victims, lambda value, _: value + 1 if name == "src" else [*value, 99])
    run = simulate(case.scenario, wrong)
    hit = tuple(sorted(victims))
    return Injected(run, Expected("sync-group", "control", **pick.key(), field=name, ranks=hit, odd_ranks=hit))


@fault("skipped-layout", "skipped-event", places(GROUPS, "eagle"))
@fault("skipped-layout-under-overlap", "skipped-event", places("tp2 tp4 tp2-dp2", "eagle"), overlap=True)
def records_no_layout(case: Case) -> Injected:
    return _skipped(case, case.pick("verify", "layout"))


@fault("skipped-accept", "skipped-event", places(PEERS, "eagle", "eagle-coins"))
def records_no_accept(case: Case) -> Injected:
    return _skipped(case, case.pick("accept"))


@fault("skipped-commit", "skipped-event", places(GROUPS, "eagle"))
def records_no_commit(case: Case) -> Injected:
    return _skipped(case, case.pick("commit"))


@fault("skipped-batch", "skipped-event", places("tp2 tp8 tp2-pp2", "eagle"))
def records_no_batch(case: Case) -> Injected:
    return _skipped(case, case.pick("schedule", "batch"))


def _skipped(case: Case, pick: Pick) -> Injected:
    victims = case.victims(pick.ranks)

    def where(at: At) -> bool:
        return at.field == "recorded" and pick.is_at(at)

    run = simulate(case.scenario, Change(where, victims, lambda _value, _at: False))
    return Injected(run, _skip_expected(pick, victims))


def _skip_expected(pick: Pick, victims: frozenset[int]) -> Expected:
    few = 2 * len(victims) < len(pick.ranks)
    # Whether a majority that lacks the event makes the others odd is not determined.
    odd = tuple(sorted(victims)) if few else () if 2 * len(victims) == len(pick.ranks) else None
    return Expected("skipped-event", "control", **pick.key(), ranks=pick.ranks, odd_ranks=odd)


@fault("skipped-plan", "skipped-event", places("tp2 tp4 tp8 tp2-dp2", "dspark"))
def skips_the_plan(case: Case) -> Injected:
    """No plan, no broadcast, the uniform layout instead; the peers wait in the plan's broadcast."""
    topology = case.scenario.topology
    # A rank that never planned before, and wedges now, has no coverage of the plan: nothing would tell that it skipped.
    first_plan = min(r["step"] for _, r in case.clean.events() if r["site"] == "dspark-plan")
    plan = case.pick("verify", "dspark-plan", phase="synced", usable=lambda r: r["step"] > first_plan + 1)
    rank = plan.ranks[0]
    step = plan.record["step"]
    first = next(r for r in case.clean.records[rank] if r["site"] == "dspark-plan" and r["step"] == step)
    pick = Pick(first, plan.ranks)
    sync_group = topology.sync_group(rank)
    victims = case.victims(tuple(r for r in plan.ranks if r in sync_group))

    def where(at: At) -> bool:
        if at.step != step or at.site != "dspark-plan" or at.stage != "verify":
            return False
        return at.field == "performed" or (at.field == "recorded" and at.phase == "local")

    run = simulate(case.scenario, Change(where, victims, lambda _value, _at: False, once=False))
    return Injected(run, _skip_expected(pick, victims))
