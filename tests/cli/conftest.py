"""A command in this process, where only its arguments and its answer matter; `cli.command` starts a real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.command import Call, Result, is_foreign
from divtrace.cli import main


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`call("analyze", folder, DIVTRACE_FORMAT="json")`: exit status and both streams."""

    def run(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Result:
        with monkeypatch.context() as patch:
            for name in filter(is_foreign, list(os.environ)):
                patch.delenv(name)
            for name, value in {"COLUMNS": "80", **variables}.items():
                patch.setenv(name, value)
            if cwd is not None:
                patch.chdir(cwd)
            capsys.readouterr()
            status = main([str(argument) for argument in arguments])
        written, said = capsys.readouterr()
        return Result(status, written, said)

    return run
