"""One SGLang scheduler process: who it is, its recorder, and the registration of the hooks."""

from __future__ import annotations

import os
from importlib import import_module
from pkgutil import resolve_name

from divtrace.record.collectives import CollectiveLog
from divtrace.record.device import backend_name, device_name, open_device
from divtrace.record.hooks import Hook, attach, why_unresolved
from divtrace.record.layers import layers_off
from divtrace.record.recorder import Recorder
from divtrace.record.report import inform, warn_once
from divtrace.record.settings import DIRECTORY, from_environment, run_name
from divtrace.record.sglang.targets import TARGETS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from divtrace.record.device import Device
    from divtrace.record.source import Target

_SIZES = ("tp_size", "pp_size", "dp_size", "attn_dp_size", "attn_cp_size", "ep_size", "moe_dp_size")
_MOST_ITERATIONS = 256


class ProcessState:
    """What the hooks of one scheduler process share."""

    def __init__(self, recorder: Recorder, device: Device) -> None:
        self.recorder = recorder
        self.device = device
        self.step: int | None = None
        self.site = "forward"
        self.settling: int | None = None
        """The forward whose results the scheduler processes now; under overlap one behind `step`."""
        self.sync_ranks: list[int] = []
        """The ranks among which SGLang makes a speculative decision equal."""
        self.requests: list[str] = []
        """The requests of the running forward, in row order."""
        self.decoding = False
        """Whether the running forward is a decode: each of its requests gets a round done."""
        self.rounds: dict[str, tuple[int, int, int]] = {}
        """Request to (attempt, round, chunk) of its last forward."""
        self.iterations: dict[int, dict[str, tuple[int, int, int]]] = {}
        """The same, for forwards whose results are not processed yet."""
        self.collectives = CollectiveLog(recorder, device, lambda: (self.step, self.site))

    def key(self, stage: str, site: str, request: str, step: int | None = None) -> dict[str, Any]:
        """The identity of an event about a request of a forward, by default the running one."""
        step = self.step if step is None else step
        event: dict[str, Any] = {"stage": stage, "site": site, "req": request}
        known: dict[str, tuple[int, int, int]] = {}
        if step is not None:
            event["step"] = step
            known = self.iterations.get(step, {})
        if request in known:
            attempt, round_number, chunk = known[request]
            event["round"] = round_number
            if attempt:
                event["attempt"] = attempt
            if chunk:
                event["n"] = chunk
        return event

    def remember(self, step: int, placed: dict[str, tuple[int, int, int]]) -> None:
        """Keeps where the requests of a forward stand until its results come."""
        self.iterations[step] = placed
        while len(self.iterations) > _MOST_ITERATIONS:
            del self.iterations[next(iter(self.iterations))]


def record_scheduler(scheduler: Any) -> ProcessState | None:
    """Starts recording the process of a scheduler; once per process."""
    if hasattr(scheduler, "_divtrace"):
        return None
    torch = import_module("torch")
    name = device_name(torch)
    settings = from_environment()
    recorder = Recorder(os.environ[DIRECTORY], rank=_rank(torch), settings=settings, **_meta(torch, scheduler, name))
    state = ProcessState(recorder, open_device(torch, name))
    scheduler._divtrace = state
    state.sync_ranks = _sync_ranks()
    layers, attached = register(state, layers_for(_algorithm(scheduler), settings.layers))
    recorder.event("init", "spec-config", extra={"info.layers": ",".join(layers), "info.hooks": attached})
    inform(f"SGLang is recorded: {attached} hooks, layers {', '.join(layers) or 'none'}")
    return state


def layers_for(algorithm: str | None, layers: tuple[str, ...]) -> tuple[str, ...]:
    """The layers to record for an algorithm.

    UNO goes through EAGLE's functions with lengths and roots that stand one further than the request, so what they say
    does not fit its commits. It runs on one rank only, where there is nothing to compare.
    """
    return tuple(layer for layer in layers if layer != "stage") if algorithm == "UNO" else layers


def _algorithm(scheduler: Any) -> str | None:
    algorithm = getattr(scheduler, "spec_algorithm", None)
    return getattr(algorithm, "name", None) or (str(algorithm) if algorithm is not None else None)


