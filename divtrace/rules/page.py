"""The pages of the rules as Markdown, for `docs/rules.md`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from divtrace.rules.base import Rule

_PREFACE = """\
# Rules

Written by `python -m divtrace.rules --write` from the modules in `divtrace/rules/`; edit those, not this page.

A finding names the rule that its event breaks; `divtrace explain RULE` shows the same text. References such as
sglang#31071 are issues and pull requests of that project on GitHub; file names are those of SGLang 0.5.23 and
vLLM 0.32.0.
"""


def markdown_page(rule: Rule) -> str:
    """One rule as a section of Markdown."""
    parts = [
        f"## {rule.name}",
        f"Class: {rule.rule_class}",
        _filled(rule.meaning),
        f"```text\n{rule.example}\n```",
        "**Usual causes**",
        "\n".join(_filled(cause, "- ", "  ") for cause in rule.causes),
        "**What to look at next**",
        "\n".join(_filled(step, "- ", "  ") for step in rule.look_next),
    ]
    return "\n\n".join(parts) + "\n"


def markdown_pages(rules: Mapping[str, Rule]) -> str:
    """All rules as one page of Markdown, with a list of them in front."""
    contents = "\n".join(f"- [{rule.name}](#{rule.name}) ({rule.rule_class})" for rule in rules.values())
    return "\n".join((_PREFACE, contents + "\n", *(markdown_page(rule) for rule in rules.values())))


def _filled(text: str, first: str = "", rest: str = "") -> str:
    # Settings such as all,-dspark-plan and flags such as --disable-cuda-graph stay in one piece.
    return textwrap.fill(
        text, 120, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
