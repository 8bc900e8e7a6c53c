"""vLLM: shared-memory broadcast warnings, RPC timeouts, worker errors that the engine swallows, dead workers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Fact, FactKind, Finding
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where

LITERALS = (
    "No available shared memory broadcast block",
    "RPC call to ",
    "WorkerProc hit an exception",
    "died unexpectedly",
    "crashed with exit code",
    "Terminating process ",
)

_NO_BLOCK = re.compile(
    r"No available shared memory broadcast block found in (?P<seconds>\d{1,9}) ?(?:seconds|second|s)\b"
)
_RPC = re.compile(r"(?P<error>TimeoutError: )?RPC call to (?P<method>\w{1,80}) timed out")
_DIED = re.compile(
    r"Worker proc (?P<name>[\w.:\-]{1,80}?)-(?P<index>\d{1,7}) died unexpectedly"
    r"(?: \(exit code: (?P<code>-?\d{1,6})\))?"
)
_CRASHED = re.compile(
    r"Subprocess (?P<name>[\w.:\-]{1,80}) (?:\(pid=(?P<pid>\d{1,9})\) )?crashed with exit code (?P<code>-?\d{1,6})"
)
_TERMINATED = re.compile(r"Terminating process (?P<pid>\d{1,9}) via signal (?P<signal>SIG\w{2,8})")


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """What the engine says of its workers; RPC timeouts name no rank."""
    text = line.text
    if "No available shared memory" in text:
        found = more.match(_NO_BLOCK)
        if found is None:
            return None
        return (_fact("note", "vllm-shm-broadcast", line, where, found[0], seconds=int(found["seconds"])),)
    if "RPC call to " in text:
        found = more.match(_RPC)
        if found is None:
            return None if "timed out" in text else ()
        return (_fact("timeout", "vllm-rpc", line, where, found[0], method=found["method"]),)
    if "WorkerProc hit an exception" in text:
        # The traceback that follows carries the same prefix and is read by its own family.
        return ()
    if "died unexpectedly" in text:
        found = more.match(_DIED)
        if found is None:
            return None if "Worker" in text else ()
        code = int(found["code"]) if found["code"] else None
        kind: FactKind = "killed" if code == -9 else "exited"
        return (_fact(kind, "vllm-worker", line, where, found[0], rank=int(found["index"]), exit_code=code),)
    if "crashed with exit code" in text:
        found = more.match(_CRASHED)
        if found is None:
            return None if "Subprocess" in text else ()
        code = int(found["code"])
        # scheduler_<n> counts the schedulers of one node: no global rank.
        kind = "killed" if code == -9 else "exited"
        return (_fact(kind, "sglang-subprocess", line, where, found[0], process=found["name"], exit_code=code),)
    found = more.match(_TERMINATED)
    if found is None:
        return ()
    return (_fact("note", "torch-spawn", line, where, found[0], pid=int(found["pid"]), signal=found["signal"]),)


def _fact(
    kind: FactKind,
    name: str,
    line: Line,
    where: Where,
    text: str,
    *,
    rank: int | None = None,
    process: str | None = None,
    **details: object,
) -> Fact:
    return Fact(
        kind=kind,
        format=name,
        place=where.place(line),
        rank=rank if rank is not None else (line.rank if name != "vllm-worker" else None),
        coordinates=None if rank is not None or process is not None else line.coordinates,
        process=process or line.process,
        time=line.time,
        text=text,
        details=details,
    )
