"""The rules: one small module each, listed here once.

The names are stable; they stand in reports, baselines and in the arguments of `divtrace explain`. The order is that of
the stages of a round, then the classes logical-layout and shape, then the invariants of one rank in the order in which
a finding names them.
"""

from __future__ import annotations

from divtrace.events import EXTRA_KINDS, Kind
from divtrace.rules import (
    accept_branch,
    accept_derivation,
    accept_length,
    accept_path,
    anchor_continuity,
    batch_membership,
    bonus_token,
    cap_trim,
    collective_order,
    collective_shape,
    commit_arithmetic,
    commit_length,
    draft_steps,
    draft_tokens,
    draft_tree,
    extra_field,
    finish,
    forward_mode,
    gate,
    init_config,
    kv_alias,
    kv_ownership,
    launch_shape,
    out_token_derivation,
    out_tokens,
    path_derivation,
    plan_bound,
    position_arithmetic,
    positions,
    prefix_length,
    row_order,
    schedule_decision,
    sequence_continuity,
    sequence_length,
    skipped_event,
    sync_group,
    sync_ineffective,
    sync_overridden,
    target_tokens,
    verify_plan,
)
from divtrace.rules.base import Rule, RuleClass

RULES: dict[str, Rule] = {
    "init-config": init_config.RULE,
    "schedule-decision": schedule_decision.RULE,
    "batch-membership": batch_membership.RULE,
    "forward-mode": forward_mode.RULE,
    "gate": gate.RULE,
    "draft-tokens": draft_tokens.RULE,
    "draft-tree": draft_tree.RULE,
    "draft-steps": draft_steps.RULE,
    "verify-plan": verify_plan.RULE,
    "target-tokens": target_tokens.RULE,
    "accept-branch": accept_branch.RULE,
    "accept-length": accept_length.RULE,
    "accept-path": accept_path.RULE,
    "bonus-token": bonus_token.RULE,
    "cap-trim": cap_trim.RULE,
    "commit-length": commit_length.RULE,
    "out-tokens": out_tokens.RULE,
    "finish": finish.RULE,
    "skipped-event": skipped_event.RULE,
    "sync-ineffective": sync_ineffective.RULE,
    "sync-overridden": sync_overridden.RULE,
    "sync-group": sync_group.RULE,
    "row-order": row_order.RULE,
    "prefix-length": prefix_length.RULE,
    "positions": positions.RULE,
    "kv-ownership": kv_ownership.RULE,
    "sequence-length": sequence_length.RULE,
    "launch-shape": launch_shape.RULE,
    "collective-shape": collective_shape.RULE,
    "collective-order": collective_order.RULE,
    "commit-arithmetic": commit_arithmetic.RULE,
    "sequence-continuity": sequence_continuity.RULE,
    "anchor-continuity": anchor_continuity.RULE,
    "plan-bound": plan_bound.RULE,
    "accept-derivation": accept_derivation.RULE,
    "path-derivation": path_derivation.RULE,
    "out-token-derivation": out_token_derivation.RULE,
    "position-arithmetic": position_arithmetic.RULE,
    "kv-alias": kv_alias.RULE,
    "extra-field": extra_field.RULE,
}
"""Every rule by its name."""

INVARIANT_ORDER: tuple[str, ...] = (
    "commit-arithmetic",
    "sequence-continuity",
    "anchor-continuity",
    "plan-bound",
    "accept-derivation",
    "path-derivation",
    "out-token-derivation",
    "position-arithmetic",
    "kv-alias",
)
"""The rules of one rank by itself; where one event breaks several, the earlier one is named."""

_EXTRA_CLASSES: dict[Kind, RuleClass] = {Kind.CONTROL: "control", Kind.LAYOUT: "logical-layout", Kind.SHAPE: "shape"}


def rule_class(name: str, field: str | None = None) -> RuleClass:
    """The class of a rule; that of `extra-field` follows from the prefix of the key, given as `extra.<key>`.

    Raises `KeyError` for a name that is no rule, and for an `extra` key of a kind that is never compared.
    """
    rule = RULES[name]
    if rule is not extra_field.RULE or field is None:
        return rule.rule_class
    prefix = field.removeprefix("extra.").partition(".")[0]
    return _EXTRA_CLASSES[EXTRA_KINDS[prefix]]
