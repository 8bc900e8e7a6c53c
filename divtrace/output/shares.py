"""Values by rank, gathered: ranks that hold the same value share one line, and what differs in it is marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from divtrace.output.ranks import rank_key


@dataclass(frozen=True, slots=True)
class Share:
    """The ranks that hold one value, in order."""

    ranks: tuple[str, ...]
    value: Any
    marked: frozenset[int] = frozenset()
    """Places in a list, or in a map's entries, in which this value differs; its length stands for the end."""


def shares(values: Mapping[str, Any], index: int | None) -> tuple[Share, ...]:
    """The values in the order of their lowest ranks, each with its differing places.

    A list is marked at `index`. Without one the lists are sets of which the elements that not all have are marked, and
    maps are marked where an entry differs.
    """
    holders: dict[bytes, list[str]] = {}
    content: dict[bytes, Any] = {}
    for rank in sorted(values, key=rank_key):
        key = _key(values[rank])
        holders.setdefault(key, []).append(rank)
        content[key] = values[rank]
    distinct = list(content.values())
    return tuple(
        Share(tuple(ranks), content[key], _marked(content[key], distinct, index)) for key, ranks in holders.items()
    )


def _key(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _marked(value: Any, distinct: Sequence[Any], index: int | None) -> frozenset[int]:
    if isinstance(value, list | tuple) and index is not None:
        return frozenset({min(index, len(value))})
    if isinstance(value, list | tuple):
        others = [{_key(element) for element in other} for other in distinct if isinstance(other, list | tuple)]
        common = set.intersection(*others)
        return frozenset(place for place, element in enumerate(value) if _key(element) not in common)
    if isinstance(value, Mapping):
        maps = [other for other in distinct if isinstance(other, Mapping)]
        return frozenset(
            place
            for place, key in enumerate(value)
            if len({_key(other[key]) if key in other else None for other in maps}) > 1
        )
    return frozenset()
