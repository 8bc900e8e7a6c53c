"""sequence-continuity: a round starts at the length with which the round before ended."""

from __future__ import annotations

from collections.abc import Iterator

from divtrace.invariants.base import Break, Context
from divtrace.walk.rounds import GOING_ON, RoundView

_RULE = "sequence-continuity"


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:
    """`seq_len` of verify layouts and of the commit = `new_seq_len` of the round before, in the same attempt."""
    before = previous.pick("new_seq_len") if previous is not None else None
    if before is None or previous is None:
        return
    for stage in ("verify", "commit"):
        for phase in GOING_ON:
            for record in current.records((stage,), (phase,)):
                seq_len = record.event.seq_len
                if seq_len is None or seq_len == before.value or not current.whole(before.record, record):
                    continue
                start = min(group.records[current.view.rank].pos for group in previous.groups)
                if not any(start < restart < record.pos for restart in context.restarts):
                    values = {
                        "seq_len": seq_len,
                        "new_seq_len of the round before": before.value,
                        "expected": before.value,
                    }
                    yield Break(_RULE, record, values)
