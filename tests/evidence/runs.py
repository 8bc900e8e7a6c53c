"""Traces of two ranks that end in a collective, to stand beside dumps and logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GROUP = "attn_tp"


def collective(number: int, *, op: str = "all_reduce", state: str = "completed", comm: str = GROUP) -> dict[str, Any]:
    return {"stage": "collective", "comm": comm, "comm_ranks": [0, 1], "comm_seq": number, "op": op, "state": state}


def target(step: int, tokens: list[int]) -> dict[str, Any]:
    return {"stage": "verify", "site": "target", "step": step, "req": "A", "round": step, "target_tokens": tokens}


def steps(count: int, *, odd_at: int | None = None, first: int = 1, last: str = "completed") -> list[dict[str, Any]]:
    """`count` steps of one target event and one all_reduce; the last all_reduce has the state `last`."""
    records = []
    for step in range(1, count + 1):
        records.append(target(step, [11, 99 if step == odd_at else 12]))
        state = last if step == count else "completed"
        records.append({**collective(first + step - 1, state=state), "step": step, "numel": 32})
    return records


def write_traces(
    folder: Path, ranks: Mapping[int, list[dict[str, Any]]], *, world: int = 0, tp: int | None = 2, name: str = "rank{}"
) -> Path:
    """One file for each rank, not closed."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, records in ranks.items():
        meta: dict[str, Any] = {"kind": "meta", "format": "divtrace.trace/1", "rank": rank, "world": world}
        if tp is not None:
            meta["parallel"] = {"tp_size": tp}
        numbered = [{"seq": seq, "ts": 10**18 + seq, **record} for seq, record in enumerate(records)]
        lines = "".join(json.dumps(line) + "\n" for line in (meta, *numbered))
        (folder / f"{name.format(rank)}.jsonl").write_text(lines, encoding="utf-8")
    return folder
