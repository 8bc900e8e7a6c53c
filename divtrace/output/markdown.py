"""The report as Markdown, for the summary of a CI job (at most 1 MiB there) or an issue.

Names and values from the trace stand in code spans only; sentences are stripped of everything that Markdown would take
for markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from divtrace.output.base import OutputOptions
from divtrace.output.escape import markdown_code, markdown_prose, name
from divtrace.output.layout import plain
from divtrace.output.quantities import count
from divtrace.output.ranks import ranks_words
from divtrace.output.text_context import (
    DRIFT,
    HEALED,
    MOST_LINES,
    evidence_section,
    input_section,
    reasons,
    site_words,
    traced,
    wait_words,
)
from divtrace.output.text_findings import consequences, independent, labels
from divtrace.output.value_rows import field_rows
from divtrace.output.wording import (
    brief_words,
    differences,
    field_words,
    link_words,
    odd_words,
    place_words,
    share_value,
    verdict_words,
)
from divtrace.report.model import Finding, Report

MOST_FINDINGS = 50
"""Findings listed under one heading."""
MOST_FIELDS = 6
VALUE_BUDGET = 100
LONGEST_SENTENCE = 600
UNWRAPPED = OutputOptions(width=1_000_000)
ROOM = 400_000
"""Bytes for the findings of one heading; the whole stays well under the 1 MiB that GitHub takes."""


def render(report: Report, _options: OutputOptions) -> str:
    """Headings in the order of the text report, each left out if it has nothing to say."""
    names = labels(report)
    blocks = [f"## divtrace: {verdict_words(report.verdict)}", _sentence(report.summary)]
    if report.first is not None:
        blocks += ["### First divergence", *_full(report.first)]
        before = "none on record" if report.last_agreement is None else _code(place_words(report.last_agreement))
        blocks.append(f"Last agreement: {before}. Precedes the timeout: {report.precedence}.")
    chain, others = consequences(report), independent(report)
    left_out = sum(report.findings_left_out.values())
    if chain or left_out:
        blocks.append(f"### What followed ({count(len(chain) + left_out, 'finding')})")
        blocks += _entries((_short(finding, names) for finding in chain), len(chain) + left_out)
    if others:
        blocks.append(f"### Independent of the first divergence ({count(len(others), 'finding')})")
        blocks += _entries((_short(finding, names) for finding in others), len(others))
    blocks += _context(report)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _context(report: Report) -> Iterator[str]:
    for title, counts in ((HEALED, report.healed), (DRIFT, report.drift)):
        yield from _titled(title, [_code(site_words(entry)) for entry in counts])
    progress = (("behind", report.progress.behind), ("ahead", report.progress.ahead))
    waits = [f"{word}: {ranks_words(ranks)}" for word, ranks in progress if ranks]
    if report.progress.cycle:
        waits.append(f"crossed order: {ranks_words(report.progress.cycle)} wait for each other")
    waits += [_code(wait_words(wait)) for wait in report.progress.waits[:MOST_LINES]]
    yield from _titled("Progress", waits)
    yield from _titled("Evidence", [_code(plain(line.strip())) for line in evidence_section(report, UNWRAPPED)[1:]])
    missing = [f"{ranks}: {_sentence(why)}" for ranks, why in reasons(report.coverage)]
    if report.coverage.missing_fields and traced(report):
        missing.append(f"recorded by no rank: {_code(', '.join(map(name, report.coverage.missing_fields)))}")
    yield from _titled("Not compared", missing)
    yield from _titled("Notes", [_sentence(note) for note in report.notes])
    yield from _titled("Next check", [_sentence(step) for step in report.next])
    yield "### Input"
    yield "\n".join("- " + _code(line.strip()) for line in input_section(report, UNWRAPPED))


def _full(finding: Finding) -> Iterator[str]:
    also = f", also {', '.join(map(_code, finding.also))}" if finding.also else ""
    yield f"**{_code(finding.rule)}** ({finding.rule_class}){also} at {_code(place_words(finding))}"
    shown = differences(finding)
    for difference in shown[:MOST_FIELDS]:
        title = _code(field_words(difference.name, difference.index)) if difference.name else "recorded"
        rows, left_out = field_rows(finding, difference)
        table = [f"| ranks | {title} | where |", "|---|---|---|"]
        for row in rows:
            ranks = f"**{row.ranks}**" if row.odd else row.ranks
            places = _code(row.place_words) if row.places else ""
            table.append(f"| {ranks} | {_code(share_value(finding, row.share, VALUE_BUDGET))} | {places} |")
        yield "\n".join(table)
        yield left_out
    if len(shown) > MOST_FIELDS:
        yield f"{count(len(shown) - MOST_FIELDS, 'more field')} of this event differ."
    odd = odd_words(finding)
    yield _sentence(finding.attribution) + (f" ({odd})" if odd else "")


def _short(finding: Finding, names: dict[str, str]) -> str:
    link = link_words(finding, names).replace("#", "no. ")
    number = names[finding.id].removeprefix("#")
    held = f"{_code(finding.rule)} at {_code(place_words(finding))}: {_code(brief_words(finding))}"
    return f"- no. {number}: {held}" + (f" ({link})" if link else "")


def _entries(entries: Iterable[str], total: int) -> list[str]:
    """The entries as one list, as many as the limits allow, and how many more there are."""
    listed: list[str] = []
    room = ROOM
    for entry in entries:
        room -= len(entry.encode()) + 1
        if len(listed) == MOST_FINDINGS or room < 0:
            break
        listed.append(entry)
    if len(listed) < total:
        listed.append(f"- and {total - len(listed):,} more; the JSON report has them")
    return ["\n".join(listed)]


def _titled(title: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        listed = [f"- {entry}" for entry in entries[:MOST_LINES]]
        if len(entries) > MOST_LINES:
            listed.append(f"- and {len(entries) - MOST_LINES:,} more")
        yield f"### {title}"
        yield "\n".join(listed)


def _code(words: str) -> str:
    return markdown_code(plain(words))


def _sentence(text: str) -> str:
    cut = text if len(text) <= LONGEST_SENTENCE else text[:LONGEST_SENTENCE] + "..."
    return markdown_prose(cut)
