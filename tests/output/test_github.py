"""Annotations of GitHub Actions."""

from __future__ import annotations

import re

import pytest

from divtrace.output import OUTPUTS
from divtrace.report.model import Report, Verdict, Where
from output.builders import consequence, finding, report, telling_report
from output.golden_files import check_golden
from output.test_text import hostile_report

COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^,:\r\n]*,)*[a-z]+=[^,:\r\n]*)::([^\r\n]*)")


def commands(shown: Report) -> list[tuple[str, dict[str, str], str]]:
    """Level, properties and message of each command, unescaped as the runner does."""
    found = []
    for line in OUTPUTS["github"].render(shown).splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        properties = dict(part.split("=", 1) for part in match[2].split(","))
        found.append((match[1], {key: _unescaped(value) for key, value in properties.items()}, _unescaped(match[3])))
    return found


def _unescaped(text: str) -> str:
    for escape, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(escape, character)
    return text


def test_a_divergence_with_everything_around_it() -> None:
    check_golden("telling.github", OUTPUTS["github"].render(telling_report()))


def test_an_annotation_points_to_the_record_of_the_odd_rank() -> None:
    ((level, properties, message),) = commands(report("divergence", finding(odd_ranks=(1,))))

    assert level == "error"
    assert properties == {
        "file": "rank1.jsonl",
        "line": "812",
        "title": "divtrace: first divergence, accept-length (control)",
    }
    assert "correct_len:\n  rank 0  3  rank0.jsonl:812\n  rank 1  2  rank1.jsonl:812\n" in message


def test_without_an_odd_rank_it_points_to_the_lowest() -> None:
    ((_, properties, _),) = commands(report("divergence", finding(values={"10": 1, "9": 2})))

    assert properties["file"] == "rank9.jsonl"


def test_a_parquet_row_is_no_line() -> None:
    shown = finding(where={"0": Where("a.parquet", row=5), "1": Where("a.parquet", row=6)})
    ((_, properties, _),) = commands(report("divergence", shown))

    assert properties["file"] == "a.parquet"
    assert "line" not in properties


def test_the_origin_comes_first_then_independent_findings_then_consequences() -> None:
    origin = finding()
    shown = report("divergence", origin, consequence("finish", origin), finding("gate", id="i", role="independent"))

    assert [(level, properties["title"]) for level, properties, _ in commands(shown)] == [
        ("error", "divtrace: first divergence, accept-length (control)"),
        ("error", "divtrace: independent, gate (control)"),
        ("warning", "divtrace: consequence, finish (control)"),
    ]


def test_ten_findings_are_all_shown() -> None:
    origin = finding()
    chain = [consequence("finish", origin, id=f"c{number}") for number in range(9)]

    assert len(commands(report("divergence", origin, *chain))) == 10


def test_of_more_than_ten_the_last_annotation_counts_the_rest() -> None:
    origin = finding()
    chain = [consequence("finish", origin, id=f"c{number}") for number in range(4_999)]
    found = commands(report("divergence", origin, *chain, findings_left_out={"finish": 5}))

    assert len(found) == 10
    assert found[-1] == (
        "warning",
        {"title": "divtrace: 4,996 more findings"},
        "4,996 more findings; the report of divtrace lists them.",
    )


@pytest.mark.parametrize("verdict", ["rank_failed", "rank_silent", "uniform_stall", "insufficient"])
def test_another_verdict_is_one_warning(verdict: Verdict) -> None:
    shown = report(verdict, summary="Something else.", next=("Look here.",))

    assert commands(shown) == [
        ("warning", {"title": f"divtrace: {verdict.replace('_', ' ')}"}, "Something else.\nNext check: Look here.")
    ]


def test_a_clean_report_is_one_notice() -> None:
    assert commands(report(summary="Clean: 2 ranks agree.")) == [
        ("notice", {"title": "divtrace: clean"}, "Clean: 2 ranks agree.")
    ]


def test_a_hostile_name_starts_no_command_and_no_property() -> None:
    lines = OUTPUTS["github"].render(hostile_report()).splitlines()
    found = commands(hostile_report())

    assert len(lines) == len(found) == 2
    assert all(set(properties) == {"file", "line", "title"} for _, properties, _ in found)
    assert not [line for line in "\n".join(message for *_, message in found).splitlines() if line.startswith("::")]


def test_a_message_is_cut_where_github_would_cut_it() -> None:
    shown = finding(attribution="x" * 100_000)
    ((_, _, message),) = commands(report("divergence", shown))

    assert len(message) < 5_000
