"""The registry of formats, and what holds for all of them."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from divtrace.output import OUTPUTS
from divtrace.report.model import Report
from output.builders import report, telling_report
from output.test_text import hostile_report

every_format = pytest.mark.parametrize("name", OUTPUTS)


def test_a_format_is_found_by_its_name() -> None:
    assert {name: output.name for name, output in OUTPUTS.items()} == {name: name for name in OUTPUTS}
    assert all(output.meaning for output in OUTPUTS.values())


@every_format
def test_the_same_report_gives_the_same_bytes(name: str) -> None:
    assert OUTPUTS[name].render(telling_report()) == OUTPUTS[name].render(telling_report())


@every_format
@pytest.mark.parametrize("shown", [report(), telling_report(), hostile_report()], ids=["clean", "telling", "hostile"])
def test_a_report_ends_with_one_line_break_and_holds_no_control_character(name: str, shown: Report) -> None:
    if name == "json" and shown == hostile_report():
        shown = msgspec.structs.replace(shown, findings=(), first=None)  # a lone surrogate is no JSON
    text = OUTPUTS[name].render(shown)

    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert all(line.isprintable() for line in text.split("\n"))


def test_the_json_report_says_what_the_report_says() -> None:
    shown = telling_report()
    document = msgspec.json.decode(OUTPUTS["json"].render(shown))

    assert document["schema"] == "divtrace.report/1"
    assert document["first"] == document["findings"][0]
    assert document["first"]["values"] == {"0": [11367, 20614, 19174, 25465], "1": [11367, 20614, 1507, 25465]}
    assert document["notes"] == list(shown.notes)


def test_json_keeps_a_hostile_request_id_and_shows_it_harmlessly() -> None:
    shown = hostile_report()
    text = OUTPUTS["json"].render(report(notes=shown.notes))

    assert msgspec.json.decode(text)["notes"] == list(shown.notes)
    assert "\u202e" not in text
    assert "\x9b" not in text


def test_the_registry_imports_nothing_heavy() -> None:
    code = "import sys, divtrace.output; print([m for m in ('rich', 'msgspec', 'polars', 'xml') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"
