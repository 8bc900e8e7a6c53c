"""Collectives of a plain `torch.distributed` job, for people with an engine of their own.

    recorder = Recorder("/logs", rank=dist.get_rank(), parallel={"tp_size": 2})
    watch(recorder, name="tp")

`watch` hooks the functions of `torch.distributed` for one process group. A synchronous operation is recorded before
the call, when it may block for good, and after it; an asynchronous one is completed when its `wait` returns.
"""

from __future__ import annotations

import functools
from importlib import import_module

from divtrace.record.collectives import CollectiveLog
from divtrace.record.device import open_device
from divtrace.record.hooks import MARK
from divtrace.record.report import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from divtrace.record.recorder import Recorder

OPERATIONS: dict[str, tuple[str, str]] = {
    "all_reduce": ("all_reduce", "tensor"),
    "broadcast": ("broadcast", "tensor"),
    "reduce": ("reduce", "tensor"),
    "all_gather": ("all_gather", "tensor"),
    "all_gather_into_tensor": ("all_gather", "input_tensor"),
    "reduce_scatter": ("reduce_scatter", "output"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"),
    "all_to_all_single": ("all_to_all", "input"),
    "gather": ("gather", "tensor"),
    "scatter": ("scatter", "tensor"),
    "send": ("send", "tensor"),
    "recv": ("recv", "tensor"),
    "barrier": ("barrier", ""),
}
"""Function of `torch.distributed` to the name in the trace and the parameter whose sizes are recorded."""


class Watch:
    """The hooks of one process group; `step` and `site` may be set as the job goes on, `stop` takes them off."""

    def __init__(self, recorder: Recorder, group: Any, name: str) -> None:
        torch = import_module("torch")
        self._distributed = torch.distributed
        self._recorder = recorder
        self._group = group
        self._name = name
        self._ranks = list(self._distributed.get_process_group_ranks(group or self._distributed.group.WORLD))
        self._originals: dict[str, Callable[..., Any]] = {}
        self.step: int | None = None
        self.site = "collective"
        self.log = CollectiveLog(recorder, open_device(torch), lambda: (self.step, self.site))
        for function in OPERATIONS:
            self._hook(function)

    def stop(self) -> None:
        """Puts the functions back, unless somebody else has wrapped them since."""
        for name, original in self._originals.items():
            if getattr(getattr(self._distributed, name), MARK, None) == id(self):
                setattr(self._distributed, name, original)
        self._originals = {}

    def _hook(self, name: str) -> None:
        original = getattr(self._distributed, name, None)
        if original is None:
            return
        operation, parameter = OPERATIONS[name]

        def hooked(*args: Any, **kwargs: Any) -> Any:
            token = self._begin(name, operation, parameter, original, args, kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self._guard(self.log.failed, token, error)
                raise
            if token is not None:
                return self._end(token, result)
            return result

        functools.update_wrapper(hooked, original)
        setattr(hooked, MARK, id(self))
        self._originals[name] = original
        setattr(self._distributed, name, hooked)

    def _begin(
        self,
        name: str,
        operation: str,
        parameter: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> dict[str, Any] | None:
        try:
            bound = _bind(original, args, kwargs)
            if not self._is_mine(bound.get("group")):
                return None
            tensor = bound.get(parameter) if parameter else None
            tensor = tensor if hasattr(tensor, "numel") else None
            source = bound.get("src") if name in ("broadcast", "scatter") else None
            comm, ranks = self._name, self._ranks
            if operation in ("send", "recv"):
                peer = bound.get("dst" if operation == "send" else "src")
                if peer is None:
                    return None
                # Each pair counts for itself: with more than two stages the counters would not meet.
                ranks = sorted({int(self._distributed.get_rank()), int(peer)})
                comm = f"{self._name}-{ranks[0]}-{ranks[-1]}"
            return self.log.begin(operation, comm, ranks, tensor, None if source is None else int(source))
        except Exception as error:
            warn_once(f"the hook on torch.distributed.{name} failed: {type(error).__name__}: {error}")
            return None

    def _is_mine(self, group: Any) -> bool:
        world = self._distributed.group.WORLD
        return (group if group is not None else world) is (self._group if self._group is not None else world)

    def _end(self, token: dict[str, Any], result: Any) -> Any:
        wait = getattr(result, "wait", None)
        if not callable(wait):
            self._guard(self.log.done, token)
            return result
        return _Pending(self, token, result)

    def _guard(self, function: Callable[..., None], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            warn_once(f"a collective was not recorded: {type(error).__name__}: {error}")


class _Pending:
    """The handle of an asynchronous operation; all else goes to the original."""

    def __init__(self, watch: Watch, token: dict[str, Any], work: Any) -> None:
        self._watch = watch
        self._token: dict[str, Any] | None = token
        self._work = work

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Waits as the original does, and records how that ended."""
        try:
            result = self._work.wait(*args, **kwargs)
        except BaseException as error:
            self._watch._guard(self._watch.log.failed, self._token, error)
            raise
        token, self._token = self._token, None
        self._watch._guard(self._watch.log.done, token)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of their parameters."""
    code = getattr(_unwrap(function), "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _unwrap(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def watch(recorder: Recorder, process_group: Any = None, *, name: str = "tp") -> Watch:
    """Records the collectives of a process group (default: the world) under the communicator name given.

    Works for calls made through `torch.distributed`; names that a module imported from it earlier are not seen.

    Raises:
        RuntimeError: `torch.distributed` is not initialised.
        ImportError: there is no torch.
    """
    distributed = import_module("torch").distributed
    if not distributed.is_initialized():
        raise RuntimeError("torch.distributed is not initialised: call watch after init_process_group")
    return Watch(recorder, process_group, name)
