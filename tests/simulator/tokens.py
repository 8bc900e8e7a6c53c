"""A language model of arithmetic: every token follows from the context by a fixed mixing function.

Ranks that hold the same context therefore compute the same tokens, and a rank whose context forked goes on by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

MASK = 2**64 - 1


def mix(*parts: int) -> int:
    """A 64-bit hash of integers (splitmix64 rounds), the same on every machine and in every process."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state ^ (part & MASK)) & MASK
        state = (state * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & MASK
        state ^= state >> 29
        state = (state * 0x2545F4914F6CDD1D) & MASK
        state ^= state >> 32
    return state


def text_seed(text: str) -> int:
    return mix(*text.encode("utf-8"))


@dataclass(frozen=True, slots=True)
class Model:
    """Target and draft model in one: `hit_percent` is how often a draft guesses the target's token."""

    vocabulary: int = 50_000
    hit_percent: int = 65

    def target(self, context: int) -> int:
        return mix(context, 7) % self.vocabulary

    def guess(self, context: int, branch: int = 0) -> int:
        """The draft's candidate number `branch` behind this context; candidates of one context all differ."""
        right = mix(context, 11) % 100
        right_branch = 0 if right < self.hit_percent else 1 if right < (self.hit_percent + 100) // 2 else -1
        if branch == right_branch:
            return self.target(context)
        return (self.target(context) + 1 + mix(context, 13) % 997 + 1000 * branch) % self.vocabulary

    def coin(self, context: int, index: int, percent: int) -> bool:
        return mix(context, 17, index) % 100 < percent

    def extend(self, context: int, tokens: list[int]) -> int:
        for token in tokens:
            context = mix(context, token)
        return context
