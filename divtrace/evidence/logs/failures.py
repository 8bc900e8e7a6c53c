"""How processes fail: Python tracebacks, exhausted memory, device faults, kills."""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Fact, FactKind, Finding
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where

LITERALS = (
    "Traceback (most recent call last)",
    "OutOfMemoryError",
    "out of memory",
    "Out of memory",
    "NVRM: Xid",
    "SIGKILL",
    "exitcode: -9",
    "exitcode  : ",
    "GPU Hang",
    "terminated with the following error",
)
_LIMIT = 1000

_EXCEPTION = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]{0,160}(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure|NotMet|Dead|Died))(?::\s?(?P<message>.*))?$"
)
_ANY_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]{0,160})(?::\s(?P<message>.*))?$")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9}), in (?P<function>.{1,200})$')
_MEMORY = re.compile(
    r"(?:(?:torch\.)?(?:cuda\.)?OutOfMemoryError|(?:CUDA|NPU|HIP|XPU) out of memory)(?P<rest>[^\n]{0,400})"
)
_KERNEL_OOM = re.compile(r"[Oo]ut of memory: Killed process (?P<pid>\d{1,9})(?: \((?P<name>[^)]{1,80})\))?")
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9A-Fa-f:.]{4,20})\): (?P<code>\d{1,4}), ?(?P<rest>[^\n]{0,300})")
_HANG = re.compile(r"HW Exception by GPU node-(?P<node>\d{1,4}).{0,120}?reason ?:GPU Hang")
_KILLED = re.compile(r"(?:SIGKILL|exitcode\s*: -9\b)")
_EXIT = re.compile(r"^\s*exitcode  : (?P<code>-?\d{1,6}) \(pid: \d{1,9}\)")
_LOCAL_RANK = re.compile(r"(?:^|\W)rank\s*: (?P<rank>\d{1,7}) \(local_rank: \d{1,7}\)")
_SPAWNED = re.compile(r"-- Process (?P<index>\d{1,7}) terminated with the following error")

SYMPTOMS = (
    "Timed out waiting",
    "Connection reset by peer",
    "Connection closed by peer",
    "Watchdog caught collective",
    "NCCL communicator was aborted",
    "timed out",
    "monitoredBarrier",
    "EngineDeadError",
    "EngineCore encountered an issue",
    "Worker failed with error",
    "collectives on ranks",
    "died unexpectedly",
    "cancelled",
)
"""Texts of exceptions that tell of a timeout or of a lost peer, not of a failure of the rank itself."""
_BEHIND = re.compile(r"\b(?:EI0002|EI0006|EE1002)\b|hccl fftsplus task timeout")
"""HCCL's timeouts, which torch_npu prints on the lines behind the exception that they are the message of."""
_MESSAGE_LINES = 4


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """How a rank failed. An exception that only reports a timeout or a lost peer is marked as a symptom."""
    text = line.text
    if "Traceback (most recent call last)" in text:
        return _traceback(line, more, where)
    if "terminated with the following error" in text:
        found = _SPAWNED.search(text)
        if found is None:
            return ()
        return (_fact("note", line, where, found[0], details={"spawn_index": int(found["index"])}),)
    found = _KERNEL_OOM.search(text)
    if found is not None:
        details: dict[str, object] = {"pid": int(found["pid"]), "name": found["name"]}
        return (_fact("killed", line, where, found[0], details=details),)
    found = _MEMORY.search(text)
    if found is not None:
        return (_fact("out-of-memory", line, where, found[0]),)
    if "NVRM: Xid" in text:
        found = _XID.search(text)
        if found is None:
            return None
        return (_fact("device-fault", line, where, found[0], details={"bus": found["bus"], "xid": int(found["code"])}),)
    if "GPU Hang" in text:
        found = _HANG.search(text)
        return (
            ()
            if found is None
            else (_fact("device-fault", line, where, found[0], details={"node": int(found["node"])}),)
        )
    found = _EXIT.search(text)
    if found is not None:
        # torchrun's summary: the rank stands on the line above.
        above = more.before
        stated = _LOCAL_RANK.search(above.text) if above is not None else None
        if stated is None:
            return ()
        code = int(found["code"])
        kind: FactKind = "killed" if code == -9 else "exited"
        text = f"{stated[0].strip()}, {found[0].strip()}"
        return (_fact(kind, line, where, text, rank=int(stated["rank"]), details={"exit_code": code}),)
    found = _KILLED.search(text)
    if found is not None:
        return (_fact("killed", line, where, text[:300]),)
    return ()


def _fact(
    kind: FactKind,
    line: Line,
    where: Where,
    text: str,
    *,
    rank: int | None = None,
    details: dict[str, object] | None = None,
) -> Fact:
    own = {} if rank is None else {"rank": rank}
    return where.fact(line, kind, "failure", text, details=details or {}, **own)


def _traceback(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """The exception behind the frames of one process; frames of other processes may stand between them."""
    frames: list[str] = []
    for distance, follower in more.same_source(_LIMIT):
        text = follower.text.rstrip()
        frame = _FRAME.match(text)
        if frame is not None:
            frames.append(f"{frame['function']} ({frame['file']}:{frame['line']})")
            continue
        if not text or text[0] in " \t":
            continue
        found = _EXCEPTION.match(text) or (_ANY_EXCEPTION.match(text) if frames else None)
        if found is None:
            return None
        if distance <= 3 or _contiguous(more, distance, line):
            more.consumed = max(more.consumed, distance - 1)
        message = (found["message"] or "").strip()
        kind: FactKind = "out-of-memory" if "OutOfMemoryError" in found["type"] else "exception"
        full = f"{found['type']}: {message}" if message else found["type"]
        behind = (
            after.text
            for after_distance, after in more.same_source(distance + _MESSAGE_LINES)
            if after_distance > distance
        )
        expired = any(_BEHIND.search(after) for after in behind)
        return (
            where.fact(
                line,
                kind,
                "traceback",
                full[:2000],
                place=where.place(follower),
                time=follower.time or line.time,
                details={
                    "type": found["type"],
                    "message": message[:2000],
                    "symptom": expired or any(symptom in full for symptom in SYMPTOMS),
                    "frames": frames[-1:] or [],
                },
            ),
        )
    return None


def _contiguous(more: Following, distance: int, line: Line) -> bool:
    return all(follower.source == line.source for _, follower in zip(range(distance), more, strict=False))
