"""The findings in the text report: the first divergence in full, then what followed, then what stands by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from divtrace.output.base import OutputOptions
from divtrace.output.escape import sentence
from divtrace.output.layout import columns, emphasised, wrapped
from divtrace.output.quantities import count
from divtrace.output.value_rows import value_lines
from divtrace.output.wording import (
    brief_words,
    differences,
    field_words,
    link_words,
    odd_words,
    place_words,
    rule_words,
)
from divtrace.report.model import Finding, Report

MOST_CONSEQUENCES = 20
MOST_INDEPENDENT = 10
MOST_FIELDS = 6
"""Differing fields of one event that are shown with all values."""


def labels(report: Report) -> dict[str, str]:
    """The name of each finding in this report, in the order in which they are shown; the first divergence is `#1`."""
    ordered = [*([report.first] if report.first else []), *consequences(report), *independent(report)]
    return {finding.id: f"#{number}" for number, finding in enumerate(ordered, start=1)}


def consequences(report: Report) -> list[Finding]:
    """The findings that the origin explains, in causal order."""
    return [finding for finding in report.findings if finding.role == "consequence"]


def independent(report: Report) -> list[Finding]:
    """The findings that nothing earlier explains, without the first."""
    first = report.first.id if report.first else None
    return [finding for finding in report.findings if finding.role != "consequence" and finding.id != first]


def first_section(report: Report, options: OutputOptions) -> list[str]:
    """The first divergence with every rank's value, or nothing."""
    if report.first is None:
        return []
    lines = [emphasised("First divergence (#1)", "strong"), *_full(report.first, options)]
    agreement = report.last_agreement
    before = place_words(agreement) if agreement else "none on record"
    return lines + wrapped(f"last agreement: {before}", options.width, "  ", "    ")


def chain_section(report: Report, options: OutputOptions, names: dict[str, str]) -> list[str]:
    """What followed from the origins, one entry per event, to the end of the list; the rest is counted by rule."""
    chain = consequences(report)
    listed = chain if options.verbose else chain[:MOST_CONSEQUENCES]
    left_out = Counter(finding.rule for finding in chain[len(listed) :]) + Counter(report.findings_left_out)
    if not chain and not left_out:
        return []
    total = count(len(chain) + sum(report.findings_left_out.values()), "finding")
    title = f"What followed ({total}; lags count from the origin)"
    lines = [emphasised(line, "strong") for line in wrapped(title, options.width)]
    for finding in listed:
        lines += _short(finding, options, names)
    return lines + _left_out(left_out, options)


def independent_section(report: Report, options: OutputOptions, names: dict[str, str]) -> list[str]:
    """The findings that the first divergence does not explain."""
    others = independent(report)
    if not others:
        return []
    listed = others if options.verbose else others[:MOST_INDEPENDENT]
    title = f"Independent of the first divergence ({count(len(others), 'finding')})"
    lines = [emphasised(line, "strong") for line in wrapped(title, options.width)]
    for finding in listed:
        lines += _full(finding, options, f"{names[finding.id]} ")
    return lines + _left_out(Counter(finding.rule for finding in others[len(listed) :]), options)


def _full(finding: Finding, options: OutputOptions, number: str = "") -> list[str]:
    lines = wrapped(number + rule_words(finding), options.width, "  ", "    ")
    lines += wrapped(place_words(finding), options.width, "  ", "    ")
    shown = differences(finding)
    listed = shown if options.verbose else shown[:MOST_FIELDS]
    for difference in listed:
        if difference.name:
            lines += ["", *wrapped(field_words(difference.name, difference.index), options.width, "  ")]
        else:
            lines.append("")
        lines += value_lines(finding, difference, options.width, verbose=options.verbose)
    if len(listed) < len(shown):
        more = ", ".join(field_words(difference.name, difference.index) for difference in shown[len(listed) :])
        lines += wrapped(f"also different: {more}", options.width, "  ", "    ")
    lines.append("")
    odd = odd_words(finding)
    lines += wrapped(odd, options.width, "  ", "    ") if odd else []
    return lines + wrapped(sentence(finding.attribution), options.width, "  ")


def _short(finding: Finding, options: OutputOptions, names: dict[str, str]) -> list[str]:
    number = f"  {names[finding.id]:<4} "
    lines = wrapped(f"{finding.rule}, {place_words(finding)}", options.width, number)
    rest = " " * len(number)
    link, held = link_words(finding, names), brief_words(finding)
    if columns(f"{rest}{link}; {held}") <= options.width:
        lines.append(f"{rest}{link}; {held}")
    else:
        lines += wrapped(link, options.width, rest) + wrapped(held, options.width, rest, rest + "  ")
    if options.verbose:
        lines += wrapped(sentence(finding.attribution), options.width, rest)
    return lines


def _left_out(by_rule: Counter[str], options: OutputOptions) -> list[str]:
    if not by_rule:
        return []
    rules = _by_rule(sorted(by_rule.items(), key=lambda pair: (-pair[1], pair[0])))
    return wrapped(f"and {by_rule.total():,} more: {rules}", options.width, "  ", "    ")


def _by_rule(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{rule} {number:,}" for rule, number in counts)
