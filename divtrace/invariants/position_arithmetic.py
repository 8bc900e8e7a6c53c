"""position-arithmetic: rows of a verify stand where the confirmed length and the draft's shape put them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from divtrace.invariants.base import Break, Context
from divtrace.walk.compare import significant
from divtrace.walk.rounds import GOING_ON, Draft, RoundView

_RULE = "position-arithmetic"


def depths(parents: Sequence[int]) -> list[int] | None:
    """Depth of every node, the root first; None if a parent does not stand before its child."""
    found = [0]
    for parent in parents:
        if not 0 <= parent < len(found):
            return None
        found.append(found[parent] + 1)
    return found


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:  # noqa: ARG001
    """Verify: chain `seq_len + j`, tree `seq_len + depth(j)`, unknown shape: the first row. Prefill: consecutive.

    Drafter positions are not judged: EAGLE's drafter works one position before the root.
    """
    for phase in GOING_ON:
        for record in current.records(("verify", "prefill"), (phase,)):
            if record.event.positions is None:
                continue
            positions = significant("positions", record.event.positions, record.event, current)
            if record.event.stage == "prefill":
                expected = list(range(positions[0], positions[0] + len(positions))) if positions else []
                if positions != expected:
                    yield Break(_RULE, record, {"positions": positions, "expected": expected})
                continue
            own = record.event.seq_len
            found = current.pick("seq_len", ("verify",)) if own is None else None
            seq_len = own if own is not None else None if found is None else found.value
            if seq_len is None or (found is not None and not current.whole(found.record, record)):
                continue
            expected = _expected(seq_len, positions, current.draft(), current)
            if positions[: len(expected)] != expected:
                yield Break(_RULE, record, {"positions": positions, "seq_len": seq_len, "expected": expected})


def _expected(seq_len: int, positions: Sequence[int], draft: Draft | None, current: RoundView) -> list[int]:
    if draft is None:
        return [seq_len][: len(positions)]
    rows = len(draft.tokens) + 1
    plan = current.pick("verify_len")
    if plan is not None:
        rows = min(rows, max(plan.value, 1))
    depth: list[int] | None = list(range(rows)) if draft.parents is None else depths(draft.parents)
    if depth is None:
        return [seq_len][: len(positions)]
    return [seq_len + d for d in depth[:rows]][: len(positions)]
