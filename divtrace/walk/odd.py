"""Odd ranks: those that differ from a strict majority, or, without one, contradict themselves or the sync's source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec


def by_majority(values: Mapping[int, Any], ranks: Collection[int]) -> tuple[int, ...] | None:
    """Ranks without the value that more than half of `ranks` hold; None if no value is held by so many."""
    texts = {rank: msgspec.json.encode(value) for rank, value in values.items()}
    counts = Counter(texts.values())
    for text, count in counts.items():
        if 2 * count > len(ranks):
            return tuple(sorted(rank for rank in texts if texts[rank] != text))
    return None


def breakers(broken: Collection[int], everyone: Collection[int]) -> tuple[int, ...]:
    """The ranks that break a rule, unless all do: then nobody stands out."""
    return () if set(broken) >= set(everyone) else tuple(sorted(broken))


def against_source(values: Mapping[int, Any], source: int | None) -> tuple[int, ...]:
    """Ranks whose value is not that of the recorded sync source; none if the source recorded no value."""
    if source is None or source not in values:
        return ()
    return tuple(sorted(rank for rank, value in values.items() if value != values[source]))
