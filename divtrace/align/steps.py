"""Positions by step in a few bytes each: a day of a thousand ranks has billions of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

_SMALL, _LARGE = range(1 << 32), range(-(1 << 63), 1 << 63)


class StepPositions(Mapping[int, int]):
    """A mapping from steps to positions that takes 4 to 16 bytes an entry, in the order of the steps."""

    __slots__ = ("_positions", "steps")

    def __init__(self, steps: array[int], positions: array[int]) -> None:
        """Take over steps, rising, and the position of each."""
        self.steps = steps
        self._positions = positions

    def __getitem__(self, step: int) -> int:
        """The position of a step; raises KeyError for one that is not there."""
        at = bisect_left(self.steps, step)
        if at == len(self.steps) or self.steps[at] != step:
            raise KeyError(step)
        return self._positions[at]

    def __iter__(self) -> Iterator[int]:
        """The steps, rising."""
        return iter(self.steps)

    def __len__(self) -> int:
        """How many steps there are."""
        return len(self.steps)


def packed(first: Mapping[int, int], last: Mapping[int, int]) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """The same two mappings, in less memory where they have the same steps and their numbers allow it."""
    steps = sorted(first)
    if first.keys() != last.keys():
        return first, last
    keys = _array(steps)
    firsts, lasts = _array([first[step] for step in steps]), _array([last[step] for step in steps])
    if keys is None or firsts is None or lasts is None:
        return first, last
    return StepPositions(keys, firsts), StepPositions(keys, lasts)


def _array(numbers: Sequence[int]) -> array[int] | None:
    low, high = (min(numbers), max(numbers)) if numbers else (0, 0)
    if low in _SMALL and high in _SMALL:
        return array("I", numbers)
    return array("q", numbers) if low in _LARGE and high in _LARGE else None
