"""Faults that break an invariant of one rank while all ranks of the replica agree, also on a replica of one rank."""

from __future__ import annotations

from typing import Any

from simulator import Acceptance, At, Change, Record

from faults.control import round_of, shorter_or_longer, trees_of
from faults.model import Case, Injected, Pick, broken, change, fault, places

ALONE = "one tp2 tp4 dp2 tp2-dp2 tp2-cp2"
WITH_STAGES = ALONE + " tp2-pp2"


def _all_wrong(
    case: Case,
    pick: Pick,
    name: str,
    how: Any,
    rule: str,
    rule_class: str = "control",
    also: tuple[str, ...] = (),
    more: tuple[Change, ...] = (),
) -> Injected:
    victims = case.victims(pick.ranks)
    run = change(case, pick, name, how, victims, more=more)
    return Injected(run, broken(pick, victims, rule, rule_class, also))


@fault("commit-arithmetic", "commit-arithmetic", places(ALONE, "eagle", "eagle-coins"), everyone=True)
def commits_more_than_accepted(case: Case) -> Injected:
    pick = case.pick("commit")
    return _all_wrong(
        case, pick, "commit_len", lambda length: length + 1, "commit-arithmetic", also=("out-token-derivation",)
    )


@fault("length-arithmetic", "commit-arithmetic", places(WITH_STAGES, "eagle"), everyone=True)
def adds_up_wrong(case: Case) -> Injected:
    return _all_wrong(case, case.pick("commit"), "new_seq_len", lambda length: length + 3, "commit-arithmetic")


@fault("sequence-continuity", "sequence-continuity", places(WITH_STAGES, "eagle"), everyone=True)
def jumps_ahead(case: Case) -> Injected:
    """The layout starts two positions too far; its positions fit its own length."""
    pick = case.pick("verify", "layout")
    victims = case.victims(pick.ranks)

    def where(at: At) -> bool:
        return at.field == "positions" and pick.is_at(at)

    shifted = Change(where, victims, lambda positions, _: [position + 2 for position in positions])
    return _all_wrong(
        case,
        pick,
        "seq_len",
        lambda length: length + 2,
        "sequence-continuity",
        "logical-layout",
        more=(shifted,),
    )


@fault("anchor-continuity", "anchor-continuity", places(ALONE, "eagle", "eagle-sampling", "dspark"), everyone=True)
def forgets_its_anchor(case: Case) -> Injected:
    return _all_wrong(case, case.pick("draft"), "draft_root", lambda root: root + 1, "anchor-continuity")


@fault("plan-bound", "plan-bound", places(ALONE, "dspark-unsynced"), everyone=True)
def plans_more_than_drafted(case: Case) -> Injected:
    width = case.scenario.algorithm.drafts + 1
    return _all_wrong(case, case.pick("verify", "dspark-plan"), "verify_len", lambda _: width + 1, "plan-bound")


@fault("accepts-past-the-plan", "plan-bound", places("one tp2 dp2", "dspark-cap"), everyone=True)
def accepts_past_the_plan(case: Case) -> Injected:
    """One draft more than the cap allows, though it matches: only the plan forbids it."""
    pick = case.pick("accept", usable=lambda r: r["cap_trim_len"] > 0)
    longer = lambda a: Acceptance((*a.path, len(a.path)), a.bonus, a.trimmed - 1)  # noqa: E731
    return _all_wrong(case, pick, "acceptance", longer, "plan-bound")


@fault("accept-derivation", "accept-derivation", places(ALONE, "eagle"), everyone=True)
def accepts_against_its_inputs(case: Case) -> Injected:
    return _all_wrong(case, case.pick("accept"), "acceptance", shorter_or_longer, "accept-derivation")


