"""`divtrace schema`: the schemas that the package ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import Call
from divtrace.cli import main
from divtrace.schema_files import SCHEMA_NAMES

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_a_schema_is_printed_as_it_is_shipped(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0

    shipped = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    assert json.loads(capsys.readouterr().out) == json.loads(shipped)


def test_without_a_name_the_schemas_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(SCHEMA_NAMES)


def test_an_unknown_schema_is_answered_with_its_neighbour(call: Call) -> None:
    run = call("schema", "reports")

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "divtrace: error: there is no schema 'reports'\nhint: did you mean report?\n"
