"""Counts, durations and lags."""

from __future__ import annotations

import pytest

from divtrace.output.quantities import count, duration, lag_words
from divtrace.report.model import Lag
from output.builders import UNKNOWN_LAG


def test_counts_have_a_noun_in_the_right_number() -> None:
    assert count(1, "rank") == "1 rank"
    assert count(0, "rank") == "0 ranks"
    assert count(1024, "rank") == "1,024 ranks"
    assert count(-1, "event") == "-1 event"
    assert count(2, "other file ignored", "other files ignored") == "2 other files ignored"


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (245_100, "245.1 us"),
        (-3_000_000, "-3.0 ms"),
        (300_000_000_000, "300.0 s"),
        (900_000_000_000, "15.0 min"),
        (11_160_000_000_000, "3.1 h"),
    ],
)
def test_durations_are_in_the_unit_that_reads_best(ns: int, shown: str) -> None:
    assert duration(ns) == shown


def test_a_lag_is_in_rounds_events_and_seconds() -> None:
    assert lag_words(Lag(rounds=1, steps=2, events=6, ns=2_000_000_000)) == "+1 round, +6 events, +2.0 s"
    assert lag_words(Lag(rounds=0, steps=0, events=-2, ns=-5)) == "+0 rounds, -2 events, -5 ns"


def test_steps_stand_in_for_rounds_that_are_not_known() -> None:
    assert lag_words(Lag(rounds=None, steps=3, events=None, ns=None)) == "+3 steps"
    assert lag_words(UNKNOWN_LAG) == "lag unknown"
