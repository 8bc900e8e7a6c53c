"""The report for people: what was read, the verdict, the first divergence, how it went on, and one next check."""

from __future__ import annotations

from dataclasses import replace

from divtrace.output.base import OutputOptions
from divtrace.output.layout import finished
from divtrace.output.text_context import (
    evidence_section,
    harmless_section,
    input_section,
    not_compared_section,
    progress_section,
    sentences_section,
    timeout_section,
    verdict_section,
)
from divtrace.output.text_findings import chain_section, first_section, independent_section, labels
from divtrace.report.model import Report

NARROWEST = 40


def render(report: Report, options: OutputOptions) -> str:
    """Sections in the order in which they are needed, each left out if it has nothing to say."""
    options = replace(options, width=max(options.width, NARROWEST))
    names = labels(report)
    sections = (
        input_section(report, options),
        verdict_section(report, options),
        first_section(report, options),
        chain_section(report, options, names),
        independent_section(report, options, names),
        harmless_section(report, options),
        timeout_section(report, options),
        progress_section(report, options),
        evidence_section(report, options),
        not_compared_section(report, options),
        sentences_section("Notes", report.notes, options),
        sentences_section("Next check", report.next, options),
    )
    lines: list[str] = []
    for section in sections:
        if section:
            lines += ["", *section] if lines else section
    return finished(lines, color=options.color)
