"""`divtrace schema`: the JSON Schemas of what goes in and what comes out."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from divtrace.cli._files import write_answer
from divtrace.cli._options import Output, Terminal, spelled_out
from divtrace.cli._text import nearest, paragraph
from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode


def _complete_schema(incomplete: str) -> list[str]:
    from divtrace.schema_files import SCHEMA_NAMES

    return [name for name in SCHEMA_NAMES if name.startswith(incomplete)]


SchemaName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Name of a schema.", autocompletion=_complete_schema, show_default=False),
]


@spelled_out
def command(*, name: SchemaName = None, output: Output, _terminal: Terminal) -> ExitCode:
    """Print a JSON Schema (2020-12) of the trace format or of the report.

    Without a name, the schemas are listed.
    """
    from divtrace.schema_files import SCHEMA_NAMES, load_schema

    if name is None:
        width = max(len(known) for known in SCHEMA_NAMES)
        lines = [
            paragraph(load_schema(known).get("description", ""), first=f"{known:<{width}}  ") for known in SCHEMA_NAMES
        ]
        write_answer(output.output, "\n".join(lines) + "\n")
        return ExitCode.CLEAN
    if name not in SCHEMA_NAMES:
        raise UsageError(
            f"there is no schema {name!r}", hint=nearest(name, SCHEMA_NAMES) or "schemas are " + ", ".join(SCHEMA_NAMES)
        )
    write_answer(output.output, json.dumps(load_schema(name), indent=2, ensure_ascii=False) + "\n")
    return ExitCode.CLEAN
