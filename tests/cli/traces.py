"""The smallest traces that lead to each verdict, written where a test wants them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def events(
    rank: int, *, req: str = "A", rounds: int = 3, tokens: Mapping[int, list[int]] | None = None
) -> list[dict[str, Any]]:
    """Greedy rounds of one request on one rank; `tokens` replaces the target tokens of a round."""
    records: list[dict[str, Any]] = []
    for number in range(1, rounds + 1):
        target = (tokens or {}).get(number, [11, 12, 13])
        here = {"rank": rank, "step": number, "req": req, "round": number}
        records.append({**here, "stage": "draft", "site": "draft", "draft_tokens": [11, 12]})
        records.append({**here, "stage": "verify", "site": "target", "target_tokens": target})
        records.append({**here, "stage": "accept", "site": "accept", "correct_len": 2, "bonus": 13})
    for seq, record in enumerate(records):
        record["seq"] = seq
        record["ts"] = 1_000_000_000 + seq * 1_000_000
    return records


def write(folder: Path, ranks: Iterable[list[dict[str, Any]]], *, run: str | None = None) -> Path:
    """One file per rank in `folder`, closed on purpose, and the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for records in ranks:
        rank = records[0]["rank"]
        meta = {"kind": "meta", "format": "divtrace.trace/1", "rank": rank, "parallel": {"tp_size": 2}}
        if run is not None:
            meta["run"] = run
        end = {"rank": rank, "stage": "host", "site": "end", "seq": records[-1]["seq"] + 1, "step": records[-1]["step"]}
        lines = [meta, *records, end]
        (folder / f"rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def clean(folder: Path, **more: Any) -> Path:
    """Two ranks that agree."""
    return write(folder, [events(0), events(1)], **more)


def diverged(folder: Path, *, req: str = "A", **more: Any) -> Path:
    """Two ranks whose target tokens of round 2 differ in row 1; of class control, at rule target-tokens."""
    return write(folder, [events(0, req=req), events(1, req=req, tokens={2: [11, 99, 13]})], **more)


def one_rank_missing(folder: Path) -> Path:
    """One of two ranks, waiting in a collective for the rank that left no trace: insufficient."""
    records = events(0)
    operation = {"comm": "tp", "comm_ranks": [0, 1], "comm_seq": 0, "op": "all_reduce", "state": "enqueued"}
    records.append({"rank": 0, "stage": "collective", "step": 3, "seq": len(records), "ts": 2_000_000_000, **operation})
    folder = write(folder, [records])
    file = folder / "rank0.jsonl"
    file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    return folder
