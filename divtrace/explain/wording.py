"""Small words that all sentences share: ranks as ranges, values in short, places."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LONGEST = 48


def rank_ranges(ranks: Iterable[int]) -> str:
    """Ranks as ranges, `0-7,9`."""
    known = sorted(set(ranks))
    parts: list[str] = []
    start = previous = None
    for rank in [*known, None]:
        if previous is not None and rank == previous + 1:
            previous = rank
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = rank
    return ",".join(parts)


def ranks_phrase(ranks: Iterable[int]) -> str:
    """`rank 1`, or `ranks 0-2`."""
    known = sorted(set(ranks))
    return f"rank {known[0]}" if len(known) == 1 else f"ranks {rank_ranges(known)}"


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def short(value: Any, index: int | None = None) -> str:
    """A value in few characters, safe to print: JSON in ASCII, of a list the element meant."""
    if isinstance(value, list):
        if index is not None:
            return short(value[index]) if index < len(value) else "nothing"
        text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
        return text if len(text) <= _LONGEST else f"a list of {len(value)}"
    text = json.dumps(value, ensure_ascii=True, sort_keys=True)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def same_values(values: Mapping[int, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    """Values with the ranks that hold them, by the lowest rank."""
    groups: dict[str, tuple[Any, list[int]]] = {}
    for rank, value in sorted(values.items()):
        groups.setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(rank)
    return [(value, tuple(ranks)) for value, ranks in groups.values()]


def counted(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
