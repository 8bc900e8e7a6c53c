"""Do numbers rise by one? Asked several times a round, of positions, slots and paths."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 1 << 16
_NUMBERS = list(range(1 << 10))
"""As many as were asked for, up to `_MOST`."""


def rises_from(first: int, values: Sequence[int]) -> bool:
    """True if the values are `first`, `first + 1` and so on."""
    end = first + len(values)
    # A slice of numbers that exist already costs half of making them.
    if values == _NUMBERS[first:end] and first >= 0:
        return True
    return values == _numbers(first, end)


def _numbers(first: int, end: int) -> list[int]:
    if first >= 0 and end <= _MOST:
        _NUMBERS.extend(range(len(_NUMBERS), min(2 * end, _MOST)))
    return list(range(first, end))
