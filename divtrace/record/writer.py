"""The writer: takes events out of the queue, judges, encodes and writes them.

Runs in a daemon thread; `flush`, `close`, dumps and `DIVTRACE_SYNC` run the same code in the caller's thread. One lock
keeps them apart. It is re-entrant and taken with a timeout, since a signal handler may call into the recorder while its
own thread is at work in here.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from divtrace.record.parts import Parts, RecordingStopped
from divtrace.record.report import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from divtrace.record.check import Checker
    from divtrace.record.parts import Part
    from divtrace.record.settings import Settings
    from divtrace.record.tokens import TokenPrivacy

    class Deferred(Protocol):
        """Values that are still on their way from a device."""

        weight: int
        """About the bytes of memory that it takes."""

        def ready(self) -> bool:
            """Whether the values have arrived; never waits."""

        def events(self) -> list[dict[str, Any]]:
            """The events, with the values if they have arrived."""


_BATCH = 256
# Above this many waiting events the writer only looks at sites that it does not know yet.
_HURRIED = 2048
_HOUSEKEEPING_SECONDS = 1.0
_FIRST_WEIGHT = 2000
_SAMPLES = 8


class Writer:
    """The far end of a recorder's queue."""

    def __init__(
        self,
        settings: Settings,
        parts: Parts,
        privacy: TokenPrivacy,
        meta: Callable[[], dict[str, Any]],
        housekeeping: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        self.queue: deque[dict[str, Any]] = deque()
        self.deferred: deque[Deferred] = deque()
        self.parts = parts
        self.weight_in = 0
        """Weight of all events ever queued; only callers add to it."""
        self.weight = _FIRST_WEIGHT
        """Weight that an event counts for: the mean of some of the last ones."""
        self.next_sample = 0
        self.limit = settings.queue_bytes
        self.weight_out = 0
        """Weight of all events ever taken; only the holder of the lock adds to it."""
        self.written = -1
        """The highest `seq` handed to the operating system."""
        self.dropped = 0
        """Events lost, by a full queue or because they could not be encoded."""
        self.stopped: str | None = None
        """Why nothing is written any more."""
        self.meta_due = False
        self.lock = threading.RLock()
        self._settings = settings
        self._privacy = privacy
        self._meta = meta
        self._housekeeping = housekeeping
        self._on_stop = on_stop
        self._checker: Checker | None = None
        self._dropped_told = 0
        self._tell_again = 0.0
        self._last_step: Any = None
        self._busy = False
        self._wake = threading.Lock()
        self._wake.acquire()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="divtrace-writer", daemon=True)

    @property
    def full(self) -> bool:
        """Whether what waits has reached the limit."""
        return self.weight_in - self.weight_out > self.limit

    def sample(self, seq: int, weight: int) -> None:
        """Takes the weight of one event into the mean; the next one sampled stands at an uneven distance.

        To weigh every event would cost its caller more than all the rest. An even distance could always meet the same
        site of an engine that repeats itself.
        """
        self.weight += (weight - self.weight) // _SAMPLES if seq else weight - self.weight
        self.next_sample = seq + 1 + (seq * 2654435761 >> 8) % 31

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Makes the thread write now; costs the caller no more than the release of a lock."""
        try:
            self._wake.release()
        except RuntimeError:
            return

    @property
    def wrong_fields(self) -> int:
        """Fields that the reader would have refused, kept under `extra`."""
        return 0 if self._checker is None else self._checker.wrong_fields

    def _run(self) -> None:
        next_housekeeping = time.monotonic()
        while self.stopped is None:
            self._wake.acquire(timeout=self._settings.flush_seconds)
            if self._ending:
                return
            if self.queue or self.deferred or self.meta_due:
                self.write_all(timeout=10.0)
            if time.monotonic() >= next_housekeeping:
                next_housekeeping = time.monotonic() + _HOUSEKEEPING_SECONDS
                self._check_files()
                self._housekeeping()

    def write_all(self, timeout: float, *, last: bool = False) -> bool:
        """Writes everything that was queued before the call; False if the lock was not to be had in time.

        With `last`, deferred values that have not arrived are written without them.
        """
        if self.stopped is not None or not self.lock.acquire(timeout=timeout):
            return False
        if self._busy:
            # A signal handler that interrupted this very thread at work: the work goes on after it.
            self.lock.release()
            return False
        self._busy = True
        try:
            self._drain(last=last)
            return self.stopped is None
        except RecordingStopped as stop:
            self.stop(str(stop))
        except Exception as error:
            self.stop(f"{type(error).__name__}: {error}")
        finally:
            self._busy = False
            self.lock.release()
        return False

    def stop(self, why: str) -> None:
        """Ends the recording for good: one warning, the queue is let go, the engine goes on."""
        if self.stopped is None:
            self.stopped = why
            self._on_stop()
            warn_once(f"recording stops: {why}")
        self.queue.clear()
        self.deferred.clear()

    def _drain(self, *, last: bool) -> None:
        waiting = len(self.queue)
        if self.meta_due or (self.parts.current is None and waiting):
            self._write_meta()
        while waiting > 0:
            hurried = waiting > _HURRIED
            count = min(waiting, _BATCH)
            mark = self.weight_in
            length = len(self.queue) + len(self.deferred)
            take = self.queue.popleft
            events = [take() for _ in range(count)]
            self._write(events, hurried=hurried)
            # In proportion: the weight of a single event is not kept, and it comes out even with an empty queue.
            self.weight_out += (mark - self.weight_out) * count // max(length, count)
            waiting -= count
        if self.deferred:
            self._drain_deferred(last=last)
        if self.dropped != self._dropped_told and time.monotonic() >= self._tell_again:
            self._write_meta()

    def _drain_deferred(self, *, last: bool) -> None:
        mark, waiting = self.weight_in, len(self.deferred)
        length, taken = waiting + len(self.queue), 0
        for _ in range(waiting):
            item = self.deferred.popleft()
            if last or item.ready():
                taken += 1
                if events := item.events():
                    self._write(events, hurried=False)
            else:
                # Values of one stream arrive in order, but nothing says that there is one stream.
                self.deferred.append(item)
        self.weight_out += (mark - self.weight_out) * taken // length

    def _write(self, events: list[dict[str, Any]], *, hurried: bool) -> None:
        if self._privacy.mode != "plain":
            for event in events:
                self._privacy.apply(event)
        self._put(self._encode(events, hurried=hurried), events)
        self.written = max(self.written, events[-1].get("seq", -1), events[0].get("seq", -1))

    def _put(self, data: bytes, events: list[dict[str, Any]]) -> None:
        if not data:
            return
        if self.parts.ring and len(data) * 2 > self._settings.file_bytes and len(events) > 1:
            # A segment of the ring takes no more than its size.
            middle = len(events) // 2
            lines = data.splitlines(keepends=True)
            self._put(b"".join(lines[:middle]), events[:middle])
            self._put(b"".join(lines[middle:]), events[middle:])
            return
        part = self._part_for(len(data))
        if part is None:
            self.dropped += len(events)
            return
        try:
            part.write(data)
        except OSError as error:
            raise RecordingStopped(f"cannot write to {part.path}: {error.strerror or error}") from error
        if self.parts.ring:
            self._count_rounds(part, events)

    def _encode(self, events: list[dict[str, Any]], *, hurried: bool) -> bytes:
        if self._checker is None:
            from divtrace.record.check import Checker

            self._checker = Checker(private=self._privacy.mode != "plain")
        try:
            data, wrong = self._checker.encode(events, hurried=hurried)
        except Exception:
            data, wrong = self._encode_each(events)
        if wrong:
            warn_once(f"wrong fields are kept under extra; the first: {wrong[0]}")
            if self._settings.debug:
                for text in wrong:
                    warn_once(f"wrong field {text}")
        return data

    def _encode_each(self, events: list[dict[str, Any]]) -> tuple[bytes, list[str]]:
        assert self._checker is not None
        lines, wrong = [], []
        for event in events:
            try:
                data, found = self._checker.encode([event], hurried=False)
            except Exception as error:
                self.dropped += 1
                found = [f"{event.get('stage')!r}: cannot be encoded: {type(error).__name__}"]
            else:
                lines.append(data)
            wrong.extend(found)
        return b"".join(lines), wrong

    def _part_for(self, coming: int) -> Part | None:
        if self.parts.is_full(coming):
            self.parts.finish_current()
            self._write_meta()
        part = self.parts.current
        room = None if part is None else part.room()
        return part if room is None or room >= coming else None

    def _write_meta(self) -> None:
        from msgspec.json import encode

        from divtrace.record.check import plain_mapping

        self.meta_due = False
        self._dropped_told = self.dropped
        self._tell_again = time.monotonic() + _HOUSEKEEPING_SECONDS
        line = encode(plain_mapping(self._meta())) + b"\n"
        try:
            part = self.parts.current
            room = 0 if part is None else part.room()
            # Else a line in a file that is full, which is better than a file of one line.
            if room is not None and room < len(line):
                self.parts.finish_current()
                part = self.parts.open()
            if part is not None:
                (part.begin if part.hidden else part.write)(line)
        except OSError as error:
            raise RecordingStopped(f"cannot write: {error.strerror or error}") from error

    def _count_rounds(self, part: Part, events: list[dict[str, Any]]) -> None:
        for event in events:
            step = event.get("step", event.get("round"))
            if step is not None and step != self._last_step:
                self._last_step = step
                part.rounds += 1

    def _check_files(self) -> None:
        if not self.lock.acquire(timeout=1.0):
            return
        try:
            if self.parts.current is not None and self.parts.current.removed():
                self.stop(f"{self.parts.current.path} was removed")
        except OSError as error:
            self.stop(f"the trace file is gone: {error.strerror or error}")
        finally:
            self.lock.release()

    def end(self, timeout: float) -> None:
        """Writes what is left, closes the files and ends the thread."""
        self._ending = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        self.write_all(timeout=timeout, last=True)
        if self.lock.acquire(timeout=timeout):
            try:
                if not self._busy:
                    if self.stopped is None and self.parts.current is not None:
                        self._write_meta()
                    self.parts.close()
            except (OSError, RecordingStopped) as error:
                self.stop(str(error))
            finally:
                self.lock.release()
