"""`divtrace explain`: pages of rules, and their list."""

from __future__ import annotations

import pytest

from cli.command import Call, divtrace
from divtrace.cli import main
from divtrace.rules import RULES


def test_the_list_names_every_rule_under_its_class(call: Call) -> None:
    run = call("explain")

    assert (run.returncode, run.stderr) == (0, "")
    named: dict[str, str] = {}
    heading = ""
    for line in run.stdout.splitlines():
        if line and not line.startswith(" "):
            heading = line
        elif line.startswith("  ") and line[2] != " ":
            named[line.split()[0]] = heading
    assert named == {rule.name: rule.rule_class for rule in RULES.values()}


@pytest.mark.parametrize("name", RULES)
def test_a_page_holds_the_whole_rule_in_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert main(["explain", name]) == 0

    written = capsys.readouterr().out
    assert max(len(line) for line in written.splitlines()) <= 80
    words = " ".join(written.split())
    rule = RULES[name]
    for text in (rule.name, rule.rule_class, rule.meaning, rule.example, *rule.causes, *rule.look_next):
        assert " ".join(text.split()) in words


def test_an_unknown_rule_is_answered_with_its_neighbour(call: Call) -> None:
    run = call("explain", "target-token")

    assert (run.returncode, run.stdout) == (2, "")
    error, hint = run.stderr.splitlines()
    assert error == "divtrace: error: there is no rule 'target-token'"
    assert hint.startswith("hint: did you mean target-tokens")


def test_rule_names_are_completed() -> None:
    run = divtrace(_DIVTRACE_COMPLETE="complete_bash", COMP_WORDS="divtrace explain draft-", COMP_CWORD="2")

    assert set(run.stdout.split()) == {name for name in RULES if name.startswith("draft-")}
