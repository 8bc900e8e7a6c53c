"""The doctor in real serving environments: every hook resolves, and nothing stands in the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import environments

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.environ.get("DIVTRACE_ENGINE_TESTS") != "1", reason="downloads; DIVTRACE_ENGINE_TESTS=1"),
]


@pytest.mark.parametrize(
    ("environment", "engine", "runners"),
    [(environments.sglang, "sglang 0.5.23", 1), (environments.vllm, "vllm 0.32.0", 2)],
)
def test_every_hook_resolves(environment: Callable[[], Path], engine: str, runners: int, tmp_path: Path) -> None:
    # Exit status 0 says that nothing is in the way; `run` fails on any other.
    said = environments.run([environment(), "-m", "divtrace.record", "doctor"], DIVTRACE_DIR=str(tmp_path / "logs"))
    assert f"{engine}, plugin registered" in said
    layers = [line.split() for line in said.splitlines() if "hooks resolve" in line]
    assert [(layer[1], layer[2]) for layer in layers] == [("base", "on"), ("stage", "on"), ("sync", "on")] * runners
    assert all(layer[3] == layer[5] for layer in layers), said
    assert list((tmp_path / "logs").iterdir()) == []
