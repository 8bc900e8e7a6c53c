"""Reads what a recorder wrote, as strictly as the trace format says."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import zstandard

from divtrace.events import Event, Meta
from divtrace.record import Recorder

ROOT = Path(__file__).parents[2]


@dataclass
class Written:
    """The records of one directory; `bad` holds lines that the reader would refuse."""

    metas: list[Meta] = field(default_factory=list)
    raw_metas: list[dict[str, object]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    bad: list[bytes] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    @property
    def seqs(self) -> list[int]:
        return sorted(event.seq for event in self.events if event.seq is not None)


def read(directory: Path, pattern: str = "*.jsonl*") -> Written:
    written = Written()
    for path in sorted(directory.glob(pattern)):
        # What has no name yet no reader takes for a trace: its events were not written as far as anybody was told.
        if path.suffix in (".tmp", ".new"):
            continue
        written.files.append(path.name)
        for line in content(path).split(b"\n"):
            if not line.strip():
                continue
            try:
                kind = msgspec.json.decode(line)
                if kind.get("kind") == "meta":
                    written.metas.append(msgspec.json.decode(line, type=Meta))
                    written.raw_metas.append(kind)
                else:
                    written.events.append(msgspec.json.decode(line, type=Event))
            except (msgspec.MsgspecError, AttributeError):
                written.bad.append(line)
    return written


def rounds(recorder: Recorder, count: int, start: int = 0, width: int = 40) -> None:
    """Record that many rounds of one request, one event each."""
    for step in range(start, start + count):
        recorder.event("accept", "greedy", req="A", round=step, step=step, out_tokens=list(range(width)))


def content(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(data).read()
    return data


def child(script: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Starts a Python process that runs a script with the variables set and no other DIVTRACE_ variable."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIVTRACE_")}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)} | variables,
    )


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def finish(process: subprocess.Popen[str], timeout: float = 60) -> tuple[str, str]:
    """Waits for a child that has to end well; returns what it said."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err
    return out, err
