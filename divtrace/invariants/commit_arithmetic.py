"""commit-arithmetic: what is committed is what was accepted and the bonus; the length grows by it."""

from __future__ import annotations

from collections.abc import Iterator

from divtrace.invariants.base import Break, Context
from divtrace.walk.rounds import GOING_ON, RoundView
from divtrace.walk.settings import added_by_commit

_RULE = "commit-arithmetic"


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:  # noqa: ARG001
    """From round 1: `commit_len = correct_len + 1` (UNO: + 2) and `new_seq_len = seq_len + commit_len`.

    `cap_trim_len` is not subtracted again: the accepted length is already capped (SGLang, dspark_accept.py).
    """
    if current.round < 1:
        return
    commit, correct = current.pick("commit_len"), current.pick("correct_len")
    added = added_by_commit(context.algorithm)
    if commit and correct and current.whole(commit.record, correct.record) and commit.value != correct.value + added:
        values = {"commit_len": commit.value, "correct_len": correct.value, "expected": correct.value + added}
        yield Break(_RULE, commit.record, values)
    for phase in GOING_ON:
        for record in current.records(("commit",), (phase,)):
            event = record.event
            if event.commit_len is None or event.seq_len is None or event.new_seq_len is None:
                continue
            expected = event.seq_len + event.commit_len
            if event.new_seq_len != expected:
                values = {"new_seq_len": event.new_seq_len, "seq_len": event.seq_len, "commit_len": event.commit_len}
                yield Break(_RULE, record, values | {"expected": expected})
