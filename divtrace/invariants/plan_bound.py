"""plan-bound: a plan verifies at least the root and at most its width; no more drafts are accepted than it verified."""

from __future__ import annotations

from collections.abc import Iterator

from divtrace.invariants.base import Break, Context
from divtrace.walk.rounds import RoundView

_RULE = "plan-bound"


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:  # noqa: ARG001
    """`1 <= verify_len <= num_draft_tokens`, `correct_len <= verify_len - 1` and `correct_len <= len(draft_tokens)`."""
    plan, width = current.pick("verify_len"), current.pick("num_draft_tokens")
    correct, draft = current.pick("correct_len"), current.draft()
    if plan is not None:
        low = plan.value < 1
        high = width is not None and plan.value > width.value and current.whole(plan.record, width.record)
        if low or high:
            values = {"verify_len": plan.value}
            yield Break(_RULE, plan.record, values | ({"num_draft_tokens": width.value} if width else {}))
    if correct is None:
        return
    if plan is not None and correct.value > plan.value - 1 and current.whole(plan.record, correct.record):
        yield Break(_RULE, correct.record, {"correct_len": correct.value, "verify_len": plan.value})
    elif draft is not None and correct.value > len(draft.tokens) and current.whole(correct.record, *draft.records):
        yield Break(_RULE, correct.record, {"correct_len": correct.value, "drafts": len(draft.tokens)})
