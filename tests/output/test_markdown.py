"""The report as Markdown: complete, small enough for a job's summary, and without markup from a trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from divtrace.output import OUTPUTS
from divtrace.report.model import VERDICTS, NotCompared, Report, Verdict
from output.builders import HOSTILE, consequence, coverage, finding, report, telling_report
from output.golden_files import check_golden
from output.test_text import hostile_report

ONE_MEBIBYTE = 1 << 20


def markdown_of(shown: Report) -> str:
    return OUTPUTS["markdown"].render(shown)


def tokens(text: str) -> Iterator[Token]:
    for block in MarkdownIt("commonmark").enable("table").parse(text):
        yield block
        yield from block.children or ()


def test_a_divergence_with_everything_around_it() -> None:
    check_golden("telling.md", markdown_of(telling_report()))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_has_its_heading(verdict: Verdict) -> None:
    text = markdown_of(report(verdict))

    assert text.startswith(f"## divtrace: {verdict.replace('_', ' ')}\n\n")
    assert text.endswith("\n")


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    text = markdown_of(hostile_report())
    kinds = {token.type for token in tokens(text)}
    html = {token.content for token in tokens(text) if token.type.startswith("html")}

    assert kinds <= {
        *("heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "text", "code_inline"),
        *("strong_open", "strong_close", "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
        *("table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close"),
        *("th_open", "th_close", "td_open", "td_close", "text_special", "html_inline"),
    }
    assert html == {"<!-- -->"}


def test_a_hostile_name_breaks_no_table() -> None:
    cells = [token.type for token in tokens(markdown_of(hostile_report())) if token.type in ("tr_open", "td_open")]

    assert cells == ["tr_open", "tr_open", "td_open", "td_open", "td_open", "tr_open", "td_open", "td_open", "td_open"]


def test_a_hostile_sentence_is_shown_as_it_is() -> None:
    text = markdown_of(
        report("divergence", finding(attribution="- 1. <b>x</b> *y* `z` @team #12 www.x.org https://x.org"))
    )
    shown = "".join(token.content for token in tokens(text) if token.type in ("text", "text_special"))

    assert "- 1. <b>x</b> *y* `z` @team #12 www.x.org https://x.org" in shown
    assert "https://" not in text
    assert "www." not in text
    assert "@team" not in text


@pytest.mark.parametrize("start", ["- a", "+ a", "# a", "> a", "1. a", "1) a", "= a", "    code", "| a |"])
def test_a_sentence_cannot_start_a_block(start: str) -> None:
    text = markdown_of(report(summary=start, notes=(start,)))
    summary = text.split("\n\n")[1]

    assert [token.type for token in tokens(summary)][:2] == ["paragraph_open", "inline"]


def test_a_long_sentence_is_cut() -> None:
    text = markdown_of(report(summary="x" * 10_000))

    assert "x" * 600 + "..." in text
    assert "x" * 601 not in text


def test_five_thousand_hostile_findings_fit_into_a_job_summary() -> None:
    astral = "\U000e0041" * 200
    origin = finding(req=astral, site=astral, attribution=astral * 10, values={"0": [astral] * 9, "1": [astral, "b"]})
    chain = [
        consequence("finish", origin, id=f"c{number}", req=astral, site=astral, values={"0": astral, "1": HOSTILE})
        for number in range(5_000)
    ]
    others = [finding("gate", id=f"i{number}", role="independent", req=astral, site=astral) for number in range(5_000)]
    shown = report(
        "divergence",
        origin,
        *chain,
        *others,
        findings_left_out={"finish": 10},
        notes=tuple(astral * 9 for _ in range(500)),
        coverage=coverage(
            not_compared=tuple(NotCompared(rank, f"{rank} {astral}") for rank in range(1024)),
            unknown_fields={f"{astral}{number}": 1 for number in range(500)},
            missing_fields=tuple(f"{astral}{number}" for number in range(500)),
        ),
    )
    text = markdown_of(shown)

    assert len(text.encode()) < ONE_MEBIBYTE
    assert "and 4,960 more; the JSON report has them" in text
    assert "and 4,950 more; the JSON report has them" in text


def test_findings_are_numbered_as_in_the_text_report() -> None:
    text = markdown_of(telling_report())

    assert "- no. 3: `batch-membership` at" in text
    assert "derived from no. 2" in text
