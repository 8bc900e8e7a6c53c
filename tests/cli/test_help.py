"""Help, version, completion and start-up: what a person meets before any trace is read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import Call, divtrace, environment
from divtrace.cli import main
from divtrace.cli.app import COMMANDS, build
from divtrace.exitcodes import ExitCode
from divtrace.version import __version__

HEAVY = {"polars", "pyarrow", "rich", "zstandard"}


def imported(*arguments: str) -> set[str]:
    """Top-level names of everything that `divtrace` imports with these arguments."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "divtrace", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=environment(),
        check=False,
    )
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines() if "|" in line}


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command_and_every_exit_status(call: Call, option: str) -> None:
    run = call(option)

    assert (run.returncode, run.stderr) == (0, "")
    assert [name for name in COMMANDS if not re.search(rf"^  {name} ", run.stdout, re.MULTILINE)] == []
    assert [code for code in ExitCode if not re.search(rf"^    {code.value} +\S", run.stdout, re.MULTILINE)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_its_own(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert main([command, "--help"]) == 0

    written, said = capsys.readouterr()
    assert said == ""
    assert written.startswith(f"Usage: divtrace {command} ")
    assert "Exit status:" in written
    assert max(len(line) for line in written.splitlines()) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_can_come_from_the_environment(command: str) -> None:
    """An option's variable is its long name, so no two commands can differ in it."""
    loaded = build().commands[command].make_context(command, [], resilient_parsing=True).command
    variables = {
        max(parameter.opts, key=len): parameter.envvar
        for parameter in loaded.params
        if parameter.param_type_name == "option"
    }

    assert variables
    assert variables == {long: "DIVTRACE_" + long.removeprefix("--").replace("-", "_").upper() for long in variables}


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(call: Call, option: str) -> None:
    run = call(option)

    assert (run.returncode, run.stdout, run.stderr) == (0, f"divtrace {__version__}\n", "")


def test_without_a_command_the_help_goes_to_standard_error() -> None:
    run = divtrace()

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("Usage: divtrace ")


def test_the_installed_script_is_the_same_command() -> None:
    run = subprocess.run(
        [Path(sys.executable).with_name("divtrace"), "--version"], capture_output=True, encoding="utf-8", check=True
    )

    assert run.stdout == f"divtrace {__version__}\n"


@pytest.mark.parametrize("arguments", [("--help",), ("analyze", "--help"), ("topology", "--tp", "2")])
def test_nothing_heavy_is_imported_where_no_trace_is_read(arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments)

    assert "typer" in modules
    assert modules & HEAVY == set()


def test_the_help_does_not_even_load_what_decodes_traces() -> None:
    assert imported("--help") & {"msgspec", "pydantic"} == set()


def test_the_version_is_told_before_typer_is_loaded() -> None:
    assert imported("--version") & (HEAVY | {"typer"}) == set()


@pytest.mark.parametrize(
    ("words", "index", "offered"),
    [
        ("divtrace fi", "1", {"first-divergence"}),
        ("divtrace topology --format j", "3", {"json"}),
        ("divtrace analyze --color ", "3", {"auto", "always", "never"}),
        ("divtrace analyze --max", "2", {"--max-findings"}),
    ],
)
def test_bash_completion_offers_commands_options_and_values(words: str, index: str, offered: set[str]) -> None:
    run = divtrace(_DIVTRACE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=index)

    assert (run.returncode, run.stderr) == (0, "")
    assert set(run.stdout.split()) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_the_command_back(shell: str) -> None:
    run = divtrace(_DIVTRACE_COMPLETE=f"source_{shell}")

    assert run.returncode == 0
    assert f"_DIVTRACE_COMPLETE=complete_{shell}" in run.stdout


def test_a_misspelt_command_is_answered_with_its_neighbour(call: Call) -> None:
    run = call("analyse", "x")

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.splitlines() == [
        "divtrace: error: No such command 'analyse'. Did you mean 'analyze'?",
        "hint: divtrace --help lists what it takes",
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("analyze",), "'PATH'"),
        (("analyze", "--frobnicate", "x"), "--frobnicate"),
        (("topology", "--tp", "sixteen"), "--tp"),
        (("topology", "--tp", "0"), "--tp"),
        (("analyze", "--color", "pink", "x"), "--color"),
    ],
)
def test_wrong_usage_is_one_line_and_a_hint(call: Call, arguments: tuple[str, ...], named: str) -> None:
    run = call(*arguments)

    assert (run.returncode, run.stdout) == (2, "")
    error, hint = run.stderr.splitlines()
    assert error.startswith("divtrace: error: ")
    assert named in error
    assert hint == f"hint: divtrace {arguments[0]} --help lists what it takes"


def test_a_wrong_variable_is_named(call: Call) -> None:
    from_environment = call("topology", DIVTRACE_TP="many")
    from_arguments = call("topology", "--tp", "many", DIVTRACE_TP="4")

    assert from_environment.returncode == 2
    assert from_environment.stderr.splitlines()[0].endswith("(from DIVTRACE_TP)")
    assert "DIVTRACE_TP" not in from_arguments.stderr
