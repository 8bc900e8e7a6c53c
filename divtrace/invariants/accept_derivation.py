"""accept-derivation: a greedy accept of a chain follows from the rank's own drafts and target tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from divtrace.invariants.base import Break, Context
from divtrace.walk.rounds import Found, RoundView

_RULE = "accept-derivation"


def matching_drafts(drafts: Sequence[int], targets: Sequence[int], verify_len: int | None) -> int | None:
    """Leading drafts that the target confirms, at most `verify_len - 1`; None if the targets end too early."""
    limit = len(drafts) if verify_len is None else min(len(drafts), max(verify_len - 1, 0))
    for index in range(limit):
        if index >= len(targets):
            return None
        if drafts[index] != targets[index]:
            return index
    return limit


def own_accept(current: RoundView, name: str) -> Found | None:
    """A field of the accept as the rank computed it itself: before any sync where that is recorded."""
    local = any(True for _ in current.records(("accept",), ("local",)))
    return current.pick(name, ("accept",), ("local",)) if local else current.pick(name, ("accept",))


def is_greedy(current: RoundView) -> bool:
    """True if the accept, or else the target event, says that it took the greedy branch."""
    branch = own_accept(current, "branch") or current.pick("branch")
    return branch is not None and branch.value == "greedy"


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:  # noqa: ARG001
    """`correct_len` = leading drafts equal to the target's tokens, and `bonus = target_tokens[correct_len]`.

    Not evaluated without a recorded draft (chain or tree is not known then), nor where drafts were trimmed by a cap and
    no `verify_len` tells where.
    """
    draft, targets = current.draft(), current.pick("target_tokens")
    if draft is None or draft.parents is not None or targets is None or not is_greedy(current):
        return
    correct, bonus, plan = own_accept(current, "correct_len"), own_accept(current, "bonus"), current.pick("verify_len")
    trim = current.pick("cap_trim_len")
    if plan is None and trim is not None and trim.value > 0:
        return
    inputs = [*draft.records, targets.record, *([plan.record] if plan else [])]
    if correct is not None and current.whole(correct.record, *inputs):
        expected = matching_drafts(draft.tokens, targets.value, plan.value if plan else None)
        if expected is not None and correct.value != expected:
            values = {"correct_len": correct.value, "draft_tokens": draft.tokens, "target_tokens": targets.value}
            yield Break(_RULE, correct.record, values | {"expected": expected})
            return
    if correct is None or bonus is None or not 0 <= correct.value < len(targets.value):
        return
    expected = targets.value[correct.value]
    if bonus.value != expected and current.whole(bonus.record, correct.record, *inputs):
        values = {"bonus": bonus.value, "correct_len": correct.value, "target_tokens": targets.value}
        yield Break(_RULE, bonus.record, values | {"expected": expected})
