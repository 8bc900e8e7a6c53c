"""Operations that carry the same number in one communicator and yet differ between its members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Literal

import msgspec

from divtrace.waits.model import RankKey

Rule = Literal["collective-order", "collective-shape"]


class Difference(msgspec.Struct, frozen=True):
    """One attribute in which the ranks differ."""

    field: str
    rule: Rule
    values: Mapping[RankKey, Hashable]


class Disagreement(msgspec.Struct, frozen=True):
    """One numbered operation of one communicator at which the ranks that issued it differ."""

    number: int
    rule: Rule
    """Another operation or source goes before another size or type."""
    ranks: tuple[RankKey, ...]
    """All that issued it."""
    differences: tuple[Difference, ...]
    odd_ranks: tuple[RankKey, ...]
    """Those without the value that more than half of the ranks hold; empty where there is no such value."""


def odd_ranks(values: Mapping[RankKey, Hashable]) -> tuple[RankKey, ...]:
    """The ranks without the value that a strict majority of the ranks holds; empty without such a majority."""
    value, count = Counter(values.values()).most_common(1)[0]
    if count * 2 <= len(values):
        return ()
    return tuple(sorted(rank for rank, own in values.items() if own != value))


def disagreements(
    number: int, fields: Mapping[str, tuple[Rule, Mapping[RankKey, Hashable]]], ranks: tuple[RankKey, ...]
) -> Disagreement | None:
    """The disagreement of one numbered operation, or None if all recorded values agree.

    Args:
        number: the operation's number in its communicator.
        fields: by name, upstream first: the rule and each rank's value; a rank without a value did not record it.
        ranks: all ranks that issued the operation.
    """
    found = tuple(
        Difference(name, rule, dict(sorted(values.items())))
        for name, (rule, values) in fields.items()
        if len(set(values.values())) > 1
    )
    if not found:
        return None
    rule: Rule = "collective-order" if any(d.rule == "collective-order" for d in found) else "collective-shape"
    named = next(d for d in found if d.rule == rule)
    return Disagreement(number, rule, tuple(sorted(ranks)), found, odd_ranks(named.values))
