"""JUnit XML, read back with junitparser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from divtrace.output import OUTPUTS
from divtrace.report.model import Report, Verdict
from output.builders import consequence, finding, replica, report, request, telling_report
from output.golden_files import check_golden
from output.test_text import hostile_report


def suites(shown: Report) -> list[TestSuite]:
    return list(JUnitXml.fromstring(OUTPUTS["junit"].render(shown).encode()))


def cases(shown: Report) -> Iterator[TestCase]:
    for suite in suites(shown):
        yield from suite


def outcome(case: TestCase) -> list[tuple[type, str | None]]:
    return [(type(result), result.message) for result in case.result]


def test_a_divergence_with_everything_around_it() -> None:
    check_golden("telling.xml", OUTPUTS["junit"].render(telling_report()))


def test_a_suite_for_each_replica_and_a_case_for_each_request_and_the_verdict() -> None:
    first, second = suites(telling_report())

    assert [(case.classname, case.name) for case in first] == [
        ("divtrace.replica 0.request", "A"),
        ("divtrace.replica 0.request", "B"),
        ("divtrace.replica 0.request", "C"),
        ("divtrace.replica 0", "verdict"),
    ]
    assert [case.name for case in second] == ["q-2", "verdict"]
    assert (first.tests, first.failures, first.errors, first.skipped) == (4, 1, 0, 1)


def test_counts_of_the_whole_are_those_of_its_suites() -> None:
    document = JUnitXml.fromstring(OUTPUTS["junit"].render(telling_report()).encode())
    counted = [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in document]

    assert (document.tests, document.failures, document.errors, document.skipped) == tuple(
        sum(numbers) for numbers in zip(*counted, strict=True)
    )


def test_an_origin_and_an_independent_finding_fail_their_requests() -> None:
    for case in cases(report("divergence", finding(), finding("gate", id="i", role="independent", req="B"))):
        if case.name != "verdict":
            ((kind, _),) = outcome(case)
            assert kind is Failure


def test_the_text_says_all_that_the_attributes_say() -> None:
    (case, _) = cases(report("divergence", finding(odd_ranks=(1,))))
    (failure,) = case.result

    assert failure.type == "accept-length"
    assert failure.message == "accept-length: correct_len: 3 on rank 0, 2 on rank 1"
    assert failure.text.splitlines() == [
        "accept-length: correct_len: 3 on rank 0, 2 on rank 1",
        "#1 origin: accept-length (control)",
        "request A, round 7, step 307, accept/eagle-greedy",
        "correct_len:",
        "  rank 0  3  rank0.jsonl:812",
        "  rank 1  2  rank1.jsonl:812",
        "odd: rank 1",
        "The ranks hold different values here.",
    ]


def test_several_findings_of_a_request_are_one_failure() -> None:
    (case, _) = cases(report("divergence", finding(), finding("gate", id="i", role="independent")))

    assert len(case.result) == 1
    assert "#2 independent: gate" in case.result[0].text


def test_a_consequence_is_mentioned_and_fails_nothing() -> None:
    origin = finding()
    chain = [consequence("finish", origin, id=f"c{number}", req="B") for number in range(22)]
    diverged, followed, _ = cases(report("divergence", origin, *chain))

    assert outcome(diverged)[0][0] is Failure
    assert outcome(followed) == []
    assert "#2 finish, request B, round 7" in followed.system_out
    assert "derived from #1" in followed.system_out
    assert "and 2 more consequences" in followed.system_out


def test_a_request_compared_only_in_part_is_skipped_unless_it_failed() -> None:
    requests = (request("A", "rank 1: its trace is cut"), request("B", "rank 1: its trace is cut"))
    failed, skipped, _ = cases(report("divergence", finding(), requests=requests))

    assert outcome(failed)[0][0] is Failure
    assert "rank 1: its trace is cut" in failed.system_out
    assert outcome(skipped) == [(Skipped, "compared only in part")]
    assert "rank 1: its trace is cut" in skipped.result[0].text


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        ("clean", None),
        ("divergence", None),
        ("rank_failed", Error),
        ("rank_silent", Error),
        ("uniform_stall", Error),
        ("insufficient", Skipped),
    ],
)
def test_the_last_case_carries_the_verdict(verdict: Verdict, kind: type | None) -> None:
    (case,) = cases(report(verdict, summary="What was found.", next=("Look here.",)))

    assert [found for found, _ in outcome(case)] == ([] if kind is None else [kind])
    assert f"verdict of this replica: {verdict.replace('_', ' ')}" in case.system_out
    assert "What was found." in case.system_out
    assert "next check: Look here." in case.system_out


def test_a_finding_without_a_request_fails_the_last_case() -> None:
    (case,) = cases(report("divergence", finding("row-order", {"0": ["A"], "1": ["B"]}, field="batch", req=None)))

    assert case.name == "verdict"
    assert outcome(case) == [(Failure, "row-order: batch: [>A<] on rank 0, [>B<] on rank 1")]


def test_worlds_are_told_apart() -> None:
    shown = report("divergence", finding(world=1, replica=0), replicas=(replica(), replica(world=1)))

    assert [suite.name for suite in suites(shown)] == ["world 0, replica 0", "world 1, replica 0"]
    assert [len(list(suite)) for suite in suites(shown)] == [1, 2]


def test_hostile_names_make_no_markup() -> None:
    text = OUTPUTS["junit"].render(hostile_report())
    case, verdict = cases(hostile_report())

    assert case.name.startswith(r'"<script>alert(1)</script>\n::error file=x::boo\x1b[31m\x00\x7f\x9b2J \u202e')
    assert verdict.name == "verdict"
    assert "<script>" not in text


def test_five_thousand_findings_are_quick_and_few_words() -> None:
    origin = finding()
    chain = [consequence("finish", origin, id=f"c{number}", req=f"r{number % 50}") for number in range(5_000)]

    assert len(OUTPUTS["junit"].render(report("divergence", origin, *chain))) < 500_000
