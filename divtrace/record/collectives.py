"""Collectives of an engine's communicators: one event before the call, one when it is done."""

from __future__ import annotations

from divtrace.record.deferred import DeferredEvents
from divtrace.record.hooks import Hook, attach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from divtrace.record.device import Device
    from divtrace.record.recorder import Recorder

# The sizes of these differ between ranks by design.
_UNEVEN = ("all_gatherv", "reduce_scatterv", "all_to_all")
_NAMES = {"all_gatherv": "all_gather", "reduce_scatterv": "reduce_scatter"}


class CollectiveLog:
    """Counts and records the operations of one rank, per communicator."""

    def __init__(self, recorder: Recorder, device: Device, where: Callable[[], tuple[int | None, str]]) -> None:
        self._recorder = recorder
        self._device = device
        self._where = where
        self._counters: dict[tuple[str, tuple[int, ...]], int] = {}
        self.on = True
        """Off while the engine warms up, which would fill the trace with operations of no request."""

    def begin(
        self, op: str, comm: str, ranks: Sequence[int], tensor: Any = None, source: int | None = None, **fields: Any
    ) -> dict[str, Any] | None:
        """Records that an operation is about to be issued; the token is for `done` and `failed`."""
        if not self.on or not self._recorder.active or self._device.capturing():
            return None
        step, site = self._where()
        ranks = list(ranks)
        key = (comm, tuple(ranks))
        number = self._counters.get(key, 0)
        self._counters[key] = number + 1
        token: dict[str, Any] = {
            "site": site,
            "step": step,
            "comm": comm,
            "comm_ranks": ranks,
            "comm_seq": number,
            "op": _NAMES.get(op, op),
        }
        if source is not None:
            token["src"] = source
        sizes = {} if tensor is None else _sizes(op, tensor)
        self._recorder.event("collective", **_present(token), **_present(sizes), **fields, state="enqueued")
        return token

    def done(self, token: dict[str, Any] | None) -> None:
        """Records the completion: now on a CPU, on other devices when the stream has got there."""
        if token is None:
            return
        event = {"stage": "collective", **_present(token), "state": "completed"}
        if self._device.name == "cpu":
            self._recorder.event(**event)
            return
        if self._recorder.room_for(1):
            mark = self._device.mark()
            self._recorder.later(DeferredEvents(self._recorder.reserve(1), mark, lambda: [event]))

    def failed(self, token: dict[str, Any] | None, error: BaseException) -> None:
        """Records how an operation ended with an exception."""
        if token is not None:
            text = str(error)[:2000]
            state = "timeout" if "timed out" in text.lower() or "timeout" in text.lower() else "started"
            self._recorder.event(
                "collective",
                **_present(token),
                about_to_block=True,
                state=state,
                error=text,
                error_type=type(error).__name__,
            )


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _sizes(op: str, tensor: Any) -> dict[str, Any]:
    shape = [int(size) for size in tensor.shape]
    if op in _UNEVEN:
        return {"extra": {"info.shape": shape}}
    return {"shape": shape, "dtype": str(tensor.dtype).removeprefix("torch."), "numel": int(tensor.numel())}


def watch_communicator(log: CollectiveLog, holder: Any, names: Sequence[str], comm: str, ranks: Sequence[int]) -> int:
    """Hooks the methods of one communicator object that it has; returns how many."""
    count = 0
    for name in names:
        if callable(getattr(holder, name, None)):
            count += attach(holder, name, _communicator_hook(log, name, comm, list(ranks)))
    return count


def _communicator_hook(log: CollectiveLog, op: str, comm: str, ranks: list[int]) -> Hook:
    def before(*args: Any, **kwargs: Any) -> Any:
        tensor = args[0] if args else kwargs.get("input_", kwargs.get("tensor"))
        tensor = tensor if hasattr(tensor, "shape") else None
        source = kwargs.get("src", args[1] if len(args) > 1 and op == "broadcast" else 0 if op == "broadcast" else None)
        if isinstance(source, int):
            source = ranks[source]
        return log.begin(op, comm, ranks, tensor, source)

    return Hook(
        f"{comm}.{op}",
        before=before,
        after=lambda token, _result, *_args, **_kwargs: log.done(token),
        failed=lambda token, error, *_args, **_kwargs: log.failed(token, error),
    )
