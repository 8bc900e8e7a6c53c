"""The schemas and the field reference say what the definitions say, and what the readers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from divtrace import schema_files
from divtrace.events import FIELDS, Event
from divtrace.trace.records import BadRecordError, decode_line

CHECKOUT = Path(schema_files.__file__).resolve().parent.parent


def validator(name: str) -> Any:
    schema = schema_files.load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_no_generated_file_is_out_of_date() -> None:
    assert schema_files.outdated_files() == [], "run python -m divtrace.schema_files --write"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path, text in schema_files.generated_files(CHECKOUT):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["schemas/event.schema.json", "schemas/report.schema.json", "docs/trace-format.md"])
def test_a_file_that_drifts_is_found_and_written_anew(checkout: Path, name: str) -> None:
    path = checkout / name
    right = path.read_text()
    assert schema_files.outdated_files(checkout) == []
    path.write_text(right.replace("target_tokens" if "report" not in name else "verdict", "renamed"))

    assert schema_files.outdated_files(checkout) == [Path(name)]
    assert schema_files.write_files(checkout) == [Path(name)]
    assert path.read_text() == right


def test_a_schema_that_is_missing_is_out_of_date(checkout: Path) -> None:
    (checkout / "schemas/meta.schema.json").unlink()

    assert schema_files.outdated_files(checkout) == [Path("schemas/meta.schema.json")]


def test_the_reference_needs_its_markers() -> None:
    with pytest.raises(ValueError, match="markers of the table"):
        schema_files.generate_reference("no markers here")


def test_the_reference_keeps_its_prose_and_names_every_field() -> None:
    text = (CHECKOUT / "docs/trace-format.md").read_text()

    assert "## Damage" in schema_files.generate_reference(text)
    for field in FIELDS:
        assert f"| `{field.name}`" in text
        assert field.meaning in text


@pytest.mark.parametrize("name", schema_files.SCHEMA_NAMES)
def test_every_schema_is_valid_and_loads(name: str) -> None:
    assert validator(name).schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_an_unknown_schema_is_an_error() -> None:
    with pytest.raises(KeyError):
        schema_files.load_schema("nothing")


def test_the_event_schema_has_every_field_with_its_meaning() -> None:
    properties = schema_files.load_schema("event")["properties"]

    assert list(properties) == [field.name for field in FIELDS] == list(Event.__struct_fields__)
    assert [properties[field.name]["description"] for field in FIELDS] == [field.meaning for field in FIELDS]


RECORDS: list[Any] = [
    {"stage": "host"},
    {"stage": "host", "later": 1},
    {"stage": "draft", "draft_tokens": [1, 2**64 - 1], "req": None},
    {"stage": "accept", "bonus": -(2**63), "extra": {"control.x": [1], "info.y": "z", "info.n": None}},
    {"stage": "verify", "margin": 0.5, "decided_on": 0.5, "gate": False, "kind": "event", "phase": "synced"},
    {},
    {"stage": None},
    {"stage": "sample"},
    {"stage": "host", "phase": "before"},
    {"stage": "host", "kind": "span"},
    {"stage": "host", "bonus": 2**64},
    {"stage": "host", "bonus": -(2**63) - 1},
    {"stage": "host", "draft_tokens": [2**64]},
    {"stage": "host", "draft_tokens": [None]},
    {"stage": "host", "bonus": "1"},
    {"stage": "host", "bonus": 1.5},
    {"stage": "host", "gate": 1},
    {"stage": "host", "extra": {"info.x": {}}},
    {"stage": "host", "extra": [1]},
    {"stage": "host", "batch": "A"},
    {"kind": "meta"},
    [],
    None,
]


@pytest.mark.parametrize("record", RECORDS, ids=json.dumps)
def test_the_event_schema_accepts_what_the_reader_accepts(record: Any) -> None:
    try:
        decoded, _ = decode_line(json.dumps(record).encode())
        readable = isinstance(decoded, Event)
    except BadRecordError:
        readable = False

    assert validator("event").is_valid(record) == readable


@pytest.mark.parametrize(
    ("record", "valid"),
    [
        ({"kind": "meta"}, True),
        (
            {"kind": "meta", "rank": 3, "later": 1, "engine": {"name": "sglang", "version": "0.5"}, "sync": ["draft"]},
            True,
        ),
        ({}, False),
        ({"kind": "event"}, False),
        ({"kind": "meta", "rank": "3"}, False),
        ({"kind": "meta", "rank": 2**64}, False),
        ({"kind": "meta", "groups": {"attn_tp": [0, 1]}}, False),
    ],
)
def test_the_meta_schema(record: Any, valid: bool) -> None:
    assert validator("meta").is_valid(record) == valid


def test_the_report_schema_refuses_another_version() -> None:
    assert schema_files.load_schema("report")["properties"]["schema"] == {"const": "divtrace.report/1"}
    assert "schema" in schema_files.load_schema("report")["required"]


def test_the_command_writes_or_complains(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schema_files, "outdated_files", lambda: [Path("schemas/x")])
    monkeypatch.setattr(schema_files, "write_files", lambda: [Path("schemas/x")])

    assert schema_files.main([]) == 1
    assert schema_files.main(["--write"]) == 0
    assert schema_files.main(["--help"]) == 2
    assert capsys.readouterr().out == "schemas/x is out of date\nschemas/x written\n"
