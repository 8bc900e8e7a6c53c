"""Minimal traces, by hand, for questions that the injected faults raised."""

from __future__ import annotations

from collections.abc import Callable

from divtrace.report.model import Report

ReportOn = Callable[[str], Report]


def test_invariant_that_all_ranks_break_names_all_of_them(report_on: ReportOn) -> None:
    report = report_on("""
        ranks 0-2
        meta tp_size=3
        1 A.1 accept correct_len=1 bonus=9; commit seq_len=5 commit_len=3 new_seq_len=8
        2 - host/end
    """)

    assert report.first is not None
    assert (report.first.rule, report.first.ranks, report.first.odd_ranks) == ("commit-arithmetic", (0, 1, 2), ())
    assert sorted(report.first.where) == ["0", "1", "2"]


def test_invariant_that_two_of_three_ranks_break_names_both(report_on: ReportOn) -> None:
    report = report_on("""
        ranks 0-2
        meta tp_size=3
        1 A.1 verify/layout seq_len=5 positions=5,6 kv_positions=5,6 kv_slots=40,41 | 0-1: kv_slots=40,40
        2 - host/end
    """)

    assert report.first is not None
    assert (report.first.rule, report.first.ranks, report.first.odd_ranks) == ("kv-alias", (0, 1), (0, 1))


def test_slots_of_rows_whose_end_is_not_recorded_are_not_judged(report_on: ReportOn) -> None:
    """Without `new_seq_len` nobody knows which rows died with the commit."""
    report = report_on("""
        meta tp_size=2
        1 A.1 verify/layout seq_len=5 kv_positions=5,6,7 kv_slots=40,41,42
        1 A.1 commit commit_len=1 new_seq_len=6 | 1: new_seq_len=null
        2 B.1 verify/layout seq_len=9 kv_positions=9,10 kv_slots=41,42; commit commit_len=1 new_seq_len=10
        3 A.2 verify/layout seq_len=6 kv_positions=6 kv_slots=43; commit commit_len=1 new_seq_len=7
        4 - host/end
    """)

    assert (report.verdict, report.findings) == ("clean", ())


def test_commit_that_the_recorder_dropped_leaves_slots_unjudged(report_on: ReportOn) -> None:
    """`dropped` without a gap can hide the commit with which rows died."""
    report = report_on("""
        meta tp_size=2 dropped=0 | 1: dropped=1
        1 A.1 verify/layout seq_len=5 kv_positions=5,6,7 kv_slots=40,41,42
        1 A.1 commit commit_len=1 new_seq_len=6 | 1: -
        2 B.1 verify/layout seq_len=9 kv_positions=9,10 kv_slots=41,42; commit commit_len=1 new_seq_len=10
        3 A.2 verify/layout seq_len=6 kv_positions=6 kv_slots=43; commit commit_len=1 new_seq_len=7
        4 - host/end
    """)

    assert (report.verdict, report.findings) == ("clean", ())


def test_slot_given_twice_is_found_where_everything_is_recorded(report_on: ReportOn) -> None:
    """The two tests above would also pass if slots were never judged."""
    report = report_on("""
        meta tp_size=2
        1 A.1 verify/layout seq_len=5 kv_positions=5,6,7 kv_slots=40,41,42; commit commit_len=2 new_seq_len=7
        2 B.1 verify/layout seq_len=9 kv_positions=9,10 kv_slots=41,44; commit commit_len=1 new_seq_len=10
        3 A.2 verify/layout seq_len=7 kv_positions=7 kv_slots=43; commit commit_len=1 new_seq_len=8
        4 - host/end
    """)

    assert report.first is not None
    assert (report.first.rule, report.first.req, report.first.round) == ("kv-alias", "B", 1)


def test_verdict_line_does_not_depend_on_the_timeout(report_on: ReportOn, request: object) -> None:
    text = """
        meta tp_size=2
        1 A.1 commit commit_len=1 seq_len=5 new_seq_len=6 | 1: commit_len=2 new_seq_len=7
        2 - collective comm=tp comm_seq=0 op=all_reduce numel=4 state=STATE | 1: numel=8
    """
    timed_out, waiting = report_on(text.replace("STATE", "timeout")), report_on(text.replace("STATE", "enqueued"))

    assert (timed_out.precedence, waiting.precedence) == ("shown", "no timeout known")
    assert timed_out.summary == waiting.summary


def test_early_draft_stands_behind_the_accept_it_follows_from(report_on: ReportOn) -> None:
    """A draft at the end of a step carries the next step, so the accept of this step comes first."""
    report = report_on("""
        meta tp_size=2
        1 A.1 accept correct_len=1 bonus=9 | 1: correct_len=0 bonus=7
        2 A.2 draft draft_root=9 draft_tokens=3,4 | 1: draft_root=7
        1 A.1 commit commit_len=2 out_tokens=5,9 | 1: commit_len=1 out_tokens=7
        2 - host/end
    """)

    assert [(f.rule, f.step) for f in report.findings] == [
        ("accept-length", 1),
        ("commit-length", 1),
        ("draft-tokens", 2),
    ]


def test_null_is_neither_zero_nor_equal(report_on: ReportOn) -> None:
    report = report_on("""
        ranks 0-2
        meta tp_size=3
        1 A.1 accept correct_len=0 bonus=9 | 0: correct_len=null | 2: correct_len=1
        2 - host/end
    """)

    assert report.first is not None
    assert (report.first.rule, report.first.field) == ("accept-length", "correct_len")
    assert {rank: v for rank, v in report.first.values.items() if v is not None} == {"1": 0, "2": 1}


UNNUMBERED = """
    meta tp_size=2
    1 - collective comm=tp op=all_reduce numel=4 state=enqueued
    1 A.1 accept correct_len=1 bonus=9
    2 - schedule batch=A,B | 1: batch=A
    2 - collective comm=tp op=all_reduce numel=8 state=enqueued | 1: numel=4
    2 - collective comm=tp op=all_reduce numel=8 state=timeout | 1: numel=4
"""


def test_states_of_an_operation_without_a_number_are_one_operation(report_on: ReportOn) -> None:
    """Completions are not recorded: the timeout belongs to the operation of its step, not to the oldest one."""
    report = report_on(UNNUMBERED)

    assert [(f.rule, f.step) for f in report.findings] == [("batch-membership", 2), ("collective-shape", 2)]
    assert report.precedence == "shown"


def test_place_of_an_operation_without_a_number_is_its_own_line(report_on: ReportOn) -> None:
    shapes = [f for f in report_on(UNNUMBERED).findings if f.rule == "collective-shape"]

    assert shapes
    assert {where.line for finding in shapes for where in finding.where.values()} <= {5, 6}
