"""out-token-derivation: the committed tokens are the accepted drafts and the bonus."""

from __future__ import annotations

from collections.abc import Iterator

from divtrace.invariants.base import Break, Context
from divtrace.walk.rounds import RoundView

_RULE = "out-token-derivation"


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:  # noqa: ARG001
    """`out_tokens` begins with the accepted draft tokens and the bonus, `commit_len` in all; more is padding."""
    out = current.pick("out_tokens")
    if out is None or current.round < 1:
        return
    commit, correct = current.pick("commit_len"), current.pick("correct_len")
    if commit is not None and len(out.value) < commit.value and current.whole(out.record, commit.record):
        yield Break(_RULE, out.record, {"out_tokens": out.value, "commit_len": commit.value})
        return
    bonus, draft = current.pick("bonus"), current.draft()
    if correct is None or bonus is None or draft is None:
        return
    if not 0 <= correct.value <= len(draft.tokens):
        return  # more than there were drafts: plan-bound says so
    inputs = [correct.record, bonus.record, *draft.records]
    accepted = list(range(1, correct.value + 1))
    if draft.parents is not None:
        path = current.pick("accept_path")
        if path is None or len(path.value) < correct.value + 1:
            return
        accepted = path.value[1 : correct.value + 1]
        inputs.append(path.record)
    if any(not 0 < node <= len(draft.tokens) for node in accepted) or not current.whole(out.record, *inputs):
        return
    expected = [draft.tokens[node - 1] for node in accepted] + [bonus.value]
    if out.value[: len(expected)] != expected:
        yield Break(_RULE, out.record, {"out_tokens": out.value, "expected": expected})
