"""Values gathered by rank, marked where they differ, and shortened around the mark."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from divtrace.output.layout import plain
from divtrace.output.shares import Share, shares
from divtrace.output.values import element_text, share_text, value_text


def shown(values: dict[str, Any], index: int | None = None, budget: int = 60) -> dict[str, str]:
    return {",".join(share.ranks): plain(share_text(share, budget)) for share in shares(values, index)}


def test_ranks_with_equal_values_share_a_line_in_the_order_of_the_lowest() -> None:
    assert shown({"10": 3, "2": 1, "0": 3, "1": 1}) == {"0,10": "3", "1,2": "1"}


def test_true_is_not_one_and_nothing_recorded_is_not_zero() -> None:
    assert shown({"0": True, "1": 1, "2": None, "3": 0}) == {"0": "true", "1": "1", "2": "not recorded", "3": "0"}


def test_the_differing_element_is_marked() -> None:
    assert shown({"0": [311, 42, 9, 77], "1": [311, 42, 15, 60]}, 2) == {
        "0": "[311, 42, >9<, 77]",
        "1": "[311, 42, >15<, 60]",
    }


def test_the_end_of_the_shorter_list_is_marked() -> None:
    assert shown({"0": [311, 42, 9], "1": [311, 42]}, 2) == {"0": "[311, 42, >9<]", "1": "[311, 42, >end<]"}
    assert shown({"0": [], "1": [5]}, 0) == {"0": "[>end<]", "1": "[>5<]"}


def test_a_list_that_ends_before_the_difference_is_marked_at_its_end() -> None:
    assert shown({"0": [1, 2, 3], "1": [1]}, 2) == {"0": "[1, 2, >3<]", "1": "[1, >end<]"}


def test_of_sets_the_elements_are_marked_that_not_all_have() -> None:
    assert shown({"0": ["B"], "1": ["A", "B"], "2": ["B", "C"]}) == {"0": "[B]", "1": "[>A<, B]", "2": "[B, >C<]"}


def test_of_maps_the_entries_are_marked_that_differ() -> None:
    values = {"0": {"tp": 8, "dp": 1}, "1": {"tp": 8, "dp": 2, "pp": 1}}

    assert shown(values) == {"0": "{tp: 8, >dp: 1<}", "1": "{tp: 8, >dp: 2<, >pp: 1<}"}


def test_the_map_of_a_single_rank_has_no_mark() -> None:
    assert shown({"1": {"slot": 466, "held by": "x"}}) == {"1": "{slot: 466, held by: x}"}


def test_as_many_elements_as_fit_stand_around_the_mark() -> None:
    values = {"0": list(range(10_000)), "1": [*range(5_000), -1, *range(5_001, 10_000)]}

    assert shown(values, 5_000, 60) == {
        "0": "[(4,998 more) 4998, 4999, >5000<, 5001, 5002 (4,997 more)]",
        "1": "[(4,998 more) 4998, 4999, >-1<, 5001, 5002 (4,997 more)]",
    }


def test_if_nothing_else_fits_the_mark_stands_alone() -> None:
    assert shown({"0": list(range(9)), "1": list(range(8))}, 8, 5)["0"] == "[(8 more) >8<]"


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60),
    st.integers(0, 59),
    st.integers(50, 120),
)
def test_a_shortened_list_fits_and_counts_what_it_leaves_out(value: list[int], index: int, budget: int) -> None:
    index = min(index, len(value))
    text = plain(share_text(Share(("0",), value, frozenset({index})), budget))
    left_out = sum(int(number) for number in _counted(text))
    listed = text.strip("[]").replace("end", "").count(",") + 1 - (index == len(value))

    assert len(text) <= budget
    assert left_out + listed == len(value)


def _counted(text: str) -> list[str]:
    return [part.partition(" more)")[0] for part in text.split("(")[1:]]


def test_strings_are_names_and_nested_lists_are_short() -> None:
    assert value_text("", 10) == '""'
    assert value_text("a b", 10) == '"a b"'
    assert value_text([[1, 2], []], 60) == "[[1, 2], []]"
    assert value_text({"k\n": None}, 60) == r"{k\n: not recorded}"


def test_an_element_alone_stands_for_its_list() -> None:
    assert element_text(Share(("0",), [5, 6]), 1, 20) == "6"
    assert element_text(Share(("0",), [5, 6]), 2, 20) == "end"
    assert element_text(Share(("0",), 7), None, 20) == "7"
