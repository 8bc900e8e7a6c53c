"""A layer that lacks a function of its core is off as a whole, with one line; the engine and other layers go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from divtrace.record import report as warnings_said
from divtrace.record.doctor import EngineFound, examine, render
from divtrace.record.layers import layers_off
from divtrace.record.sglang.targets import TARGETS
from divtrace.record.source import Target
from divtrace.record.vllm import targets as vllm
from record.fake_engine import REGISTRY, write, write_engine
from record.reading import child, finish, read

CORE = {
    "base": {"run_batch", "resolve", "prefill", "retract", "finish"},
    "stage": {"verify", "eagle_sample", "eagle_draft", "dspark", "dflash"},
    "sync": {"sync", "all_reduce", "all_gather", "broadcast"},
}
LAYERS = tuple(CORE)


def test_the_core_of_sglang_is_what_the_issue_names() -> None:
    found = {layer: {target.name for target in TARGETS if target.layer == layer and target.core} for layer in LAYERS}
    assert found == CORE


def test_a_layer_is_off_without_one_function_of_its_core() -> None:
    targets = [
        Target("f", "base", "engine.f", core=True),
        Target("g", "stage", "engine.g", core=True),
        Target("h", "stage", "engine.h", core=True),
        Target("i", "sync", "engine.i"),
    ]

    def off(*missing: str, layers: tuple[str, ...] = LAYERS) -> dict[str, str]:
        return layers_off(targets, layers, lambda target: f"no {target.name}" if target.name in missing else None)

    assert off() == {}
    assert off("g") == {"stage": "no g"}
    assert off("g", "h") == {"stage": "no g; no h"}
    assert off("i") == {}
    assert off("g", layers=("base", "sync")) == {}
    assert off("f") == {
        "base": "no f",
        "stage": "layer base is off, which counts steps and rounds and knows the requests",
        "sync": "layer base is off, which counts steps and rounds and knows the requests",
    }
    assert off("f", "g")["stage"] == "no g"
    assert off("f", layers=("base",)) == {"base": "no f"}


# SGLang ---------------------------------------------------------------------------------------------------------------

DRIVE = """
import json, logging, os, sys
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
logging.getLogger("divtrace.record").addHandler(handler)
logging.getLogger("divtrace.record").setLevel(logging.INFO)
from divtrace.record.sglang.process import record_scheduler
scheduler = SimpleNamespace(spec_algorithm=SimpleNamespace(name="EAGLE"))
state = record_scheduler(scheduler)
state.recorder.close()
from sglang.srt.plugins.hook_registry import HookRegistry
print(json.dumps([lines, sorted(HookRegistry._hooks)]))
"""


def drive_sglang(folder: Path, *without: str) -> tuple[list[list[str]], set[str], dict[str, Any]]:
    """What was logged, which targets were registered by their names, and what the trace says about itself."""
    engine = folder / "engine"
    write_engine(engine, "sglang", TARGETS, without)
    write(engine / "sglang/srt/plugins/hook_registry.py", REGISTRY)
    context = "from types import SimpleNamespace\ndef get_parallel(): return SimpleNamespace(tp_size=2)\n"
    write(engine / "sglang/srt/runtime_context.py", context)
    write(engine / "sglang/version.py", '__version__ = "9.9"\n')
    out, _ = finish(child(DRIVE, str(engine), DIVTRACE_DIR=str(folder / "logs")))
    lines, registered = json.loads(out)
    event = next(event for event in read(folder / "logs").events if event.site == "spec-config")
    assert event.extra is not None
    return lines, {target.name for target in TARGETS if target.path in registered}, event.extra


def names(*layers: str) -> set[str]:
    return {target.name for target in TARGETS if target.layer in layers}


def path(name: str) -> str:
    return next(target.path for target in TARGETS if target.name == name).removeprefix("sglang.srt.")


def warnings(lines: list[list[str]]) -> list[str]:
    return [text for level, text in lines if level == "WARNING"]


def test_nothing_is_missing(tmp_path: Path) -> None:
    lines, registered, extra = drive_sglang(tmp_path)
    assert warnings(lines) == []
    assert registered == names("base", "stage", "sync")
    assert extra == {"info.layers": "base,stage,sync", "info.hooks": len(TARGETS)}


@pytest.mark.parametrize(("layer", "name"), [(layer, name) for layer in ("stage", "sync") for name in CORE[layer]])
def test_a_missing_core_function_turns_its_layer_off(tmp_path: Path, layer: str, name: str) -> None:
    lines, registered, extra = drive_sglang(tmp_path, name)
    others = tuple(other for other in LAYERS if other != layer)
    assert registered == names(*others)
    # At level info too there is no second line about it.
    about = [text for _, text in lines if path(name) in text]
    assert about == warnings(lines)
    assert len(about) == 1
    assert about[0].startswith(f"layer {layer} is off: {path(name)} does not resolve (AttributeError: ")
    assert extra == {"info.layers": ",".join(others), "info.hooks": len(names(*others))}


@pytest.mark.parametrize("name", sorted(CORE["base"]))
def test_without_the_core_of_base_nothing_is_hooked(tmp_path: Path, name: str) -> None:
    lines, registered, extra = drive_sglang(tmp_path, name)
    assert registered == set()
    said = warnings(lines)
    assert [text.partition(":")[0] for text in said] == [f"layer {layer} is off" for layer in LAYERS]
    assert path(name) in said[0]
    assert all("layer base is off" in text for text in said[1:])
    assert extra == {"info.layers": "", "info.hooks": 0}


@pytest.mark.parametrize(
    ("layer", "name"),
    [(target.layer, target.name) for target in TARGETS if target.name not in set().union(*CORE.values())],
)
def test_a_missing_further_function_turns_off_what_hangs_on_it(tmp_path: Path, layer: str, name: str) -> None:
    lines, registered, extra = drive_sglang(tmp_path, name)
    assert registered == names(*LAYERS) - {name}
    gone = f"layer {layer}: without what hangs on {path(name)}, which this SGLang does not have"
    assert warnings(lines) == [gone]
    assert extra == {"info.layers": "base,stage,sync", "info.hooks": len(TARGETS) - 1}


def test_a_module_that_fails_to_import_is_missing_with_its_reason_in_one_line(tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    write_engine(engine, "sglang", TARGETS)
    write(engine / "sglang/srt/speculative/eagle_utils.py", "raise ImportError('no GPU:\\n  none')\n")
    script = """
