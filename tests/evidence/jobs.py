"""Dumps of small made-up jobs, in the form that the flight recorder gives them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divtrace.evidence.analyse import analyse_evidence
from divtrace.evidence.report import EvidenceReport

START = 1_790_000_000_000_000_000


@dataclass
class Op:
    """One collective of one rank: `group` is a key of the job's groups."""

    group: str
    op: str = "all_reduce"
    shape: tuple[int, ...] = (4, 8)
    dtype: str = "BFloat16"
    done: bool = True
    output: tuple[int, ...] | None = None


@dataclass
class Job:
    """Groups by description, and what each rank issued, in its own order."""

    groups: dict[str, list[int]]
    ranks: dict[int, list[Op]]
    backend: str = "nccl"
    version: str = "2.10"
    first_record: int = 0
    active_only: bool = False
    numbers_from: dict[str, int] = field(default_factory=dict)

    def dump(self, rank: int) -> dict[str, Any]:
        """The dump of one rank, as Python data."""
        names = {desc: str(position) for position, desc in enumerate(self.groups)}
        counters = {desc: self.numbers_from.get(desc, 0) for desc in self.groups}
        completed = dict(counters)
        entries = []
        for position, op in enumerate(self.ranks[rank]):
            counters[op.group] += 1
            if op.done:
                completed[op.group] = counters[op.group]
            gloo = self.backend == "gloo"
            entry: dict[str, Any] = {
                "record_id": self.first_record + position,
                "pg_id": list(self.groups).index(op.group),
                "process_group": (names[op.group], op.group),
                "collective_seq_id": counters[op.group],
                "p2p_seq_id": 0,
                "op_id": counters[op.group],
                "profiling_name": f"{self.backend}:{op.op}",
                "input_sizes": [list(op.shape)],
                "output_sizes": [list(op.output or op.shape)],
                "input_dtypes": [op.dtype],
                "output_dtypes": [op.dtype],
                "state": "scheduled" if gloo or not op.done else "completed",
                "time_created_ns": START + position * 1_000_000 + rank,
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": START + position * 1_000_000 + 7 if op.done and not gloo else None,
                "retired": op.done,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
            if self.version not in ("2.3", "2.4"):
                entry |= {"thread_id": "140000000000001", "thread_name": "python"}
            if not (self.active_only and op.done):
                entries.append(entry)
        mine = {desc: ranks for desc, ranks in self.groups.items() if rank in ranks}
        config = {names[desc]: {"name": names[desc], "desc": desc, "ranks": str(ranks)} for desc, ranks in mine.items()}
        if self.backend == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        library = {"2.10": {"comm_lib_version": "2.28.9"}, "2.4": {}}.get(self.version, {"nccl_version": "2.21.5"})
        return {
            "version": self.version,
            "pg_config": config,
            **library,
            "pg_status": {
                str(list(self.groups).index(desc)): {
                    "last_enqueued_collective": counters[desc] or -1,
                    "last_started_collective": -1,
                    "last_completed_collective": completed[desc] or -1,
                }
                for desc in mine
            },
            "entries": entries,
        }

    def write(
        self, folder: Path, *, form: str = "pickle", name: str = "trace_rank_{}", only: Iterable[int] = ()
    ) -> Path:
        """Write the dumps of all ranks (or of some) and give back the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank in only or self.ranks:
            content = as_pickle(self.dump(rank)) if form == "pickle" else as_json(self.dump(rank))
            (folder / (name.format(rank) + (".json" if form == "json" else ""))).write_bytes(content)
        return folder


def as_pickle(dump: Mapping[str, Any]) -> bytes:
    """As torch writes it: protocol 2, plain containers."""
    return pickle.dumps(dict(dump), protocol=2)


def as_json(dump: Mapping[str, Any]) -> bytes:
    """As torch writes it: numbers of `pg_status` as text, unset times 0, no `entries` when there are none."""
    out = json.loads(json.dumps(dict(dump)))
    out["nccl_comm_state"] = {}
    for counts in out["pg_status"].values():
        counts.update({name: str(value) for name, value in counts.items()})
    for entry in out["entries"]:
        for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[name] = entry[name] or 0
    if not out["entries"]:
        del out["entries"]
    return json.dumps(out, sort_keys=True, separators=(",", ":")).encode()


def analyse(folder: Path, **settings: Any) -> EvidenceReport:
    """The report of all files of a folder, named relative to it."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return analyse_evidence(files, **settings)


WORLD, LEFT, RIGHT = "default_pg", "attention_tp:device", "attn_tp_b"


def rounds(group: str, count: int = 3, *, size: int = 4) -> list[Op]:
    """Rounds that all complete: two operations of the own group, one all_gather of the world."""
    one = [Op(group, "broadcast", (4,), "Int"), Op(group), Op(WORLD, "_all_gather_base", (2, 8), output=(2 * size, 8))]
    return one * count


def four_ranks(**tails: list[Op]) -> Job:
    """Four ranks in two groups of two; `r0` … `r3` are the operations behind three complete rounds."""
    groups = {WORLD: [0, 1, 2, 3], LEFT: [0, 1], RIGHT: [2, 3]}
    ranks = {rank: rounds(LEFT if rank < 2 else RIGHT) + tails.get(f"r{rank}", []) for rank in range(4)}
    return Job(groups, ranks)
