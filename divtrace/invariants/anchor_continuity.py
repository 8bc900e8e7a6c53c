"""anchor-continuity: a draft starts from the token that the round before committed last."""

from __future__ import annotations

from collections.abc import Iterator

from divtrace.invariants.base import Break, Context
from divtrace.walk.rounds import Found, RoundView

_RULE = "anchor-continuity"


def last_committed(round_view: RoundView) -> Found | None:
    """The token that a round committed last: the end of `out_tokens` if its length is known, else the bonus token."""
    out, commit = round_view.pick("out_tokens"), round_view.pick("commit_len")
    if out is not None and commit is not None and 0 < commit.value <= len(out.value):
        return Found(out.value[commit.value - 1], out.record)
    bonus = round_view.pick("bonus")
    if bonus is not None:
        return bonus
    if out is not None and round_view.round == 0 and out.value:
        return Found(out.value[-1], out.record)
    return None


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:  # noqa: ARG001
    """`draft_root` = the last committed token of the round before."""
    root = current.pick("draft_root")
    before = last_committed(previous) if previous is not None else None
    if root is None or before is None or root.value == before.value or not current.whole(before.record, root.record):
        return
    values = {"draft_root": root.value, "last committed token": before.value, "expected": before.value}
    yield Break(_RULE, root.record, values)
