"""One finding as text, for commands that tell single findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtrace.output.escape import sentence
from divtrace.output.layout import wrapped
from divtrace.output.value_rows import value_lines
from divtrace.output.wording import differences, field_words, odd_words, place_words, rule_words

if TYPE_CHECKING:
    from divtrace.report.model import Finding


def finding_lines(finding: Finding, width: int, *, verbose: bool) -> list[str]:
    """Rule, place, every rank's value with its file and line, and the sentence that goes with it."""
    lines = [
        *wrapped(rule_words(finding), width, "  ", "    "),
        *wrapped(place_words(finding), width, "  ", "    "),
        "",
    ]
    for difference in differences(finding):
        if difference.name:
            lines += wrapped(field_words(difference.name, difference.index), width, "  ")
        lines += [*value_lines(finding, difference, width, verbose=verbose), ""]
    odd = odd_words(finding)
    return (
        lines + (wrapped(odd, width, "  ", "    ") if odd else []) + wrapped(sentence(finding.attribution), width, "  ")
    )
