"""py-spy dumps, alone or as SGLang's watchdog prints them; the process title tells the rank."""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.coordinates import coordinates
from divtrace.evidence.facts import Fact, Finding
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where

LITERALS = (
    "Pyspy dump for PID",
    "Thread 0x",
    '(active): "MainThread"',
    '(idle): "MainThread"',
    '(active+gil): "MainThread"',
)
_LIMIT = 400

_START = re.compile(r"Pyspy dump for PID (?P<pid>\d{1,9})")
_PROCESS = re.compile(r"^\s*Process (?P<pid>\d{1,9}): (?P<title>.{1,300})$")
_THREAD = re.compile(
    r'^\s*Thread (?P<id>0x[0-9A-Fa-f]{1,16}|\d{1,19}) \((?P<state>[\w+]{1,20})\)(?:: "(?P<name>[^"]{0,120})")?'
)
_FRAME = re.compile(r"^\s+(?P<function>[^\s()][^()]{0,200}?) \((?P<file>[^():]{1,300}):(?P<line>\d{1,9})\)\s*$")


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """One fact per process: the frames of its main thread, innermost first."""
    start = _START.search(line.text)
    if start is None:
        if not _THREAD.search(line.text):
            return ()
        frames, consumed = _frames(more, 0)
        more.consumed = max(more.consumed, consumed)
        return (_stack(line, where, None, "", frames),) if frames else None
    title = ""
    for distance, follower in enumerate(more, 1):
        if distance > _LIMIT:
            break
        process = _PROCESS.search(follower.text)
        if process is not None:
            title = process["title"]
            continue
        thread = _THREAD.search(follower.text)
        if thread is not None and (thread["name"] or "MainThread") == "MainThread":
            frames, consumed = _frames(more, distance)
            more.consumed = max(more.consumed, consumed)
            return (_stack(line, where, int(start["pid"]), title, frames),) if frames else None
        if not (thread or follower.text.startswith((" ", "\t", "Python ")) or not follower.text.strip()):
            break
    return None


def _frames(more: Following, after: int) -> tuple[list[str], int]:
    frames: list[str] = []
    at = after
    for distance, follower in enumerate(more, 1):
        if distance <= after:
            continue
        frame = _FRAME.match(follower.text)
        if frame is None or distance > _LIMIT:
            break
        at = distance
        frames.append(f"{frame['function']} ({frame['file']}:{frame['line']})")
    return frames, at


def _stack(line: Line, where: Where, pid: int | None, title: str, frames: list[str]) -> Fact:
    return where.fact(
        line,
        "stack",
        "py-spy",
        f"stack of {title or 'a process'}: {frames[0]}",
        coordinates=coordinates(title) or line.coordinates,
        process=title or line.process,
        details={"frames": frames, "pid": pid},
    )
