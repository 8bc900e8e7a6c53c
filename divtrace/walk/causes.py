"""What follows from what: which earlier finding a later one is derived from (SPEC section 6, "Consequence").

The relations are the arithmetic of a round: the accepted length gives the committed length, that gives the new length,
that gives the next round's positions and anchor; what a batch holds gives the sizes of its launch and its collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from divtrace.walk.divergence import Divergence

_ACCEPT_INPUTS = (("target-tokens", 0), ("draft-tree", 0), ("draft-tokens", 0), ("verify-plan", 0), ("positions", 0))
_SYNCS = (("sync-overridden", 0), ("sync-ineffective", 0))
_ACCEPTS = (*_SYNCS, ("accept-length", 0), ("accept-path", 0))
_LAST_TOKEN = (("out-tokens", -1), ("bonus-token", -1), ("sync-overridden", -1), ("sync-ineffective", -1))
_LENGTH = (
    ("sequence-length", 0),
    ("commit-length", 0),
    ("sequence-length", -1),
    ("commit-length", -1),
    ("prefix-length", 0),
)

REQUEST_CAUSES: dict[str, tuple[tuple[str, int], ...]] = {
    "sequence-length": (*_LENGTH, *_ACCEPTS),
    "prefix-length": _LENGTH,
    "positions": (*_LENGTH, ("verify-plan", 0), ("draft-tree", 0)),
    "kv-ownership": (("positions", 0), *_LENGTH),
    "draft-tokens": (*_LAST_TOKEN, ("draft-steps", 0), ("sequence-length", -1), ("commit-length", -1)),
    "draft-tree": (("draft-tokens", 0), ("draft-steps", 0), *_LAST_TOKEN),
    "draft-steps": (("draft-tokens", 0), ("accept-length", -1)),
    "verify-plan": (("draft-steps", 0), ("draft-tokens", 0), ("draft-tree", 0)),
    "target-tokens": (("draft-tree", 0), ("draft-tokens", 0), ("positions", 0), *_LAST_TOKEN, ("sequence-length", -1)),
    "accept-path": _ACCEPT_INPUTS,
    "accept-length": _ACCEPT_INPUTS,
    "bonus-token": (*_ACCEPTS, *_ACCEPT_INPUTS),
    "cap-trim": (*_ACCEPTS, *_ACCEPT_INPUTS),
    "sync-ineffective": _ACCEPT_INPUTS,
    "sync-overridden": (("sync-ineffective", 0), *_ACCEPT_INPUTS),
    "commit-length": (*_ACCEPTS, ("cap-trim", 0), *_ACCEPT_INPUTS),
    "out-tokens": (*_ACCEPTS, ("bonus-token", 0), *_ACCEPT_INPUTS),
    "finish": (("commit-length", 0), ("out-tokens", 0), ("sequence-length", 0), *_ACCEPTS),
    "sequence-continuity": (("sequence-length", -1), ("commit-length", -1), *_LENGTH),
    "anchor-continuity": _LAST_TOKEN,
    "commit-arithmetic": _ACCEPTS,
    "position-arithmetic": (("positions", 0), *_LENGTH),
}
"""For each rule, the rules and rounds (relative to its own) of the same request that it follows from, nearest first."""

STEP_CAUSES: dict[str, tuple[str, ...]] = {
    "collective-shape": (
        "launch-shape",
        "batch-membership",
        "verify-plan",
        "accept-length",
        "draft-steps",
        "prefix-length",
    ),
    "collective-order": ("skipped-event", "gate", "draft-steps", "forward-mode", "batch-membership"),
    "launch-shape": ("batch-membership", "verify-plan", "draft-steps", "prefix-length"),
    "forward-mode": ("batch-membership",),
    "row-order": ("batch-membership",),
    "batch-membership": ("schedule-decision",),
}
"""For each rule, the rules that it follows from in the same step, whatever the request."""

_LEAVES_BATCH = ("schedule-decision", "finish", "commit-length", "sequence-length", "accept-length", "out-tokens")

_ONE_FOR_ONE = {
    ("correct_len", "commit_len"),
    ("commit_len", "new_seq_len"),
    ("commit_len", "seq_len"),
    ("new_seq_len", "seq_len"),
    ("seq_len", "new_seq_len"),
    ("new_seq_len", "prefix_hit"),
    ("seq_len", "positions"),
    ("new_seq_len", "positions"),
    ("commit_len", "positions"),
    ("correct_len", "positions"),
}
"""Pairs of fields in which a difference of k in the one gives a difference of k in the other."""


class Causes:
    """Looks up the causes of one replica's divergences. Feed it in causal order: `of` first, then `add`."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._by_round: dict[tuple[str, int, int | None, str], Divergence] = {}
        self._by_step: dict[tuple[int | None, str], Divergence] = {}
        self._by_request: dict[tuple[str, str], Divergence] = {}

    def add(self, divergence: Divergence) -> None:
        """Make a divergence available as a cause."""
        key = divergence.key
        for rule in divergence.rules:
            if key.req is not None:
                self._by_round.setdefault((key.req, key.attempt, key.round, rule), divergence)
                self._by_request[key.req, rule] = divergence
            self._by_step.setdefault((divergence.step, rule), divergence)

    def of(self, divergence: Divergence) -> Divergence | None:
        """The nearest earlier divergence that this one is derived from, or None."""
        return next((cause for cause in self._candidates(divergence) if is_derived(cause, divergence)), None)

    def _candidates(self, divergence: Divergence) -> Iterable[Divergence]:
        key = divergence.key
        for rule in (divergence.rule, *divergence.also):
            if key.req is not None and key.round is not None:
                for cause, offset in REQUEST_CAUSES.get(rule, ()):
                    found = self._by_round.get((key.req, key.attempt, key.round + offset, cause))
                    if found is not None:
                        yield found
            if rule == "batch-membership":
                yield from self._left_batch(divergence)
            for cause in STEP_CAUSES.get(rule, ()):
                found = self._by_step.get((divergence.step, cause))
                if found is not None:
                    yield found

    def _left_batch(self, divergence: Divergence) -> Iterable[Divergence]:
        """Divergences of the requests that only some ranks have in their batch."""
        batches = [
            set(value)
            for difference in divergence.differences
            if difference.name == "batch"
            for value in difference.values.values()
        ]
        if not batches:
            return
        for req in sorted(set().union(*batches) - set.intersection(*batches)):
            for rule in _LEAVES_BATCH:
                found = self._by_request.get((req, rule))
                if found is not None:
                    yield found


