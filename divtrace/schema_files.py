"""The JSON Schemas in `schemas/` and the field tables in `docs/trace-format.md`, generated from the definitions.

The definitions are the structs `Event`, `Meta` and `Report`; a test fails when the files say something else.
`python -m divtrace.schema_files --write` writes them anew, without `--write` it lists the files that are out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from divtrace.events import FIELDS, INTEGER_MAX, INTEGER_MIN, Event, Kind, Meta
from divtrace.report.model import REPORT_FORMAT, Report

SCHEMA_NAMES: tuple[str, ...] = ("event", "meta", "report")
"""The schemas that exist: of one event record, of one meta record, of the report."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHECKOUT = Path(__file__).resolve().parent.parent
_REFERENCE = Path("docs", "trace-format.md")


def load_schema(name: str) -> dict[str, Any]:
    """The JSON Schema `name` as it is shipped, from a checkout or from an installed package.

    Raises:
        KeyError: there is no schema of that name.
    """
    if name not in SCHEMA_NAMES:
        raise KeyError(name)
    installed = resources.files("divtrace") / "schemas" / f"{name}.schema.json"
    path = installed if installed.is_file() else _CHECKOUT / _schema_path(name)
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def generate_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) `name`, from the struct that defines it.

    Raises:
        KeyError: there is no schema of that name.
    """
    struct, finish = _SCHEMAS[name]
    (generated,), definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    top = definitions.pop(generated["$ref"].rpartition("/")[2])
    finish(top)
    schema = {"$schema": _DIALECT, **top}
    if definitions:
        schema["$defs"] = definitions
    return schema


def _finish_event(schema: dict[str, Any]) -> None:
    schema["description"] += " An unknown field is dropped and counted, and the record is used."
    schema["additionalProperties"] = True
    extra = next(choice for choice in schema["properties"]["extra"]["anyOf"] if choice["type"] == "object")
    extra["additionalProperties"] = {"type": ["null", "boolean", "number", "string", "array"]}
    _bound_integers(schema)


def _finish_meta(schema: dict[str, Any]) -> None:
    schema["required"] = ["kind"]
    _bound_integers(schema)


def _finish_report(schema: dict[str, Any]) -> None:
    schema["properties"]["schema"] = {"const": REPORT_FORMAT}
    schema["required"] = ["schema", *schema["required"]]


def _bound_integers(schema: Any) -> None:
    """Write the range in which integers are exact to every integer in `schema`."""
    if isinstance(schema, dict):
        if schema.get("type") == "integer":
            schema.update(minimum=INTEGER_MIN, maximum=INTEGER_MAX)
        for value in schema.values():
            _bound_integers(value)
    elif isinstance(schema, list):
        for value in schema:
            _bound_integers(value)


_SCHEMAS: dict[str, tuple[type, Callable[[dict[str, Any]], None]]] = {
    "event": (Event, _finish_event),
    "meta": (Meta, _finish_meta),
    "report": (Report, _finish_report),
}


def _event_table() -> str:
    rows = ["| field | type | kind | rule | meaning |", "|---|---|---|---|---|"]
    for field in FIELDS:
        if field.kind is Kind.IDENTITY:
            continue
        rule = f"`{field.rule}`" if field.rule else ""
        kind = "by its key's prefix" if field.name == "extra" else field.kind.value
        rows.append(f"| `{field.name}` | {field.type} | {kind} | {rule} | {field.meaning} |")
    return "\n".join(rows)


def _identity_table() -> str:
    rows = ["| field | type | meaning |", "|---|---|---|"]
    hints = get_type_hints(Event)
    for field in FIELDS:
        if field.kind is not Kind.IDENTITY:
            continue
        choices = _choices(hints[field.name])
        allowed = f": {', '.join(f'`{choice}`' for choice in choices)}" if len(choices) > 1 else ""
        name = f"`{field.name}`" + (" (required)" if field.name == "stage" else "")
        rows.append(f"| {name} | {field.type} | {field.meaning}{allowed} |")
    return "\n".join(rows)


def _choices(hint: Any) -> list[str]:
    """The strings that a Literal, alone or in a union, allows."""
    found: list[str] = []
    for argument in get_args(hint):
        found += [argument] if isinstance(argument, str) else _choices(argument)
    return found


def _meta_table() -> str:
    rows = ["| key | meaning |", "|---|---|"]
    hints = get_type_hints(Meta, include_extras=True)
    for name in Meta.__struct_fields__:
        about = next(argument for argument in get_args(hints[name]) if isinstance(argument, msgspec.Meta))
        rows.append(f"| `{name}` | {about.description} |")
    return "\n".join(rows)


_TABLES: dict[str, Callable[[], str]] = {"identity": _identity_table, "fields": _event_table, "meta": _meta_table}


def generate_reference(text: str) -> str:
    """The field reference with its tables generated anew; the prose around the markers stays as it is.

    Raises:
        ValueError: a marker is missing.
    """
    for name, table in _TABLES.items():
        begin, end = f"<!-- {name}: generated -->\n", f"<!-- {name}: end -->"
        before, found, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            raise ValueError(f"{_REFERENCE} lacks the markers of the table {name}")
        text = f"{before}{begin}\n{table()}\n\n{end}{after}"
    return text


def _schema_path(name: str) -> Path:
    return Path("schemas", f"{name}.schema.json")


def generated_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Every generated file of the checkout at `root`, relative to it, with the text that it should have."""
    for name in SCHEMA_NAMES:
        yield _schema_path(name), json.dumps(generate_schema(name), indent=2) + "\n"
    yield _REFERENCE, generate_reference((root / _REFERENCE).read_text(encoding="utf-8"))


def outdated_files(root: Path = _CHECKOUT) -> list[Path]:
    """The generated files of the checkout at `root` that say something else than the definitions, or are missing."""
    return [
        path
        for path, text in generated_files(root)
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def write_files(root: Path = _CHECKOUT) -> list[Path]:
    """Write the generated files of the checkout at `root` that are out of date, and return which those were."""
    texts = dict(generated_files(root))
    outdated = outdated_files(root)
    for path in outdated:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(texts[path], encoding="utf-8")
    return outdated


def main(arguments: list[str]) -> int:
    """Write the files (`--write`), or list those that are out of date and return 1 if there are any."""
    if arguments not in ([], ["--write"]):
        sys.stderr.write("usage: python -m divtrace.schema_files [--write]\n")
        return 2
    outdated = write_files() if arguments else outdated_files()
    for path in outdated:
        sys.stdout.write(f"{path} {'written' if arguments else 'is out of date'}\n")
    return 1 if outdated and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
