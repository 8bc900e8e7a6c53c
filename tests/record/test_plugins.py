"""The plugins where there is nothing to record, or no engine, and the name of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtrace.record import Recorder, Settings
from divtrace.record.settings import ensure_run_name, run_name
from divtrace.record.sglang.process import layers_for
from record.reading import child, finish, read

pytestmark = pytest.mark.usefixtures("fresh")


def test_uno_is_not_recorded_through_the_functions_of_eagle() -> None:
    assert layers_for("UNO", ("base", "stage", "sync")) == ("base", "sync")
    assert layers_for("EAGLE", ("base", "stage")) == ("base", "stage")


@pytest.mark.parametrize("plugin", ["sglang", "vllm"])
def test_without_a_directory_a_plugin_does_nothing_at_all(plugin: str) -> None:
    script = f"""
import os, sys
from divtrace.record.{plugin} import load
before, environment = set(sys.modules), dict(os.environ)
load()
print(sorted(set(sys.modules) - before), dict(os.environ) == environment)
"""
    assert finish(child(script))[0].strip() == "[] True"


@pytest.mark.parametrize("plugin", ["sglang", "vllm"])
def test_a_plugin_without_its_engine_says_one_line(plugin: str, tmp_path: Path) -> None:
    script = f"""
import logging, os
logging.basicConfig(format="%(message)s")
from divtrace.record.{plugin} import load
load()
load()
print(os.environ["DIVTRACE_RUN"][:4])
"""
    out, err = finish(child(script, DIVTRACE_DIR=str(tmp_path)))
    assert out == "run-\n"
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_name_made_up_on_one_node_is_unknown_over_several(monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_run_name()
    made_up = run_name()
    ensure_run_name()
    assert run_name() == made_up
    assert run_name(several_nodes=True) is None
    monkeypatch.setenv("DIVTRACE_RUN", "given")
    assert run_name(several_nodes=True) == "given"


def test_a_trace_of_an_unknown_run_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIVTRACE_RUN", "nightly")
    with Recorder(tmp_path, rank=0, run=None, settings=Settings()) as recorder:
        recorder.event("host", "heartbeat")
    assert read(tmp_path).metas[0].run is None
