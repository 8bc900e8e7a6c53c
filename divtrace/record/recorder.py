"""The recorder: what an engine calls.

Every call returns at once and none raises. An event is a dict put into a queue; a daemon thread does the rest
(`divtrace.record.writer`). Importing this module costs the standard library's `threading` and little more; msgspec is
loaded by the first recorder.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import weakref

from divtrace.record.dump import DumpRequests, write_stacks
from divtrace.record.parts import Parts
from divtrace.record.report import warn_once
from divtrace.record.settings import from_environment, run_name
from divtrace.record.tokens import TokenPrivacy
from divtrace.record.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from divtrace.record.settings import Settings
    from divtrace.record.writer import Deferred

TRACE_FORMAT = "divtrace.trace/1"
"""The same as `divtrace.events.TRACE_FORMAT`, which would cost the import of msgspec here."""

FROM_ENVIRONMENT = "DIVTRACE_RUN"

_now = time.time_ns
_PLACE = ("stage", "site", "req", "round")

# What an event takes in memory besides its lists, measured with tracemalloc for events of 10 to 14 fields.
_EVENT_WEIGHT = 1400
_ITEM_WEIGHT = 40
_FORBIDDEN_IN_NAMES = str.maketrans(dict.fromkeys('/\\:*?"<>| \t\r\n\0', "_"))

_alive: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder:
    """Records the events of one rank into files of one directory.

    `parallel` holds the sizes of section "groups" of the trace format, `engine` a name, a (name, version) pair or a
    mapping, `run` the run's name (default: what `DIVTRACE_RUN`
    says; None: unknown), `world` the data-parallel replica. Other keywords go into
    the meta record as they are: `algorithm`, `device`, `backend`, `groups`, `sync`.

    A recorder serves any number of threads. In a forked child it starts anew with a file of the child's own as soon as
    the child records something.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        rank: int | None = None,
        parallel: Mapping[str, Any] | None = None,
        engine: str | Sequence[str] | Mapping[str, Any] | None = None,
        run: str | None = FROM_ENVIRONMENT,
        world: int | None = None,
        settings: Settings | None = None,
        **meta: Any,
    ) -> None:
        self._counter = itertools.count()
        self._next = self._counter.__next__
        self._off = True
        self._ended = False
        self._start_lock = threading.Lock()
        self._writer: Writer | None = None
        self._watch: DumpRequests | None = None
        try:
            self._directory = os.fspath(directory)
            self._settings = settings or from_environment()
            for problem in self._settings.problems:
                warn_once(problem)
            self._privacy = TokenPrivacy.from_settings(self._settings)
            if self._privacy.problem:
                warn_once(self._privacy.problem)
            self._rank = rank
            self._meta: dict[str, Any] = {}
            name = run_name() if run is FROM_ENVIRONMENT else run
            self._set_meta(run=name, world=world, engine=_engine(engine), parallel=_plain(parallel), **meta)
            self._start()
            _alive.add(self)
        except Exception as error:
            warn_once(f"recording does not start: {type(error).__name__}: {error}")

    # What an engine calls ------------------------------------------------------------------------------------------

    def event(self, *place: str | int | None, **fields: Any) -> int:
        """Queues one event: `event(stage, site, req=..., round=..., **fields)`, with the fields of the trace format.

        Returns its `seq`, or -1 if it was dropped or nothing is recorded. Lists are read later, by the writer: hand
        over lists that nobody changes. An event with `about_to_block=True`, or with `state` `enqueued`, is written at
        once, since the caller may not come back.
        """
        # No named parameter: Python would compare every keyword with every name, which costs more than all the rest.
        if self._off:
            return -1
        try:
            writer = self._writer or self._start()
            fields["seq"] = seq = self._next()
            fields["ts"] = _now()
            if len(place) == 2:
                fields["stage"], fields["site"] = place
            elif place:
                fields.update(zip(_PLACE, place, strict=False))
            if seq >= writer.next_sample:
                writer.sample(seq, _weight(fields))
            if writer.weight_in - writer.weight_out > writer.limit:
                writer.dropped += 1
                return -1
            now = fields.pop("about_to_block", False) or fields.get("state") == "enqueued"
            writer.weight_in += writer.weight
            writer.queue.append(fields)
            if now:
                self._write_now(writer)
            return seq
        except Exception as error:
            warn_once(f"an event was lost: {type(error).__name__}: {error}")
            return -1

    def reserve(self, count: int) -> list[int]:
        """Takes the next `count` numbers of the event counter, for events that come with `later`."""
        return list(itertools.islice(self._counter, count))

    def room_for(self, count: int) -> bool:
        """Whether the queue takes `count` events more; if not, they are counted as dropped and leave a gap."""
        writer = self._writer
        if writer is None or not writer.full:
            return True
        self.reserve(count)
        writer.dropped += count
        return False

    def later(self, deferred: Deferred) -> None:
        """Queues events whose values are still on their way from a device; never waits for them."""
        writer = self._writer
        if not self._off and writer is not None:
            try:
                writer.weight_in += deferred.weight
                writer.deferred.append(deferred)
            except Exception as error:
                warn_once(f"an event was lost: {type(error).__name__}: {error}")

    def meta(self, **keys: Any) -> None:
        """Adds to what the trace says about itself; written before the next event."""
        try:
            self._set_meta(**keys)
            if self._writer is not None and self._writer.written >= 0:
                self._writer.meta_due = True
        except Exception as error:
            warn_once(f"a meta record was lost: {type(error).__name__}: {error}")

    def flush(self, timeout: float = 5.0) -> int:
        """Hands everything that this thread recorded to the operating system, which keeps it if the process dies.

        Returns the highest `seq` written, or -1 if it could not be done in time.
        """
        try:
            writer = self._writer
            if self._off or writer is None or not writer.write_all(timeout):
                return -1
            return writer.written
        except Exception:
            return -1

    def error(self, error: BaseException, **fields: Any) -> int:
        """Records an exception as a host event, written at once."""
        try:
            text = str(error)[:4000]
        except Exception:
            text = ""
        return self.event("host", "error", about_to_block=True, error=text, error_type=type(error).__name__, **fields)

    def dump(self, why: str = "call") -> None:
        """Writes what is queued, the stacks of all threads, and in ring mode a copy of the ring that stays."""
        try:
            writer = self._writer
            if self._off or writer is None:
                return
            self.event("host", "dump", note=why)
            writer.write_all(timeout=2.0)
            write_stacks(os.path.join(self._directory, f"{self._stem()}-stacks.txt"), why)
            if writer.parts.ring and writer.lock.acquire(timeout=2.0):
                try:
                    writer.parts.dump("dump")
                finally:
                    writer.lock.release()
        except Exception as error:
            warn_once(f"a dump failed: {type(error).__name__}: {error}")

    def close(self, timeout: float = 10.0) -> None:
        """Records `end`, which says that the trace was closed on purpose, and closes the files; twice is harmless."""
        if not self._ended:
            self.event("host", "end")
        self.stop(timeout)

    def stop(self, timeout: float = 10.0) -> None:
        """Writes what is left and closes the files without an `end`, for a process that ends for another reason."""
        try:
            self._ended = True
            self._off = True
            if self._watch is not None:
                self._watch.stop()
            if self._writer is not None:
                self._writer.end(timeout)
            _alive.discard(self)
        except Exception as error:
            warn_once(f"closing the trace failed: {type(error).__name__}: {error}")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.error(error)
            self.stop()

    # What can be asked ---------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether events are still recorded."""
        return not self._off and self._writer is not None and self._writer.stopped is None

    @property
    def dropped(self) -> int:
        """Events lost so far."""
        return 0 if self._writer is None else self._writer.dropped

    @property
    def wrong_fields(self) -> int:
        """Fields with a wrong name or type, kept under `extra`."""
        return 0 if self._writer is None else self._writer.wrong_fields

    @property
    def settings(self) -> Settings:
        """The limits and switches in force."""
        return self._settings

    # Inside --------------------------------------------------------------------------------------------------------

    def _write_now(self, writer: Writer) -> None:
        if self._settings.synchronous:
            writer.write_all(timeout=1.0)
        else:
            writer.wake()

    def _set_meta(self, **keys: Any) -> None:
        known = dict(self._meta)
        known.update({key: value for key, value in keys.items() if value is not None})
        self._meta = known

    def _meta_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"kind": "meta", "format": TRACE_FORMAT, "rank": self._rank}
        record.update(host=os.uname().nodename, pid=os.getpid())
        record.update(self._meta)
        if (tokens := self._privacy.meta()) is not None:
            record["tokens"] = tokens
        if self.wrong_fields:
            record["wrong_fields"] = self.wrong_fields
        record["dropped"] = self.dropped
        return {key: value for key, value in record.items() if value is not None}

    def _stem(self) -> str:
        run = str(self._meta.get("run") or "run").translate(_FORBIDDEN_IN_NAMES)[:80]
        rank = "unknown" if self._rank is None else self._rank
        return f"{run}-world{self._meta.get('world') or 0}-rank{rank}-pid{os.getpid()}"

    def _start(self) -> Writer:
        from divtrace.record import check  # noqa: F401 (loaded now, not while the engine serves)

        with self._start_lock:
            if self._writer is not None:
                return self._writer
            parts = Parts(self._directory, self._stem(), self._settings)
            writer = Writer(
                self._settings, parts, self._privacy, self._meta_record, self._housekeeping, on_stop=self._turn_off
            )
            self._watch = DumpRequests(self._directory, self._settings.dump_signal, self.dump)
            self._watch.start()
            writer.start()
            self._writer = writer
            self._off = False
            return writer

    def _turn_off(self) -> None:
        self._off = True

    def _housekeeping(self) -> None:
        if self._watch is not None:
            self._watch.poll()

    def _restart_in_child(self) -> None:
        """After a fork: the queue, the files and the thread are the parent's."""
        off = self._off
        self._off = True
        if self._writer is not None:
            self._writer.parts.abandon()
            self._writer = None
        if off:
            return
        # The writer starts with the first event, since most forked children record nothing.
        self._start_lock = threading.Lock()
        self._off = False


def _weight(fields: dict[str, Any]) -> int:
    """About the bytes of memory that an event takes."""
    weight = _EVENT_WEIGHT
    for value in fields.values():
        kind = value.__class__
        if kind is list:
            weight += _ITEM_WEIGHT * len(value)
        elif kind is dict:
            weight += _weight(value) - _EVENT_WEIGHT + 240 + 100 * len(value)
        elif kind is str and len(value) > 64:
            weight += 4 * len(value)
    return weight


def _engine(engine: str | Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any] | None:
    if engine is None:
        return None
    if isinstance(engine, str):
        return {"name": engine}
    if hasattr(engine, "keys"):
        return dict(engine)
    return dict(zip(("name", "version"), engine, strict=False))


def _plain(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if mapping is None else dict(mapping)


def _after_fork_in_child() -> None:
    for recorder in list(_alive):
        try:
            recorder._restart_in_child()
        except Exception:
            recorder._off = True


def _at_exit() -> None:
    # Not an `end`: nobody closed the trace, and an exception may be the reason.
    for recorder in list(_alive):
        recorder.stop(timeout=2.0)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
