"""Annotations of GitHub Actions: workflow commands, to be written to standard output.

At most ten, because GitHub shows no more of one kind for a step: the first divergence, then independent findings (both
errors), then consequences (warnings). Where there are more findings, the tenth annotation counts the rest. A verdict
other than `divergence` is one warning, `clean` one notice: it says how far the ranks were compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from divtrace.output.base import OutputOptions
from divtrace.output.escape import github_message, github_property, sentence, terminal
from divtrace.output.layout import plain
from divtrace.output.quantities import count
from divtrace.output.ranks import rank_key
from divtrace.output.text_findings import consequences, independent
from divtrace.output.value_rows import value_lines
from divtrace.output.wording import differences, field_words, place_words, rule_words, verdict_words
from divtrace.report.model import Finding, Report, Where

MOST_ANNOTATIONS = 10
WIDTH = 100
LONGEST_MESSAGE = 4_000
"""Characters of a message; GitHub cuts what is much longer."""


def render(report: Report, _options: OutputOptions) -> str:
    """One command a line."""
    return "".join(f"{command}\n" for command in _commands(report))


def _commands(report: Report) -> Iterator[str]:
    ordered = [*([report.first] if report.first else []), *independent(report), *consequences(report)]
    total = len(ordered) + sum(report.findings_left_out.values())
    if not ordered:
        level = "notice" if report.verdict == "clean" else "warning"
        yield _command(level, f"divtrace: {verdict_words(report.verdict)}", "\n".join(_verdict_lines(report)), None)
    listed = ordered if total <= MOST_ANNOTATIONS else ordered[: MOST_ANNOTATIONS - 1]
    for finding in listed:
        level = "warning" if finding.role == "consequence" else "error"
        lines = [*_verdict_lines(report), ""] if finding is report.first else []
        role = "first divergence" if finding is report.first else finding.role
        title = f"divtrace: {role}, {rule_words(finding)}"
        yield _command(level, title, "\n".join(lines + _lines(finding)), _place(finding))
    if ordered and len(listed) < total:
        rest = count(total - len(listed), "more finding")
        yield _command("warning", f"divtrace: {rest}", f"{rest}; the report of divtrace lists them.", None)


def _verdict_lines(report: Report) -> list[str]:
    return [sentence(report.summary), *(f"Next check: {sentence(step)}" for step in report.next[:1])]


def _lines(finding: Finding) -> list[str]:
    lines = [place_words(finding)]
    difference = differences(finding)[0]
    if difference.name:
        lines.append(f"{field_words(difference.name, difference.index)}:")
    lines += [plain(line) for line in value_lines(finding, difference, WIDTH, "  ")]
    return [*lines, sentence(finding.attribution)]


def _place(finding: Finding) -> Where | None:
    """The record of an odd rank, else of the lowest rank."""
    ranks = sorted(finding.where, key=lambda rank: (rank_key(rank)[1] not in finding.odd_ranks, rank_key(rank)))
    return finding.where[ranks[0]] if ranks else None


def _command(level: str, title: str, message: str, where: Where | None) -> str:
    properties = [] if where is None else [f"file={github_property(terminal(where.file))}"]
    if where is not None and where.line is not None:
        properties.append(f"line={where.line}")
    properties.append(f"title={github_property(title)}")
    cut = message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "..."
    return f"::{level} {','.join(properties)}::{github_message(cut)}"
