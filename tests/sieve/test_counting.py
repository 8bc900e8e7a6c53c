"""Rounds are counted once, in whatever order they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from divtrace.sieve.counting import RoundCount


@given(st.lists(st.integers(0, 40), max_size=80))
def test_every_round_counts_once_and_the_prefill_never(numbers: list[int]) -> None:
    count = RoundCount()
    assert sum(count.add(number) for number in numbers) == len(set(numbers) - {0})
