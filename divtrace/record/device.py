"""The one place that knows about devices: copies without waiting, and whether a graph is being captured.

CUDA, ROCm (which torch calls cuda too), Ascend NPU and XPU offer the same calls under `torch.<name>`, so one
implementation takes that module as its argument. On a CPU a copy is there at once. Nothing in here waits for a device:
no `.item()`, no `.cpu()`, no synchronisation.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    class Copies(Protocol):
        """Host copies of some tensors, which may still be on their way."""

        def ready(self) -> bool:
            """Whether all have arrived; never waits."""

        def values(self) -> list[Any]:
            """The tensors as nested lists; only after `ready`."""

    class Device(Protocol):
        """What the hooks need of a device."""

        name: str

        def copy(self, tensors: Sequence[Any]) -> Copies:
            """Starts copying tensors to the host, as they are at this point of the current stream."""

        def mark(self) -> Copies:
            """Is ready as soon as the work queued so far on the current stream is done; has no values."""

        def capturing(self) -> bool:
            """Whether the current stream captures a graph, when nothing may be added to it."""


class CpuCopies:
    """Copies that were made at once."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._tensors = [tensor.detach().clone() for tensor in tensors]

    def ready(self) -> bool:
        """Always."""
        return True

    def values(self) -> list[Any]:
        """The tensors as nested lists."""
        return [tensor.tolist() for tensor in self._tensors]


class CpuDevice:
    """Tensors in the host's memory."""

    name = "cpu"

    def copy(self, tensors: Sequence[Any]) -> Copies:
        """Clones the tensors."""
        return CpuCopies(tensors)

    def mark(self) -> Copies:
        """Work on a CPU is done when the call returns."""
        return CpuCopies(())

    def capturing(self) -> bool:
        """Never."""
        return False


class StreamCopies:
    """Copies on a side stream; an event tells when they have arrived."""

    def __init__(self, sources: list[Any], hosts: list[Any], event: Any) -> None:
        # The clones have to live until the copies are done.
        self._sources = sources
        self._hosts = hosts
        self._event = event

    def ready(self) -> bool:
        """Whether the event has passed; an error of the device counts as no."""
        try:
            return bool(self._event.query())
        except RuntimeError:
            return False

    def values(self) -> list[Any]:
        """The tensors as nested lists."""
        self._sources = []
        return [host.tolist() for host in self._hosts]


class StreamDevice:
    """A device with streams and events: `torch.cuda` (CUDA and ROCm), `torch.npu`, `torch.xpu`."""

    def __init__(self, name: str, module: Any, torch: Any, *, pin: bool = True) -> None:
        self.name = name
        self._module = module
        self._torch = torch
        self._pin = pin
        self._side: Any = None

    def copy(self, tensors: Sequence[Any]) -> Copies:
        """Clones on the current stream, since the engine uses its buffers again, and copies on a side stream."""
        module = self._module
        if self._side is None:
            self._side = module.Stream()
        clones = [tensor.detach().clone() for tensor in tensors]
        cloned = module.Event()
        cloned.record()
        arrived = module.Event()
        hosts = []
        with module.stream(self._side):
            self._side.wait_event(cloned)
            for clone in clones:
                host = self._torch.empty(clone.shape, dtype=clone.dtype, device="cpu", pin_memory=self._pin)
                host.copy_(clone, non_blocking=True)
                hosts.append(host)
            arrived.record(self._side)
        return StreamCopies(clones, hosts, arrived)

    def mark(self) -> Copies:
        """An event on the current stream."""
        event = self._module.Event()
        event.record()
        return StreamCopies([], [], event)

    def capturing(self) -> bool:
        """Asks torch; a device that cannot capture never does."""
        ask = getattr(self._module, "is_current_stream_capturing", None)
        return bool(ask()) if ask is not None else False


def device_name(torch: Any) -> str:
    """`cuda`, `rocm`, `npu`, `xpu` or `cpu`: what the meta record calls the device."""
    if _available(torch, "npu"):
        return "npu"
    if _available(torch, "cuda"):
        return "rocm" if getattr(torch.version, "hip", None) else "cuda"
    return "xpu" if _available(torch, "xpu") else "cpu"


def open_device(torch: Any, name: str | None = None) -> Device:
    """The device of this process."""
    name = name or device_name(torch)
    if name == "cpu":
        return CpuDevice()
    return StreamDevice(name, getattr(torch, "cuda" if name == "rocm" else name), torch)


def backend_name(device: str) -> str:
    """The usual name of the collective library of a device."""
    return {"cuda": "nccl", "rocm": "rccl", "npu": "hccl", "xpu": "xccl"}.get(device, "gloo")


def _available(torch: Any, name: str) -> bool:
    module = getattr(torch, name, None)
    try:
        return module is not None and bool(module.is_available())
    except Exception:
        return False