def register(state: ProcessState, layers: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """Registers the hooks of the layers; returns the layers that are on and how many hooks are in place.

    A layer without a function of its core is off, with one line. Without any other function it is on.
    """
    from divtrace.record.sglang.base import base_hooks
    from divtrace.record.sglang.stage import stage_hooks
    from divtrace.record.sglang.sync import collective_hook, sync_hooks

    hooks = {**base_hooks(state), **stage_hooks(state), **sync_hooks(state)}
    registry = import_module("sglang.srt.plugins.hook_registry")
    off = layers_off(TARGETS, layers, _why_missing)
    for layer, reason in off.items():
        warn_once(f"layer {layer} is off: {reason}")
    layers = tuple(layer for layer in layers if layer not in off)
    wanted = [target for target in TARGETS if target.layer in layers]
    compiling = _is_compiling()
    for target in wanted:
        hook = hooks.get(target.name) or collective_hook(state, target.name)
        skip = compiling if target.layer == "sync" else None
        hooks[target.name] = hook
        if target.path not in registry.HookRegistry._patched and _resolves(target.path):
            registry.HookRegistry.register(target.path, _around(hook, skip), registry.HookType.AROUND)
    registry.HookRegistry.apply_hooks()
    missing: dict[str, list[str]] = {}
    attached = 0
    for target in wanted:
        if _in_place(target.path, hooks[target.name]):
            attached += 1
        else:
            missing.setdefault(target.layer, []).append(_short(target.path))
    for layer, paths in missing.items():
        warn_once(f"layer {layer}: without what hangs on {', '.join(paths)}, which this SGLang does not have")
    return layers, attached


def _why_missing(target: Target) -> str | None:
    reason = why_unresolved(target.path)
    return None if reason is None else f"{_short(target.path)} does not resolve ({reason})"


def _short(path: str) -> str:
    return path.removeprefix("sglang.srt.")


def _around(hook: Hook, skip: Callable[[], bool] | None) -> Callable[..., Any]:
    """A hook in the form that SGLang's registry calls: the original comes first."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Inside torch.compile the tracer must see the original and nothing else.
        if skip is not None and skip():
            return original(*args, **kwargs)
        return hook.around(original, args, kwargs)

    return call


def _is_compiling() -> Callable[[], bool] | None:
    compiler = getattr(import_module("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None)


def _resolves(path: str) -> bool:
    reason = why_unresolved(path)
    if reason is not None:
        inform(f"{path} does not resolve: {reason}")
    return reason is None


def _in_place(path: str, hook: Hook) -> bool:
    """Whether a hook is there; another plugin may have been first, then ours goes around the method it left."""
    holder_path, _, name = path.rpartition(".")
    try:
        holder = resolve_name(holder_path)
        function = getattr(holder, name)
    except Exception:
        return False
    registry = import_module("sglang.srt.plugins.hook_registry")
    if any(getattr(h, "__closure__", None) and _closes_over(h, hook) for _, h, _ in registry.HookRegistry._hooks[path]):
        return path in registry.HookRegistry._patched and hasattr(function, "__wrapped__")
    if isinstance(holder, type):
        return attach(holder, name, hook)
    return False


def _closes_over(function: Any, hook: Hook) -> bool:
    return any(cell.cell_contents is hook for cell in function.__closure__)


def _rank(torch: Any) -> int:
    distributed = torch.distributed
    return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else 0


def _sync_ranks() -> list[int]:
    parallel = import_module("sglang.srt.runtime_context").get_parallel()
    try:
        group = parallel.attn_tp_group if int(parallel.attn_dp_size) > 1 else parallel.tp_group
        return [int(rank) for rank in group.ranks]
    except Exception:
        return []


def _meta(torch: Any, scheduler: Any, device: str) -> dict[str, Any]:
    parallel = import_module("sglang.srt.runtime_context").get_parallel()
    sizes: dict[str, Any] = {}
    for name in _SIZES:
        try:
            sizes[name] = int(getattr(parallel, name))
        except Exception:
            continue
    sizes["enable_dp_attention"] = sizes.get("attn_dp_size", 1) > 1
    try:
        world = int(getattr(parallel, "dp_rank", None) or 0)
    except Exception:
        world = 0
    initialised = torch.distributed.is_available() and torch.distributed.is_initialized()
    nodes = int(getattr(getattr(scheduler, "server_args", None), "nnodes", 1) or 1)
    return {
        "run": run_name(several_nodes=nodes > 1),
        "world": world,
        "engine": {"name": "sglang", "version": getattr(import_module("sglang.version"), "__version__", None)},
        "algorithm": _algorithm(scheduler),
        "device": device,
        "backend": str(torch.distributed.get_backend()) if initialised else backend_name(device),
        "parallel": sizes,
        "sync": os.environ.get("SGLANG_SPEC_TP_SYNC", "all"),
    }