@fault("bonus-derivation", "accept-derivation", places(ALONE, "eagle", "dspark-unsynced"), everyone=True)
def takes_another_bonus(case: Case) -> Injected:
    other = lambda a: Acceptance(a.path, a.bonus + 1, a.trimmed)  # noqa: E731
    return _all_wrong(case, case.pick("accept"), "acceptance", other, "accept-derivation")


@fault("path-derivation", "path-derivation", places(ALONE, "eagle-tree", "eagle-tree-sampling"), everyone=True)
def leaves_the_tree(case: Case) -> Injected:
    """The last accepted node is no child of the one before."""
    trees = trees_of(case)

    def strangers(record: Record) -> list[int]:
        path, tree = record["accept_path"], trees[round_of(record)]
        above = path[-2] if len(path) > 1 else None
        return [node for node in range(1, 6) if above is not None and tree[node - 1] != above and node not in path]

    pick = case.pick("accept", usable=lambda r: bool(strangers(r)))
    stranger = case.rng.choice(strangers(pick.record))
    other = lambda a: Acceptance((*a.path[:-1], stranger), a.bonus)  # noqa: E731
    return _all_wrong(case, pick, "acceptance", other, "path-derivation")


@fault("out-token-derivation", "out-token-derivation", places(ALONE, "eagle", "dspark", "ngram"), everyone=True)
def commits_what_was_not_accepted(case: Case) -> Injected:
    return _all_wrong(
        case,
        case.pick("commit"),
        "out_tokens",
        lambda tokens: [tokens[0] + 1, *tokens[1:]],
        "out-token-derivation",
    )


@fault("position-arithmetic", "position-arithmetic", places(ALONE, "eagle", "eagle-sampling"), everyone=True)
def numbers_a_row_twice(case: Case) -> Injected:
    pick = case.pick("verify", "layout", usable=lambda r: len(r["positions"]) > 1)
    return _all_wrong(
        case,
        pick,
        "positions",
        lambda positions: [*positions[:-1], positions[-2]],
        "position-arithmetic",
        "logical-layout",
    )


@fault("position-of-the-root", "position-arithmetic", places("one pp2 tp2-pp2", "eagle"), everyone=True)
def numbers_from_another_root(case: Case) -> Injected:
    """Earlier stages do not know whether the rows form a chain, but the first row stands at the sequence length."""
    pick = case.pick("verify", "layout")
    return _all_wrong(
        case,
        pick,
        "positions",
        lambda positions: [position + 1 for position in positions],
        "position-arithmetic",
        "logical-layout",
    )


@fault("tree-depth", "position-arithmetic", places(ALONE, "eagle-tree"), everyone=True)
def numbers_a_tree_like_a_chain(case: Case) -> Injected:
    pick = case.pick("verify", "layout", usable=lambda r: max(r["positions"]) < r["seq_len"] + 5)
    length = pick.record["seq_len"]
    return _all_wrong(
        case,
        pick,
        "positions",
        lambda positions: [length + row for row in range(len(positions))],
        "position-arithmetic",
        "logical-layout",
    )


@fault("kv-alias", "kv-alias", places(WITH_STAGES, "eagle", "eagle-sampling"), everyone=True)
@fault("kv-alias-on-some-ranks", "kv-alias", places("tp2 tp4 tp2-pp2 tp2-cp2-dp2", "eagle"))
def gives_a_slot_twice(case: Case) -> Injected:
    pick = case.pick("verify", "layout", usable=lambda r: len(r["kv_slots"]) > 1)
    return _all_wrong(
        case,
        pick,
        "kv_slots",
        lambda slots: [*slots[:-1], slots[0]],
        "kv-alias",
        "logical-layout",
    )


@fault("kv-count", "kv-alias", places("one tp2", "eagle"), everyone=True)
def has_a_slot_too_few(case: Case) -> Injected:
    pick = case.pick("verify", "layout", usable=lambda r: len(r["kv_slots"]) > 1)
    return _all_wrong(case, pick, "kv_slots", lambda slots: slots[:-1], "kv-alias", "logical-layout")
