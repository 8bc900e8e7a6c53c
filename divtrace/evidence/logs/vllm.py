"""vLLM: shared-memory broadcast warnings, RPC timeouts, worker errors that the engine swallows, dead workers, and the
batch that the engine prints when a step fails."""

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
    "Dumping scheduler output",
)
_DUMP_LINES = 400
"""Lines of one printed batch: tensors of multimodal requests are printed over many."""
PLACEHOLDER = -1
"""Draft token that stands for one the scheduler does not know, under async scheduling."""

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

_SCHEDULED = re.compile(r"(?<!total_)num_scheduled_tokens=\{(?P<items>[^{}]{0,60000})\}")
_TOTAL = re.compile(r"total_num_scheduled_tokens=(?P<total>\d{1,9})")
_DRAFTS = re.compile(r"scheduled_spec_decode_tokens=\{(?P<items>[^{}]{0,60000})\}")
_DRAFT = re.compile(r"(?P<request>[^,\s][^,]{0,200}): \[(?P<tokens>[-\d, ]{0,4000})\]")
_NEW = re.compile(r"NewRequestData\(req_id='?(?P<request>[^,')]{1,200})")


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
    if "Dumping scheduler output" in text:
        return _scheduled(line, more, where)
    found = more.match(_TERMINATED)
    if found is None:
        return ()
    return (_fact("note", "torch-spawn", line, where, found[0], pid=int(found["pid"]), signal=found["signal"]),)


def _scheduled(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """The batch of the step that failed. The engine's process prints it, which is no rank; a worker's is its rank's."""
    parts = [line.text]
    if not _DRAFTS.search(line.text):
        for distance, follower in more.continued(_DUMP_LINES):
            if "Dumping " in follower.text:
                break
            parts.append(follower.text)
            more.consumed = max(more.consumed, distance)
            if _DRAFTS.search("".join(parts[-2:])):
                break
    text = "".join(parts)
    scheduled, total = _SCHEDULED.search(text), _TOTAL.search(text)
    if scheduled is None or total is None:
        return None
    tokens: dict[str, int] = {}
    for item in filter(None, scheduled["items"].split(", ")):
        # A request id may hold a colon.
        request, _, count = item.rpartition(": ")
        if not request or not count.isdecimal() or len(count) > 9:
            return None
        tokens[request.strip("'")] = int(count)
    found = _DRAFTS.search(text)
    drafts = {one["request"].strip("'"): one["tokens"] for one in _DRAFT.finditer(found["items"])} if found else {}
    widths = {request: listed.count(",") + bool(listed.strip()) for request, listed in sorted(drafts.items())}
    engine = line.process is not None and line.process.startswith("EngineCore")
    return (
        where.fact(
            line,
            "batch",
            "vllm-scheduler",
            f"{len(tokens)} requests, {total['total']} tokens scheduled",
            coordinates=None if engine else line.coordinates,
            process=line.process or "EngineCore",
            details={
                "batch_size": len(tokens),
                "rids": list(tokens),
                "complete": sum(tokens.values()) == int(total["total"]),
                "scheduled": tokens,
                "total": int(total["total"]),
                "new": [one["request"] for one in _NEW.finditer(text)],
                "drafts": widths,
                "placeholders": any(str(PLACEHOLDER) in listed.split(", ") for listed in drafts.values()),
            },
        ),
    )


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
    own: dict[str, object] = {"process": process or line.process}
    if rank is not None or name == "vllm-worker":
        own["rank"] = rank
    if rank is not None or process is not None:
        own["coordinates"] = None
    return where.fact(line, kind, name, text, details=details, **own)
