"""Do numbers rise by one? Asked several times a round, of positions, slots and paths."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 1 << 16
_NUMBERS = list(range(_MOST))


def rises_from(first: int, values: Sequence[int]) -> bool:
    """True if the values are `first`, `first + 1` and so on."""
    end = first + len(values)
    # A slice of numbers that exist already costs half of making them.
    return values == (_NUMBERS[first:end] if first >= 0 and end <= _MOST else list(range(first, end)))
