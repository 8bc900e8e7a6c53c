"""Numbers that rise by one are told from others, below and above those that are kept."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from divtrace.sieve import rising
from divtrace.sieve.rising import rises_from


@given(
    st.one_of(st.integers(-5, 5), st.integers(1000, 1050), st.integers(65500, 65600), st.integers(2**40, 2**40 + 2)),
    st.integers(0, 70),
    st.one_of(st.none(), st.integers(0, 69)),
)
@example(-3, 3, None)
@example(-1030, 3, None)
def test_numbers_that_rise_by_one(first: int, count: int, wrong: int | None) -> None:
    values = list(range(first, first + count))
    if wrong is not None and wrong < count:
        values[wrong] += 1
        assert not rises_from(first, values)
    else:
        assert rises_from(first, values)
        assert rises_from(first + 1, values) is (not values)


def test_numbers_counted_from_the_end_are_no_negative_ones() -> None:
    assert rising._NUMBERS[-len(rising._NUMBERS) :][:3] == [0, 1, 2]
    assert not rises_from(-len(rising._NUMBERS), [0, 1, 2])