import sys
sys.path.insert(0, sys.argv[1])
from divtrace.record.hooks import why_unresolved
print(why_unresolved("sglang.srt.speculative.eagle_utils.eagle_sample"))
print(why_unresolved("sglang.srt.managers.scheduler.Scheduler.run_batch"))
"""
    out, _ = finish(child(script, str(engine)))
    assert out == "ImportError: no GPU: none\nNone\n"


# vLLM -----------------------------------------------------------------------------------------------------------------

DRIVE_VLLM = """
import json, logging, os, sys
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("divtrace.record").addHandler(handler)
from importlib import import_module
from divtrace.record.vllm.worker import record_worker
runner = import_module(sys.argv[2]).GPUModelRunner()
import vllm.distributed.parallel_state as parallel_state
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
communicator = DeviceCommunicatorBase()
group = SimpleNamespace(world_size=2, ranks=[0, 1], unique_name="tp:0", device_communicator=communicator)
if hasattr(parallel_state, "get_tp_group"):
    parallel_state.get_tp_group = lambda: group
config = SimpleNamespace(
    speculative_config=None,
    scheduler_config=None,
    parallel_config=SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1),
)
worker = SimpleNamespace(model_runner=runner, execute_dummy_batch=lambda: None, shutdown=lambda: None)
record_worker(SimpleNamespace(worker=worker, vllm_config=config))
hooked = [name for holder in (runner, communicator) for name, value in vars(holder).items() if callable(value)]
worker.execute_dummy_batch()
worker.shutdown()
print(json.dumps([lines, hooked]))
"""
RUNNERS = {
    "V1": (vllm.V1, "vllm.v1.worker.gpu_model_runner"),
    "V2": (vllm.V2, "vllm.v1.worker.gpu.model_runner"),
}
# These belong to objects that a V2 runner has only with a model.
LATE = {"_verify", "propose"}


def drive_vllm(folder: Path, runner: str, *without: str) -> tuple[list[str], set[str], str]:
    """What was logged, which methods were hooked, and the layers that the trace names."""
    engine = folder / "engine"
    targets, module = RUNNERS[runner]
    write_engine(engine, "vllm", (*vllm.WORKER, *targets), without)
    out, _ = finish(child(DRIVE_VLLM, str(engine), module, DIVTRACE_DIR=str(folder / "logs")))
    lines, hooked = json.loads(out)
    event = next(event for event in read(folder / "logs").events if event.site == "spec-config")
    assert event.extra is not None
    return lines, set(hooked), event.extra["info.layers"]


def methods(runner: str, *layers: str) -> set[str]:
    targets = (*vllm.WORKER, *RUNNERS[runner][0])
    return {target.name for target in targets if target.layer in layers} - LATE - {"init_device", "groups"}


def core_of(runner: str, layer: str, *, core: bool = True) -> list[str]:
    targets = (*vllm.WORKER, *RUNNERS[runner][0])
    found = {target.name for target in targets if target.layer == layer and target.core is core}
    return sorted(found - LATE - {"init_device"})


@pytest.mark.parametrize("runner", RUNNERS)
def test_nothing_is_missing_in_vllm(tmp_path: Path, runner: str) -> None:
    lines, hooked, layers = drive_vllm(tmp_path, runner)
    assert (lines, hooked, layers) == ([], methods(runner, *LAYERS), "base,stage,sync")


@pytest.mark.parametrize(
    ("runner", "layer", "name"),
    [(runner, layer, name) for runner in RUNNERS for layer in ("stage", "sync") for name in core_of(runner, layer)],
)
def test_a_missing_core_function_of_vllm_turns_its_layer_off(
    tmp_path: Path, runner: str, layer: str, name: str
) -> None:
    lines, hooked, layers = drive_vllm(tmp_path, runner, name)
    others = [other for other in LAYERS if other != layer]
    assert hooked == methods(runner, *others)
    assert layers == ",".join(others)
    assert len(lines) == 1
    assert lines[0].startswith(f"layer {layer} is off: ")


@pytest.mark.parametrize(("runner", "name"), [(runner, name) for runner in RUNNERS for name in core_of(runner, "base")])
def test_without_the_core_of_base_no_runner_is_hooked(tmp_path: Path, runner: str, name: str) -> None:
    lines, hooked, layers = drive_vllm(tmp_path, runner, name)
    assert (hooked, layers) == (set(), "")
    assert [text.partition(":")[0] for text in lines] == [f"layer {layer} is off" for layer in LAYERS]
    assert not any(event.stage == "schedule" for event in read(tmp_path / "logs").events)


@pytest.mark.parametrize(
    ("runner", "name"),
    [
        (runner, name)
        for runner in RUNNERS
        for layer in ("base", "stage")
        for name in core_of(runner, layer, core=False)
    ],
)
def test_a_missing_further_function_of_vllm_is_one_line(tmp_path: Path, runner: str, name: str) -> None:
    lines, hooked, layers = drive_vllm(tmp_path, runner, name)
    assert hooked == methods(runner, *LAYERS) - {name}
    assert layers == "base,stage,sync"
    assert len(lines) == 1
    assert f"GPUModelRunner.{name} is not there" in lines[0]


# The doctor -----------------------------------------------------------------------------------------------------------


def examined(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, *without: str) -> tuple[EngineFound, str]:
    targets = TARGETS if package == "sglang" else (*vllm.WORKER, *vllm.V1, *vllm.V2)
    write_engine(folder, package, targets, without)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(warnings_said, "_said", set())
    found = examine({})
    return next(engine for engine in found.engines if engine.name == package), "\n".join(render(found))


def test_the_doctor_sees_every_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, text = examined(tmp_path, monkeypatch, "sglang")
    assert [(layer.name, layer.on, layer.off) for layer in engine.layers] == [(layer, True, "") for layer in LAYERS]
    assert "layer base  on  8 of 8 hooks resolve\n" in text


def test_the_doctor_shows_a_layer_off_that_lacks_its_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, text = examined(tmp_path, monkeypatch, "sglang", "eagle_sample")
    assert [layer.on for layer in engine.layers] == [True, False, True]
    gone = "sglang.srt.speculative.eagle_utils.eagle_sample is not there"
    assert f"layer stage off 6 of 7 hooks resolve; off because {gone}\n" in text
    assert text.count(f"problem   sglang, layer stage: {gone}") == 1


def test_the_doctor_shows_a_layer_on_that_lacks_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, text = examined(tmp_path, monkeypatch, "sglang", "eagle_commit")
    assert [layer.on for layer in engine.layers] == [True, True, True]
    assert "layer stage on  6 of 7 hooks resolve\n" in text
    assert text.count("problem   sglang, layer stage: ") == 1


def test_the_doctor_says_what_hangs_on_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, text = examined(tmp_path, monkeypatch, "sglang", "run_batch")
    assert [layer.on for layer in engine.layers] == [False, False, False]
    assert "layer sync  off 14 of 14 hooks resolve; off because layer base is off" in text


def test_the_doctor_tells_the_runners_of_vllm_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, text = examined(tmp_path, monkeypatch, "vllm", "_sample", "groups")
    found = {(layer.runner, layer.name): layer.on for layer in engine.layers}
    assert [key for key, on in found.items() if on] == [("V1", "base"), ("V2", "base"), ("V2", "stage")]
    assert text.count("problem   vllm, layer sync: vllm.distributed.parallel_state.get_tp_group is not there") == 1
