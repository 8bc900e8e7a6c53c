"""Where an event stands, and what its ranks hold, in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from divtrace.output.layout import plain
from divtrace.output.wording import brief_words, place_words, rule_words
from output.builders import finding, place


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "request A, round 7, step 307, verify/plan"),
        ({"attempt": 2}, "request A, attempt 2, round 7, step 307, verify/plan"),
        ({"req": None, "attempt": None, "round": None}, "step 307, verify/plan"),
        ({"step": None, "round": None}, "request A, verify/plan"),
        ({"site": None}, "request A, round 7, step 307, verify"),
        ({"site": "two words"}, 'request A, round 7, step 307, verify/"two words"'),
        ({"phase": "local"}, "request A, round 7, step 307, verify/plan, local"),
        ({"n": 3}, "request A, round 7, step 307, verify/plan, occurrence 3"),
    ],
)
def test_a_place_leaves_out_what_goes_without_saying(changes: dict[str, Any], words: str) -> None:
    assert place_words(place(**changes)) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"comm": "tp", "comm_ranks": (0, 1), "comm_seq": 5}, "operation 5 of communicator tp (ranks 0-1)"),
        ({"comm": "tp", "comm_ranks": None, "comm_seq": None}, "an operation of communicator tp"),
        ({"comm": None, "comm_ranks": (2,), "comm_seq": 0}, "operation 0 (rank 2)"),
    ],
)
def test_a_collective_names_its_operation(changes: dict[str, Any], words: str) -> None:
    shown = finding(req=None, round=None, stage="collective", site=None, **changes)

    assert place_words(shown) == f"step 307, collective, {words}"


def test_a_rule_names_its_class_and_the_others_of_its_event() -> None:
    assert rule_words(finding()) == "accept-length (control)"
    assert rule_words(finding(also=("bonus-token", "plan-bound"))) == (
        "accept-length (control), also bonus-token, plan-bound"
    )


def test_a_brief_names_four_values_and_counts_the_others() -> None:
    shown = finding(values={"0": 3, "1": 2, "2": 3, "3": 1, "4": 4, "5": 5, "6": 6})

    assert brief_words(shown) == ("correct_len: 3 on ranks 0,2, 2 on rank 1, 1 on rank 3, 4 on rank 4, 2 other values")


def test_a_brief_gives_the_differing_element_of_a_list() -> None:
    shown = finding(values={"0": [7, 8], "1": [7]}, field="out_tokens", index=1)

    assert brief_words(shown) == "out_tokens[1]: 8 on rank 0, end on rank 1"


def test_a_brief_of_a_set_marks_what_not_all_have() -> None:
    assert plain(brief_words(finding(values={"0": ["a"], "1": []}, field="batch"))) == (
        "batch: [>a<] on rank 0, [] on rank 1"
    )


def test_a_brief_of_a_broken_invariant_needs_no_field() -> None:
    shown = finding("kv-alias", {"1": {"slot": 466, "position": 25, "held by": "x", "held for": 28}}, field=None)

    assert brief_words(shown) == "{slot: 466, position: 25, held by: x, held for: 28} on rank 1"
    assert brief_words(finding("kv-alias", {"1": None}, field=None)) == "breaks it on rank 1"
