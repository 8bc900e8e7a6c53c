"""Ranks as ranges."""

from __future__ import annotations

import pytest

from divtrace.output.ranks import rank_key, rank_ranges, ranks_words


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        ([3], "3"),
        ([0, 1], "0-1"),
        ([9, 7, 6, 5, 4, 3, 2, 1, 0], "0-7,9"),
        (["0", "2", "10"], "0,2,10"),
        (["0/0", "0/1", "1/0", "1/1", "1/3"], "0/0-1,1/0-1,1/3"),
        ([1, 1, 2], "1-2"),
        (range(1024), "0-1023"),
        ([], ""),
    ],
)
def test_consecutive_ranks_of_one_world_share_a_range(ranks: list[int | str], shown: str) -> None:
    assert rank_ranges(ranks) == shown


def test_ranges_beyond_the_limit_are_counted_by_their_ranks() -> None:
    every_other = range(0, 1024, 2)

    assert rank_ranges(every_other, 3) == "0,2,4 and 509 more"
    assert rank_ranges([0, 2, 4, 5, 6], 2) == "0,2 and 3 more"


def test_the_noun_follows_the_number() -> None:
    assert ranks_words([3]) == "rank 3"
    assert ranks_words(["0", "1"]) == "ranks 0-1"
    assert ranks_words([]) == "no rank"


def test_keys_are_in_the_order_of_worlds_and_numbers() -> None:
    assert sorted(["1/0", "0/10", "0/9"], key=rank_key) == ["0/9", "0/10", "1/0"]
    assert rank_key(7) == rank_key("7") == rank_key("0/7") == (0, 7)
