"""`divtrace explain`: the page of a rule, or the list of all rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from divtrace.cli._files import write_answer
from divtrace.cli._options import Output, Terminal, spelled_out
from divtrace.cli._text import nearest, paragraph
from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from divtrace.rules.base import Rule


def _complete_rule(incomplete: str) -> list[str]:
    from divtrace.rules import RULES

    return [name for name in RULES if name.startswith(incomplete)]


RuleName = Annotated[
    str | None,
    typer.Argument(
        metavar="RULE", help="Name of a rule, as reports give it.", autocompletion=_complete_rule, show_default=False
    ),
]


@spelled_out
def command(*, rule: RuleName = None, output: Output, _terminal: Terminal) -> ExitCode:
    """Say what a rule means: an example, what usually breaks it, and what to look at next.

    Without a name, all rules are listed by class.
    """
    from divtrace.rules import RULES

    if rule is None:
        text = _list(list(RULES.values()))
    elif rule in RULES:
        text = _page(RULES[rule])
    else:
        raise UsageError(f"there is no rule {rule!r}", hint=nearest(rule, RULES) or "divtrace explain lists all rules")
    write_answer(output.output, text)
    return ExitCode.CLEAN


def _list(rules: list[Rule]) -> str:
    lines: list[str] = []
    for rule_class in dict.fromkeys(rule.rule_class for rule in rules):
        members = [rule for rule in rules if rule.rule_class == rule_class]
        width = max(len(rule.name) for rule in members)
        lines.append(rule_class)
        lines.extend(paragraph(_first_sentence(rule.meaning), first=f"  {rule.name:<{width}}  ") for rule in members)
        lines.append("")
    lines.append("divtrace explain RULE shows an example, the usual causes and what to look at next.")
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    head, end, _ = text.partition(". ")
    return head + end.rstrip()


def _page(rule: Rule) -> str:
    parts = [
        f"{rule.name} ({rule.rule_class})",
        paragraph(rule.meaning),
        "Example\n" + "\n".join(f"  {line}".rstrip() for line in rule.example.strip().splitlines()),
        "What usually breaks it\n" + "\n".join(paragraph(cause, first="  - ") for cause in rule.causes),
        "What to look at next\n" + "\n".join(paragraph(step, first="  - ") for step in rule.look_next),
    ]
    return "\n\n".join(parts) + "\n"
