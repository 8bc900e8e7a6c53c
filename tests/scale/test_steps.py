"""Positions by step, in little memory, are the mapping that they were."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtrace.align.steps import StepPositions, packed

STEPS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 50)
POSITIONS = st.integers(0, 1 << 40)


@given(st.dictionaries(STEPS, st.tuples(POSITIONS, POSITIONS)), STEPS)
def test_packed_mappings_are_equal_to_the_dictionaries(entries: dict[int, tuple[int, int]], other: int) -> None:
    first = {step: positions[0] for step, positions in entries.items()}
    last = {step: positions[1] for step, positions in entries.items()}

    one, two = packed(first, last)

    assert isinstance(one, StepPositions)
    assert isinstance(two, StepPositions)
    assert dict(one) == first
    assert dict(pickle.loads(pickle.dumps(two))) == last
    assert list(one.steps) == sorted(first)
    assert one.get(other, -1) == first.get(other, -1)


def test_a_step_that_is_not_there_is_a_key_error() -> None:
    one, _ = packed({1: 0, 3: 7}, {1: 6, 3: 9})

    with pytest.raises(KeyError):
        one[2]
    with pytest.raises(KeyError):
        one[4]


def test_steps_beyond_sixty_three_bits_stay_as_they_are() -> None:
    first, last = {1 << 63: 0}, {1 << 63: 1}

    assert packed(first, last) == (first, last)


def test_a_million_steps_take_a_dozen_bytes_each() -> None:
    numbers = {step: step * 400 for step in range(1_000_000)}

    assert len(pickle.dumps(packed(numbers, numbers))) < 13_000_000
