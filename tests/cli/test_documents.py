"""What the documents promise of the command line, held against the command line.

With DIVTRACE_UPDATE_GOLDEN=1 the README's picture is written anew.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from cli.command import Call
from divtrace.cli.app import COMMANDS, build
from divtrace.exitcodes import ExitCode
from divtrace.output import OUTPUTS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def options_of(command: str) -> set[str]:
    loaded = build().commands[command].make_context(command, [], resilient_parsing=True).command
    return {name for parameter in loaded.params for name in parameter.opts} | {"--help", "-h"}


def shown_commands(text: str) -> list[list[str]]:
    """The `divtrace` commands in the text's code blocks, continuation lines of YAML joined."""
    joined = re.sub(r"\n\s+(?=--)", " ", text)
    lines = re.findall(r"^.*?\b(divtrace (?:" + "|".join(COMMANDS) + r")\b.*)$", joined, re.MULTILINE)
    return [shlex.split(line.split("`")[0], comments=True) for line in lines]


def test_the_picture_is_what_the_command_prints(call: Call) -> None:
    picture = re.search(r"<!-- report -->\n```text\n\$ divtrace (.*)\n([\s\S]*?)```\n<!-- end -->", README)
    assert picture is not None

    run = call(*picture[1].split(), cwd=ROOT)

    if os.environ.get("DIVTRACE_UPDATE_GOLDEN"):
        (ROOT / "README.md").write_text(README.replace(picture[2], run.stdout), encoding="utf-8")
        pytest.skip("written anew")
    assert run.returncode == ExitCode.DIVERGENCE
    assert picture[2] == run.stdout


def test_there_are_two_commands_for_a_fresh_machine() -> None:
    block = re.search(r"<!-- fresh machine -->\n```sh\n([\s\S]*?)```\n<!-- end -->", README)
    assert block is not None

    first, second = block[1].splitlines()
    assert re.fullmatch(r"python -m pip install -e '\.\[dev\]' && divtrace analyze fixtures/[a-z-]+", first)
    assert (ROOT / first.split()[-1]).is_dir()
    assert second == "python -m pip install -e '.[dev]' && pytest"


@pytest.mark.parametrize("text", [README, CI], ids=["README", "docs/ci.md"])
def test_every_option_that_is_shown_exists(text: str) -> None:
    commands = shown_commands(text)

    assert len(commands) >= 3
    for _, command, *arguments in commands:
        named = {argument.partition("=")[0] for argument in arguments if argument.startswith("-") and argument != "-"}
        assert named <= options_of(command), (command, named)


def test_the_readme_shows_every_command_and_every_format() -> None:
    assert {command for _, command, *_ in shown_commands(README)} == set(COMMANDS)
    assert set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)) >= set(OUTPUTS)


@pytest.mark.parametrize("text", [README, CI], ids=["README", "docs/ci.md"])
def test_every_exit_status_is_explained(text: str) -> None:
    assert set(re.findall(r"^\| (\d+) \|", text, re.MULTILINE)) == {str(code.value) for code in ExitCode}


@pytest.mark.parametrize("text", [README, CI, CONTRIBUTING], ids=["README", "docs/ci.md", "CONTRIBUTING"])
def test_every_file_that_is_linked_or_named_exists(text: str) -> None:
    named = set(re.findall(r"\]\(([^)#:]+)\)", text)) | set(
        re.findall(r"`((?:divtrace|docs|fixtures|tests)/[\w./-]*)`", text)
    )

    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
