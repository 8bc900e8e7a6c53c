"""NCCL Inspector JSON lines: completed collectives only, so never the one that hangs."""

from __future__ import annotations

from typing import Any

import msgspec

from divtrace.evidence.facts import Communicator, Operation, Place
from divtrace.evidence.naming import canonical_operation


def read_inspector(data: bytes, path: str) -> tuple[list[Operation], int]:
    """The operations of one file, and the number of lines that could not be used. `rank` is the communicator's."""
    operations: list[Operation] = []
    bad = 0
    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            record = decoder.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            bad += 1
            continue
        header, perf = record.get("header"), record.get("coll_perf")
        if not isinstance(perf, dict):
            bad += "coll_perf" in record
            continue
        header = header if isinstance(header, dict) else {}
        count, rank, name = perf.get("coll_sn"), header.get("rank"), perf.get("coll")
        if type(count) is not int or not isinstance(name, str):
            bad += 1
            continue
        operations.append(
            Operation(
                source="inspector",
                format="nccl-inspector",
                place=Place(path, number),
                group_rank=rank if type(rank) is int and rank >= 0 else None,
                comm=Communicator(str(header.get("id", ""))[:64], "", "nccl"),
                number=count,
                op=canonical_operation(name[:60]),
                state="completed",
                text=f"{name[:60]} #{count}",
            )
        )
    return operations, bad
