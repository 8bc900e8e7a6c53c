"""Dumps on request, also while the main thread is blocked in C.

Two ways, both answered by a thread: a file named `dump-request` in the trace directory that somebody touches, and,
only if `DIVTRACE_DUMP_SIGNAL` names one, a signal that a thread waits for.
"""

from __future__ import annotations

import os
import threading

from divtrace.record.report import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_FILE = "dump-request"


class DumpRequests:
    """Watches for requests and answers each with one call of `dump(why)`."""

    def __init__(self, directory: str, signal_name: str | None, dump: Callable[[str], None]) -> None:
        self._path = os.path.join(directory, REQUEST_FILE)
        self._signal_name = signal_name
        self._dump = dump
        self._seen = self._stamp()
        self._stopped = False

    def start(self) -> None:
        """Starts the thread that waits for the signal, if one is asked for."""
        if not self._signal_name:
            return
        import signal

        name = self._signal_name.upper()
        number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
        if not isinstance(number, signal.Signals):
            warn_once(f"DIVTRACE_DUMP_SIGNAL={self._signal_name!r} is no signal; no dump by signal")
            return
        if threading.current_thread() is threading.main_thread():
            # A thread that was there before does not block the signal; if it is chosen, the handler keeps the
            # process alive, and the dump comes as soon as the main thread runs Python again.
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda *_: self._dump(f"signal {number.name}"))
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        else:
            warn_once("DIVTRACE_DUMP_SIGNAL needs a recorder made in the main thread; no dump by signal")
            return
        threading.Thread(target=self._wait, args=(number,), name="divtrace-dump", daemon=True).start()

    def _wait(self, number: int) -> None:
        import signal

        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        while not self._stopped:
            signal.sigwait({number})
            if not self._stopped:
                self._dump(f"signal {signal.Signals(number).name}")

    def stop(self) -> None:
        """No more dumps."""
        self._stopped = True

    def poll(self) -> None:
        """Looks at the request file; the writer does so every second."""
        stamp = self._stamp()
        if stamp is not None and stamp != self._seen:
            self._seen = stamp
            self._dump(f"{REQUEST_FILE} was touched")

    def _stamp(self) -> int | None:
        try:
            return os.stat(self._path).st_mtime_ns
        except OSError:
            return None


def write_stacks(path: str, why: str) -> None:
    """Adds the Python stacks of all threads to a text file beside the traces; the reader ignores it."""
    import faulthandler
    import time

    with open(path, "a", encoding="utf-8") as file:
        file.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {why}\n")
        file.flush()
        faulthandler.dump_traceback(file.fileno(), all_threads=True)
