"""Faults in decisions: one or more ranks of a replica decide otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulator import Acceptance, Record

from faults.model import Case, Expected, Injected, Pick, UnsuitableError, change, difference, fault, odd_ranks, places

GROUPS = "tp2 tp3 tp8 tp2-cp2 cp2 tp2-pp2 pp2 tp2-dp2 tp2-cp2-dp2 tp2-dp2-pp2"
PEERS = "tp2 tp4 tp8 tp2-cp2 cp2 tp2-dp2 tp2-cp2-dp2"
"""Topologies without pipeline stages."""
LAST_STAGES = PEERS + " tp2-pp2 tp2-dp2-pp2"
"""Topologies in which at least two ranks draft and accept."""


def changed_field(
    case: Case, pick: Pick, name: str, how: Any, rule: str, rule_class: str = "control", **more: Any
) -> Injected:
    """Some ranks decide otherwise in one field, and the field itself tells."""
    victims = case.victims(pick.ranks)
    run = change(case, pick, name, how, victims)
    return Injected(run, difference(case, pick, run, victims, rule, rule_class, name, **more))


@fault("init-config", "init-config", places(GROUPS, "eagle"))
def other_configuration(case: Case) -> Injected:
    """A rank was started with another algorithm, engine version, sync or expert layout."""
    topology = case.scenario.topology
    index = case.rng.randrange(topology.data)
    ranks = topology.replica_ranks(index)
    victims = case.victims(ranks)
    name = case.rng.choice(["algorithm", "engine.version", "sync", "parallel"])
    run = case.clean.copy()
    for rank in victims:
        meta = run.metas[rank]
        if name == "engine.version":
            meta["engine"]["version"] = "0.5.22"
        elif name == "parallel":
            meta["parallel"]["moe_dense_tp_size"] = 1
        else:
            meta[name] = {"algorithm": "NGRAM", "sync": "dspark-plan"}[name]
    odd = odd_ranks({rank: rank in victims for rank in ranks}) or ()
    expected = Expected("init-config", "control", "init", "meta", field=name, ranks=ranks, odd_ranks=odd)
    return Injected(run, expected)


@fault("init-gate", "gate", places("tp2 tp4 pp2", "eagle"))
def shares_the_embedding_alone(case: Case) -> Injected:
    return changed_field(case, case.pick("init", "share-embed"), "gate", lambda gate: not gate, "gate")


@fault("aborts-by-its-own-clock", "schedule-decision", places(GROUPS, "eagle", "eagle-sampling"))
def aborts_alone(case: Case) -> Injected:
    pick = case.pick("schedule", "running-timeout")
    return changed_field(case, pick, "decision", lambda _: "abort", "schedule-decision")


@fault("abort-reaches-some-ranks", "batch-membership", places(GROUPS, "eagle"))
def loses_a_request(case: Case) -> Injected:
    pick = case.pick("schedule", "batch", usable=lambda r: len(r["batch"]) > 1)
    injected = changed_field(case, pick, "batch", lambda names: names[:-1], "batch-membership")
    return Injected(injected.run, replace(injected.expected, index=None))


@fault("forward-mode", "forward-mode", places("tp2 tp8 tp2-pp2 tp2-cp2-dp2", "eagle"))
def takes_another_forward(case: Case) -> Injected:
    pick = case.pick("schedule", "batch", usable=lambda r: r["forward_mode"] == "decode")
    return changed_field(case, pick, "forward_mode", lambda _: "verify", "forward-mode")


@fault("gate-closed", "gate", places(GROUPS, "eagle", "eagle-coins"))
def skips_drafting(case: Case) -> Injected:
    return changed_field(case, case.pick("schedule", "spec-gate"), "gate", lambda _: False, "gate")


def _other_token(case: Case, tokens: list[int], index: int) -> list[int]:
    return [*tokens[:index], (tokens[index] + 1) % case.scenario.model.vocabulary, *tokens[index + 1 :]]


def _other_some_token(case: Case) -> Any:
    choice = case.rng.random()
    return lambda tokens: _other_token(case, tokens, int(choice * len(tokens)))


@fault("draft-top-k", "draft-tokens", places(LAST_STAGES, "eagle", "eagle-sampling", "eagle-coins"))
@fault("draft-top-k-in-a-tree", "draft-tokens", places(PEERS, "eagle-tree", "eagle-tree-sampling", "ngram", "dspark"))
@fault("draft-top-k-before-the-step", "draft-tokens", places("tp2 tp4 tp2-dp2", "eagle"), drafts_early=True)
def drafts_otherwise(case: Case) -> Injected:
    pick = case.pick("draft", usable=lambda r: bool(r.get("draft_tokens")))
    return changed_field(case, pick, "draft_tokens", _other_some_token(case), "draft-tokens")


@fault("draft-forward", "draft-tokens", places("tp2 tp4 tp2-dp2", "eagle"), draft_per_forward=True)
def drafts_otherwise_in_one_forward(case: Case) -> Injected:
    """One event per draft forward: the fault is in one of them."""
    pick = case.pick("draft")
    forward = pick.record.get("n", 0)
    victims = case.victims(pick.ranks)

    run = change(case, pick, "draft_tokens", lambda tokens: _other_token(case, tokens, forward), victims)
    return Injected(run, difference(case, pick, run, victims, "draft-tokens", "control", "draft_tokens"))


@fault("draft-root", "draft-tokens", places(LAST_STAGES, "eagle", "eagle-sampling"))
def starts_from_another_root(case: Case) -> Injected:
    return changed_field(
        case,
        case.pick("draft"),
        "draft_root",
        lambda root: root + 1,
        "draft-tokens",
        also=("anchor-continuity",),
        contradicts_itself=True,
    )


@fault("parent-order", "draft-tree", places(PEERS, "eagle-tree", "eagle-tree-sampling"))
def hangs_a_leaf_elsewhere(case: Case) -> Injected:
    pick = case.pick("draft")
    return changed_field(
        case, pick, "draft_parents", lambda parents: [*parents[:-1], (parents[-1] + 1) % 4], "draft-tree"
    )


@fault("adaptive-steps", "draft-steps", places(PEERS, "eagle"), adaptive=True)
def adapts_alone(case: Case) -> Injected:
    return changed_field(case, case.pick("draft", "adaptive"), "draft_steps", lambda steps: steps - 1, "draft-steps")


@fault("verify-width", "draft-steps", places("tp2 tp8 tp2-pp2", "eagle"))
def another_width(case: Case) -> Injected:
    return changed_field(case, case.pick("draft"), "num_draft_tokens", lambda width: width + 4, "draft-steps")


@fault("plan-boundary", "verify-plan", places(PEERS, "dspark-unsynced"))
def plans_otherwise(case: Case) -> Injected:
    pick = case.pick("verify", "dspark-plan")
    return changed_field(case, pick, "verify_len", lambda rows: rows - 1 if rows > 2 else rows + 1, "verify-plan")


@fault("plan-budget", "verify-plan", places("tp2 tp4 tp2-cp2-dp2", "dspark"))
def another_budget(case: Case) -> Injected:
    return changed_field(case, case.pick("verify", "budget"), "verify_budget", lambda _: -1, "verify-plan")


@fault("near-tie", "target-tokens", places(LAST_STAGES, "eagle"))
@fault("near-tie-with-a-plan", "target-tokens", places(PEERS, "dspark", "dspark-unsynced", "dspark-cap", "ngram"))
@fault("near-tie-under-overlap", "target-tokens", places("tp2 tp2-dp2 tp2-cp2", "eagle"), overlap=True)
def another_argmax(case: Case) -> Injected:
    """Another target token in a row that decides: up to the first rejected draft."""
    pick = case.pick("verify", "target")
    index = case.rng.randrange(_accepted(case, pick)["correct_len"] + 1)
    return changed_field(case, pick, "target_tokens", lambda tokens: _other_token(case, tokens, index), "target-tokens")


@fault("near-tie-in-a-tree", "target-tokens", places(PEERS, "eagle-tree"))
def another_argmax_on_the_path(case: Case) -> Injected:
    pick = case.pick("verify", "target")
    node = case.rng.choice(_accepted(case, pick)["accept_path"])
    return changed_field(case, pick, "target_tokens", lambda tokens: _other_token(case, tokens, node), "target-tokens")


def _accepted(case: Case, pick: Pick) -> Record:
    wanted = {name: pick.record.get(name) for name in ("req", "attempt", "round")}
    return case.clean.find(pick.ranks[0], stage="accept", phase=None, **wanted)[0]


@fault("other-branch", "accept-branch", places(LAST_STAGES, "eagle", "eagle-coins"))
def takes_the_other_branch(case: Case) -> Injected:
    others = {"greedy": "sampling", "sampling": "greedy"}
    return changed_field(case, case.pick("accept"), "branch", others.__getitem__, "accept-branch")


def acceptance_fault(case: Case, pick: Pick, how: Any, rule: str, field: str, **more: Any) -> Injected:
    victims = case.victims(pick.ranks)
    run = change(case, pick, "acceptance", how, victims)
    return Injected(run, difference(case, pick, run, victims, rule, "control", field, **more))


def shorter_or_longer(accepted: Acceptance) -> Acceptance:
    path = accepted.path[:-1] if accepted.correct_len else (0, 1)
    return Acceptance(path, accepted.bonus, accepted.trimmed)


@fault("own-coins", "accept-length", places(LAST_STAGES, "eagle-coins"))
def draws_its_own_coins(case: Case) -> Injected:
    return acceptance_fault(case, case.pick("accept"), shorter_or_longer, "accept-length", "correct_len")


@fault("miscounted-accept", "accept-length", places(LAST_STAGES, "eagle"))
def counts_wrong(case: Case) -> Injected:
    return acceptance_fault(
        case,
        case.pick("accept"),
        shorter_or_longer,
        "accept-length",
        "correct_len",
        also=("accept-derivation",),
        contradicts_itself=True,
    )


def round_of(record: Record) -> tuple[Any, ...]:
    return record["req"], record.get("attempt", 0), record["round"]


def trees_of(case: Case) -> dict[tuple[Any, ...], list[int]]:
    """The parents of every drafted tree, by its round."""
    return {round_of(record): record["draft_parents"] for _, record in case.clean.events() if "draft_parents" in record}


@fault("other-path", "accept-path", places(PEERS, "eagle-tree-sampling"))
def follows_another_path(case: Case) -> Injected:
    """A sibling of the last accepted node instead of it: equal length, other tokens."""
    trees = trees_of(case)

    def siblings(record: Record) -> list[int]:
        path, tree = record["accept_path"], trees[round_of(record)]
        above = path[-2] if len(path) > 1 else -1
        return [node + 1 for node, parent in enumerate(tree) if parent == above and node + 1 != path[-1]]

    pick = case.pick("accept", usable=lambda r: bool(siblings(r)))
    other = case.rng.choice(siblings(pick.record))
    return acceptance_fault(
        case,
        pick,
        lambda accepted: Acceptance((*accepted.path[:-1], other), accepted.bonus),
        "accept-path",
        "accept_path",
    )


@fault("own-bonus", "bonus-token", places(LAST_STAGES, "eagle-coins"))
def samples_another_bonus(case: Case) -> Injected:
    return acceptance_fault(
        case, case.pick("accept"), lambda a: Acceptance(a.path, a.bonus + 1, a.trimmed), "bonus-token", "bonus"
    )


@fault("own-first-token", "bonus-token", places(LAST_STAGES, "eagle"))
@fault("own-first-token-before-a-plan", "bonus-token", places("tp2 tp4 tp2-dp2", "dspark-unsynced"))
def samples_another_first_token(case: Case) -> Injected:
    return changed_field(case, case.pick("prefill", "target"), "bonus", lambda token: token + 1, "bonus-token")


@fault("other-trim", "cap-trim", places(PEERS, "dspark-cap"))
def trims_otherwise(case: Case) -> Injected:
    return acceptance_fault(
        case, case.pick("accept"), lambda a: Acceptance(a.path, a.bonus, a.trimmed + 1), "cap-trim", "cap_trim_len"
    )


@fault("commits-too-much", "commit-length", places(GROUPS, "eagle", "eagle-sampling"))
@fault("commits-too-much-under-overlap", "commit-length", places("tp2 tp2-pp2 tp2-cp2-dp2", "eagle"), overlap=True)
def commits_too_much(case: Case) -> Injected:
    return changed_field(
        case,
        case.pick("commit"),
        "commit_len",
        lambda length: length + 1,
        "commit-length",
        also=("sequence-length", "out-token-derivation"),
        contradicts_itself=True,
    )


@fault("other-text", "out-tokens", places(GROUPS, "eagle", "eagle-coins"))
def commits_other_tokens(case: Case) -> Injected:
    pick = case.pick("commit")
    drafted = case.scenario.topology.is_last_stage
    victims = case.victims(pick.ranks)
    if not (all(map(drafted, victims)) or not any(map(drafted, victims))):
        raise UnsuitableError("who contradicts himself depends on the stage")
    run = change(case, pick, "out_tokens", _other_some_token(case), victims)
    contradicts = all(map(drafted, victims))
    expected = difference(
        case,
        pick,
        run,
        victims,
        "out-tokens",
        "control",
        "out_tokens",
        also=("out-token-derivation",) if contradicts else (),
        contradicts_itself=contradicts,
    )
    return Injected(run, expected)


@fault("stop-string", "finish", places(GROUPS, "eagle"))
@fault("stop-string-under-overlap", "finish", places("tp2 tp2-dp2 tp2-pp2", "eagle"), overlap=True)
def finishes_alone(case: Case) -> Injected:
    return changed_field(case, case.pick("commit"), "finished", lambda _: "stop", "finish")
