"""Physical KV slots of one rank. Every rank hands out other numbers, as real allocators may."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class SlotPool:
    """A free list in an order of the rank's own."""

    rank: int
    seed: int
    size: int = 768
    free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.free = list(range(self.size))
        random.Random(self.seed * 1009 + self.rank).shuffle(self.free)

    def take(self, count: int) -> list[int]:
        return [self.free.pop() for _ in range(count)]

    def give_back(self, slots: list[int]) -> None:
        self.free.extend(slots)
