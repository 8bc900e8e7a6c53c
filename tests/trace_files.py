"""Small trace files for the tests of the readers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from divtrace.trace.load import load
from divtrace.trace.model import Damage, RankTrace, Traces

Line = dict[str, Any]


def event(seq: int | None, **fields: Any) -> Line:
    """An accept event; `None` leaves a field out."""
    line = {"seq": seq, "ts": 1_767_225_600_000_000_000 + (seq or 0), "stage": "accept", "req": "A", "correct_len": seq}
    return {name: value for name, value in (line | fields).items() if value is not None}


def meta(**keys: Any) -> Line:
    return {"kind": "meta", "format": "divtrace.trace/1", **keys}


def text(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


def jsonl(lines: Iterable[Line | bytes]) -> bytes:
    return b"".join((line if isinstance(line, bytes) else text(line)) + b"\n" for line in lines)


def write(folder: Path, name: str, *lines: Line | bytes) -> Path:
    """Write a JSON Lines file; bytes are lines taken as they are."""
    return write_bytes(folder, name, jsonl(lines))


def write_bytes(folder: Path, name: str, data: bytes) -> Path:
    """Write a file, compressed if its name says so."""
    if name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    elif name.endswith(".zst"):
        data = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def only(traces: Traces) -> RankTrace:
    """The trace of the only rank."""
    (trace,) = traces.ranks.values()
    return trace


def seqs(trace: RankTrace) -> list[int | None]:
    return [record.event.seq for record in trace.records]


def places(trace: RankTrace) -> list[tuple[str, int]]:
    return [(record.file, record.line) for record in trace.records]


def damaged(folder: Path, *lines: Line | bytes) -> tuple[RankTrace, list[Damage]]:
    """Load one file of these lines, with rank 0 in its name."""
    write(folder, "rank0.jsonl", *lines)
    traces = load([folder])
    assert traces.bad_lines == len(traces.damage)
    return only(traces), traces.damage
