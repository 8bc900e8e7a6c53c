"""Events whose values come from a device: numbered now, written when the values are there."""

from __future__ import annotations

import time

from divtrace.record.report import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from divtrace.record.device import Copies, Device
    from divtrace.record.recorder import Recorder

# About the bytes of memory that waiting takes: the object with its tensors, the identity of one event, and one value
# on the device and on the host.
_OBJECT_WEIGHT = 1000
_EVENT_WEIGHT = 700
_VALUE_WEIGHT = 40


class DeferredEvents:
    """A fixed number of events that `build` makes from the copied values.

    If the values never arrive, because the device hangs, the events are left out: a gap in `seq` says that something
    is missing here, where an event without its values would pass for a decision that was not taken.
    """

    def __init__(
        self, seqs: list[int], copies: Copies, build: Callable[..., list[dict[str, Any]]], values: int = 0
    ) -> None:
        self.weight = _OBJECT_WEIGHT + _EVENT_WEIGHT * len(seqs) + _VALUE_WEIGHT * values
        self._seqs = seqs
        self._copies = copies
        self._build = build
        self._ts = time.time_ns()

    def ready(self) -> bool:
        """Whether the values have arrived; never waits."""
        return self._copies.ready()

    def events(self) -> list[dict[str, Any]]:
        """The events; none if the values have not arrived or make no sense."""
        if not self._copies.ready():
            return []
        try:
            events = self._build(*self._copies.values())
        except Exception as error:
            warn_once(f"values of a device could not be recorded: {type(error).__name__}: {error}")
            return []
        for event, seq in zip(events, self._seqs, strict=False):
            event["seq"] = seq
            event["ts"] = self._ts
        return events[: len(self._seqs)]


def record_later(
    recorder: Recorder,
    device: Device,
    tensors: Sequence[Any],
    count: int,
    build: Callable[..., list[dict[str, Any]]],
) -> None:
    """Records `count` events from the values that the tensors have at this point of the current stream.

    A full queue costs no copy, and a captured graph gets none of ours.
    """
    if count > 0 and recorder.active and not device.capturing() and recorder.room_for(count):
        copies = device.copy(tensors)
        values = sum(int(tensor.numel()) for tensor in tensors)
        recorder.later(DeferredEvents(recorder.reserve(count), copies, build, values))
