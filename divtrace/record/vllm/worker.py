"""One vLLM worker: who it is, its recorder, and which hooks go where."""

from __future__ import annotations

import os
from importlib import import_module

from divtrace.record.collectives import CollectiveLog, watch_communicator
from divtrace.record.device import backend_name, device_name, open_device
from divtrace.record.hooks import Hook, attach
from divtrace.record.recorder import Recorder
from divtrace.record.report import inform, warn_once
from divtrace.record.rounds import Rounds
from divtrace.record.settings import DIRECTORY, from_environment, run_name
from divtrace.record.vllm import targets, v1, v2
from divtrace.record.vllm.runner import usable_layers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from divtrace.record.device import Device

GROUPS = ("get_tp_group", "get_pp_group", "get_dp_group", "get_ep_group", "get_dcp_group", "get_pcp_group")
OPERATIONS = ("all_reduce", "all_gather", "all_gatherv", "reduce_scatter", "reduce_scatterv", "gather", "broadcast")


class WorkerState:
    """What the hooks of one worker share."""

    def __init__(self, recorder: Recorder, device: Device, method: str) -> None:
        self.recorder = recorder
        self.device = device
        self.method = method
        self.rounds = Rounds()
        self.step: int | None = None
        self.site = "warm-up"
        self.collectives = CollectiveLog(recorder, device, lambda: (self.step, self.site))
        self.collectives.on = False

    def begin_step(self, site: str = "target-forward") -> int:
        """Counts a step of this worker; vLLM's scheduler does not number them."""
        self.step = 0 if self.step is None else self.step + 1
        self.site = site
        self.collectives.on = True
        return self.step


def record_worker(wrapper: Any) -> None:
    """Starts recording a worker whose device is up; once per worker."""
    worker = wrapper.worker
    runner = worker.model_runner
    if hasattr(runner, "_divtrace"):
        return
    torch = import_module("torch")
    config = wrapper.vllm_config
    settings = from_environment()
    speculative = config.speculative_config
    method = str(getattr(speculative, "method", None) or "none")
    name = device_name(torch)
    recorder = Recorder(
        os.environ[DIRECTORY],
        rank=_rank(torch, wrapper),
        settings=settings,
        algorithm=method,
        **_meta(torch, config, name),
    )
    state = WorkerState(recorder, open_device(torch, name), method)
    runner._divtrace = state
    second = type(runner).__module__.startswith("vllm.v1.worker.gpu.")
    layers = usable_layers(runner, targets.V2 if second else targets.V1, settings.layers)
    recorder.event(
        "init",
        "spec-config",
        num_draft_tokens=1 + int(getattr(speculative, "num_speculative_tokens", 0) or 0),
        extra={
            "control.async_scheduling": bool(getattr(config.scheduler_config, "async_scheduling", False)),
            "info.runner": type(runner).__name__,
            "info.layers": ",".join(layers),
        },
    )
    attached = (v2 if second else v1).attach_runner(state, runner, layers)
    if "sync" in layers:
        attached += _watch_groups(state)
    if "base" in layers:
        attach(worker, "execute_dummy_batch", Hook("Worker.execute_dummy_batch", before=lambda *_: _dummy_step(state)))
    attach(worker, "shutdown", Hook("Worker.shutdown", before=lambda *_: recorder.close()))
    inform(f"vLLM is recorded: {type(runner).__name__}, {attached} hooks, layers {', '.join(layers) or 'none'}")


def _dummy_step(state: WorkerState) -> None:
    state.begin_step("dummy")
    state.recorder.event("schedule", "batch", step=state.step, batch=[], dummy=True, forward_mode="idle")


def _rank(torch: Any, wrapper: Any) -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(getattr(wrapper, "global_rank", None) or getattr(wrapper, "rpc_rank", 0) or 0)


def _meta(torch: Any, config: Any, device: str) -> dict[str, Any]:
    parallel = config.parallel_config
    tp, pp = int(parallel.tensor_parallel_size), int(parallel.pipeline_parallel_size)
    dp = int(getattr(parallel, "data_parallel_size", 1))
    prefill_cp = int(getattr(parallel, "prefill_context_parallel_size", 1))
    ranks = tp * pp * prefill_cp
    total = int(torch.distributed.get_world_size()) if torch.distributed.is_initialized() else ranks
    nodes = int(getattr(parallel, "nnodes", 1) or 1)
    ray = str(getattr(parallel, "distributed_executor_backend", "")) == "ray"
    version = getattr(import_module("vllm"), "__version__", None)
    meta: dict[str, Any] = {
        "run": run_name(several_nodes=nodes > 1 or ray),
        "engine": {"name": "vllm", "version": version},
        "device": device,
        "backend": str(torch.distributed.get_backend()) if torch.distributed.is_initialized() else backend_name(device),
        "parallel": {"tp_size": tp, "pp_size": pp},
        "world": 0,
    }
    if total > ranks:
        # Data parallel ranks of one torch world: vLLM lays them out outermost, which the sizes alone would not tell.
        meta["groups"] = {
            "attn_tp": [list(range(first, first + tp)) for first in range(0, total, tp)],
            "replica": [list(range(first, first + ranks)) for first in range(0, total, ranks)],
        }
    elif dp > 1:
        meta["world"] = int(getattr(parallel, "data_parallel_rank", 0))
    return meta


def _watch_groups(state: WorkerState) -> int:
    parallel_state = import_module("vllm.distributed.parallel_state")
    attached, seen = 0, set()
    for getter in GROUPS:
        try:
            group = getattr(parallel_state, getter)()
        except Exception:
            # Groups that this layout does not have are not initialised.
            continue
        communicator = getattr(group, "device_communicator", None)
        if communicator is None or id(communicator) in seen or group.world_size < 2:
            continue
        seen.add(id(communicator))
        name = str(group.unique_name).partition(":")[0]
        attached += watch_communicator(state.collectives, communicator, OPERATIONS, name, group.ranks)
    if not attached and int(getattr(parallel_state.get_tp_group(), "world_size", 1)) > 1:
        warn_once("no communicator of vLLM could be hooked: collectives are not recorded")
    return attached