def is_derived(cause: Divergence, effect: Divergence) -> bool:
    """True if the effect's values follow from the cause's: equal causes give equal effects, and counts shift alike."""
    before, after = _values(cause), _values(effect)
    common = sorted(before.keys() & after.keys())
    if len(common) < 2:
        return bool(set(cause.ranks) & set(effect.ranks))
    for rank in common[1:]:
        first = common[0]
        if before[first] == before[rank] and after[first] != after[rank]:
            return False
        shift = _shift(cause, effect, first, rank)
        if shift is not None and shift[0] != shift[1]:
            return False
    return True


def _values(divergence: Divergence) -> Mapping[int, Any]:
    if divergence.differences:
        return divergence.differences[0].compared
    return divergence.values


def _shift(cause: Divergence, effect: Divergence, first: int, other: int) -> tuple[int, int] | None:
    """By how much the two ranks differ in the cause's and in the effect's field, where these move one for one."""
    for after in effect.differences[:1]:
        for before in cause.differences:
            if (before.name, after.name) not in _ONE_FOR_ONE:
                continue
            values = [_number(before.values.get(rank)) for rank in (first, other)]
            moved = [_number(after.values.get(rank)) for rank in (first, other)]
            if None not in values and None not in moved:
                return values[1] - values[0], moved[1] - moved[0]  # type: ignore[operator]
    return None


def _number(value: Any) -> int | None:
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
