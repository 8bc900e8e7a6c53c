"""Plain values of options are converted as typer does it, and without what typer loads for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from cli import traces
from cli.command import python
from divtrace.cli import first_divergence
from divtrace.cli._values import PlainCommand

COMMAND = first_divergence.command
NEEDED = ["--req", "R", "in"]


def parsed(cls: type[Any], arguments: list[str]) -> Any:
    """What the options of a command become, or what is said about them."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command("one", cls=cls)(COMMAND)
    command: Any = typer.main.get_command(app)
    if isinstance(command, PlainCommand):
        command.annotations = COMMAND.__annotations__
    try:
        values = command.make_context("one", list(arguments)).params
        return {name: (type(value), value) for name, value in values.items()}
    except typer.TyperException as error:
        return error.format_message()


@pytest.mark.parametrize(
    "arguments",
    [
        NEEDED,
        ["--req", "", "in", "more"],
        ["--req", "R"],
        ["in"],
        [*NEEDED, "--jobs", "3"],
        [*NEEDED, "--jobs", "0"],
        [*NEEDED, "--jobs", "-3"],
        [*NEEDED, "--jobs", "\u0663"],
        [*NEEDED, "--jobs", " 3"],
        [*NEEDED, "--jobs", "3.5"],
        [*NEEDED, "--jobs", "9" * 30],
        [*NEEDED, "--jobs", "many"],
        [*NEEDED, "--color", "never"],
        [*NEEDED, "--color", "NEVER"],
        [*NEEDED, "--color", "mauve"],
        [*NEEDED, "-vv", "--strict", "--no-dp-attention"],
        [*NEEDED, "--attn-tp-group", "0,1", "--attn-tp-group", "2"],
        [*NEEDED, "--run", ""],
    ],
)
def test_values_are_what_typer_makes_of_them(arguments: list[str]) -> None:
    assert parsed(PlainCommand, arguments) == parsed(typer.core.TyperCommand, arguments)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("JOBS", "2"),
        ("JOBS", "x"),
        ("STRICT", "1"),
        ("STRICT", "no"),
        ("ATTN_TP_GROUP", "0,1 2,3"),
        ("COLOR", "always"),
    ],
)
def test_so_are_values_of_the_environment(name: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DIVTRACE_{name}", given)
    assert parsed(PlainCommand, NEEDED) == parsed(typer.core.TyperCommand, NEEDED)


def test_a_command_without_a_finding_loads_little(tmp_path: Path) -> None:
    """Modules that cost more than what is asked for."""
    heavy = ["pydantic", "polars", "pyarrow", "rich", "divtrace.rules", "divtrace.walk.world", "divtrace.report.build"]
    code = f"""
import sys
from divtrace import api, cli
api._is_large = lambda *_: True
status = cli.main(sys.argv[1:])
sys.exit(f"{{status}} {{[name for name in {heavy} if name in sys.modules]}}")
"""
    folder = traces.clean(tmp_path / "in")
    ran = python(code, "first-divergence", "--req", "A", folder)
    assert ran.stderr == "0 []\n"
