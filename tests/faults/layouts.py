"""Faults in the logical layout and in shapes, collectives included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulator import At, Change, Several, simulate

from faults.control import GROUPS, changed_field
from faults.model import Case, Expected, Injected, Pick, UnsuitableError, difference, fault, odd_ranks, places

WIDE = "tp2 tp3 tp8 tp2-cp2 tp2-pp2 tp2-dp2 tp2-cp2-dp2 tp2-dp2-pp2"
"""Topologies whose attn_tp groups have at least two ranks."""


def in_one_attention_group(case: Case, pick: Pick) -> Pick:
    group = case.scenario.topology.attn_tp(case.rng.choice(pick.ranks))
    return Pick(pick.record, tuple(rank for rank in pick.ranks if rank in group))


@fault("rows-swapped", "row-order", places(GROUPS, "eagle"))
def swaps_rows(case: Case) -> Injected:
    pick = case.pick("schedule", "batch", usable=lambda r: len(r["batch"]) > 1)
    return changed_field(case, pick, "batch", lambda names: names[::-1], "row-order", "logical-layout")


@fault("another-row", "row-order", places("tp2 tp4 tp2-pp2", "eagle"))
def takes_another_row(case: Case) -> Injected:
    return changed_field(case, case.pick("verify", "layout"), "row", lambda row: row + 5, "row-order", "logical-layout")


@fault("prefix-per-stage", "prefix-length", places(GROUPS, "eagle"))
def finds_another_prefix(case: Case) -> Injected:
    pick = case.pick("prefill", "prefix")
    return changed_field(case, pick, "prefix_hit", lambda hit: hit + 4, "prefix-length", "logical-layout")


@fault("shifted-positions", "positions", places(GROUPS, "eagle", "eagle-sampling"))
def numbers_rows_elsewhere(case: Case) -> Injected:
    return changed_field(
        case,
        case.pick("verify", "layout"),
        "positions",
        lambda positions: [position + 16 for position in positions],
        "positions",
        "logical-layout",
        also=("position-arithmetic",),
        contradicts_itself=True,
    )


@fault("kv-of-other-positions", "kv-ownership", places(WIDE, "eagle"))
def owns_other_positions(case: Case) -> Injected:
    pick = in_one_attention_group(case, case.pick("verify", "layout", usable=lambda r: len(r["kv_positions"]) > 0))
    injected = changed_field(
        case,
        pick,
        "kv_positions",
        lambda positions: [*positions[:-1], positions[-1] + 2],
        "kv-ownership",
        "logical-layout",
    )
    alone = len(case.scenario.topology.replica(pick.ranks[0])) == len(pick.ranks)
    return injected if alone else Injected(injected.run, replace(injected.expected, ranks=None, odd_ranks=None))


@fault("other-length", "sequence-length", places(GROUPS, "eagle"))
def starts_elsewhere(case: Case) -> Injected:
    return changed_field(
        case,
        case.pick("verify", "layout"),
        "seq_len",
        lambda length: length + 1,
        "sequence-length",
        "logical-layout",
        also=("sequence-continuity", "position-arithmetic"),
        contradicts_itself=True,
    )


@fault("other-new-length", "sequence-length", places(GROUPS, "eagle", "eagle-coins"))
def ends_elsewhere(case: Case) -> Injected:
    return changed_field(
        case,
        case.pick("commit"),
        "new_seq_len",
        lambda length: length + 1,
        "sequence-length",
        "logical-layout",
        also=("commit-arithmetic",),
        contradicts_itself=True,
    )


@fault("graph-tier", "launch-shape", places(WIDE, "eagle", "eagle-sampling"))
@fault("graph-tier-after-a-plan", "launch-shape", places("tp2 tp4 tp2-dp2 tp2-cp2-dp2", "dspark"))
def pads_otherwise(case: Case) -> Injected:
    pick = in_one_attention_group(case, case.pick("verify", "launch"))
    return changed_field(case, pick, "padded_tokens", lambda rows: rows + 4, "launch-shape", "shape")


@fault("extra-control", "extra-field", places(GROUPS, "eagle"))
def extra_control(case: Case) -> Injected:
    return _extra(case, case.pick("verify", "layout"), "control.grammar", lambda value: value + 1, "control")


@fault("extra-layout", "extra-field", places(GROUPS, "eagle"))
def extra_layout(case: Case) -> Injected:
    return _extra(case, case.pick("verify", "layout"), "layout.window", lambda value: value + 1, "logical-layout")


@fault("extra-shape", "extra-field", places(WIDE, "eagle"))
def extra_shape(case: Case) -> Injected:
    pick = in_one_attention_group(case, case.pick("verify", "layout"))
    injected = _extra(case, pick, "shape.block_table", lambda value: [*value[:-1], value[-1] + 1], "shape")
    alone = len(case.scenario.topology.replica(pick.ranks[0])) == len(pick.ranks)
    return injected if alone else Injected(injected.run, replace(injected.expected, ranks=None, odd_ranks=None))


def _extra(case: Case, pick: Pick, key: str, how: Any, rule_class: str) -> Injected:
    victims = case.victims(pick.ranks)

    def where(at: At) -> bool:
        return at.field == "extra" and pick.is_at(at)

    run = simulate(case.scenario, Change(where, victims, lambda extra, _: {**extra, key: how(extra[key])}))
    return Injected(run, difference(case, pick, run, victims, "extra-field", rule_class, f"extra.{key}"))


# Collectives


def _operation_fault(case: Case, name: str, how: Any, rule: str, sites: tuple[str, ...]) -> Injected:
    """Some members issue one operation otherwise; it never completes."""
    steps = {"step": None, "stage": "collective"}
    site = case.rng.choice(sites)
    operation = _some_operation(case, site)
    members = tuple(operation["comm_ranks"])
    victims = case.victims(members)

    def where(at: At) -> bool:
        return (at.stage, at.site, at.step, at.field) == ("collective", site, operation["step"], name)

    fault_ = Change(where, victims, lambda value, _: how(value))
    run = simulate(case.scenario, fault_)
    values = {rank: fault_.after[rank] for rank in members}
    lowest = min(members)
    steps["step"] = operation["step"]
    seen_site = fault_.after[lowest] if name == "site" else site
    odd = odd_ranks(values) or ()
    return Injected(
        run,
        Expected(
            rule,
            "shape",
            "collective",
            seen_site,
            step=operation["step"],
            field=name,
            ranks=members,
            odd_ranks=odd,
        ),
    )


def _some_operation(case: Case, site: str) -> dict[str, Any]:
    first = case.scenario.first_step
    operations = [
        record
        for _, record in case.clean.events()
        if record["stage"] == "collective"
        and record["site"] == site
        and first + 1 < record["step"] < first + case.scenario.steps - 2
        and not record.get("dummy")
    ]
    if not operations:
        raise UnsuitableError(site)
    return case.rng.choice(operations)


@fault("other-size", "collective-shape", places(WIDE, "eagle"))
def sends_another_size(case: Case) -> Injected:
    return _operation_fault(case, "numel", lambda size: size + 64, "collective-shape", ("attn-out",))


@fault("other-size-across-replicas", "collective-shape", places("dp2 tp2-dp2 tp2-cp2-dp2", "eagle"))
def sends_another_size_to_other_replicas(case: Case) -> Injected:
    return _operation_fault(case, "numel", lambda size: size * 2, "collective-shape", ("moe", "mlp-sync"))


@fault("token-broadcast-width", "collective-shape", places("pp2 tp2-pp2 tp2-pp3", "eagle"))
def broadcasts_another_width(case: Case) -> Injected:
    return _operation_fault(case, "numel", lambda size: size + 2, "collective-shape", ("pp-tokens", "pp-hidden"))


@fault("other-operation", "collective-order", places(WIDE, "eagle"))
def calls_another_operation(case: Case) -> Injected:
    return _operation_fault(case, "op", lambda _: "reduce_scatter", "collective-order", ("attn-out",))


@fault("other-place", "collective-order", places(WIDE, "eagle"))
def calls_from_another_place(case: Case) -> Injected:
    return _operation_fault(case, "site", lambda _: "draft", "collective-order", ("attn-out",))


@fault("other-source", "collective-order", places("tp2 tp4 tp2-cp2 tp2-dp2", "eagle-sampling"))
def expects_another_source(case: Case) -> Injected:
    return _operation_fault(case, "src", lambda source: source + 1, "collective-order", ("eagle-sampling",))


@fault("crossed-order", "collective-order", places("tp2-dp2 tp2-cp2-dp2", "eagle"))
def crosses_the_order(case: Case) -> Injected:
    """One rank enters the experts' gather before its group's reduction: two ranks wait for each other."""
    operation = _some_operation(case, "attn-out")
    topology = case.scenario.topology
    group = tuple(operation["comm_ranks"])
    victim = case.rng.choice(group)
    # With context parallelism the peers' gathers belong to the knot, and which ranks of it make the cycle is open.
    knot = topology.replica(victim)

    def where(at: At) -> bool:
        return (at.site, at.field, at.step) == ("forward", "order", operation["step"])

    swap = Change(where, frozenset({victim}), lambda order, _: order[::-1])
    run = simulate(case.scenario, Several((swap,)))
    lowest = min(knot)
    site = run.stuck[lowest].site
    expected = Expected(
        "collective-order",
        "shape",
        "collective",
        site,
        step=operation["step"],
        field="comm",
        ranks=group if knot == group else None,
    )
    return Injected(run, expected)
