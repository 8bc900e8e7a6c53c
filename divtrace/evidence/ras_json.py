"""NCCL RAS reports as JSON (`ncclras -f json`, NCCL 2.28.7 and later)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from divtrace.evidence.facts import Communicator, Fact, Place

MAXIMUM_RANKS = 1 << 20
_LACKS_COMMA = re.compile(rb'([\d"el}\]])(\s{0,64}\n\s{0,64}"[^"\n]{1,64}"\s{0,8}:)')
"""NCCL 2.28.9 leaves out the comma between two fields of a missing rank, each on a line of its own."""


def read_ras(data: bytes, path: str) -> list[Fact]:
    """One fact per communicator: counts per rank, and who is missing.

    Raises:
        ValueError: the bytes are no such report.
    """
    report = _decoded(data)
    communicators = report.get("communicators") if isinstance(report, dict) else None
    if not isinstance(communicators, list):
        raise ValueError("is no RAS report: it has no list of communicators")
    facts = []
    for position, item in enumerate(communicators, 1):
        if isinstance(item, dict):
            facts.append(_communicator(item, Place(path, position)))
    gpus = {
        (row["host"], row["pid"], row.get("cuda_dev"))
        for item in communicators
        if isinstance(item, dict)
        for row in (*_rows(item.get("ranks")), *_rows(item.get("missing_ranks")))
        if isinstance(row.get("host"), str) and isinstance(row.get("pid"), int) and _plain(row.get("cuda_dev"))
    }
    if gpus:
        text = f"a job of {len(gpus)} GPUs"
        facts.append(
            Fact(kind="snapshot", format="nccl-ras-job", place=Place(path), text=text, details={"gpus": len(gpus)})
        )
    return facts


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, int | str)


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        problem = error
    try:
        return msgspec.json.decode(_LACKS_COMMA.sub(rb"\1,\2", data))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise ValueError(f"is cut or no JSON: {problem}") from None


def _rows(value: Any) -> list[dict[str, Any]]:
    rows = value if isinstance(value, list) and len(value) <= MAXIMUM_RANKS else []
    return [row for row in rows if isinstance(row, dict) and _integer(row.get("rank")) is not None]


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAXIMUM_RANKS else None


def _communicator(item: dict[str, Any], place: Place) -> Fact:
    counts: dict[str, dict[str, list[int]]] = {}
    errors: dict[str, str] = {}
    for row in _rows(item.get("ranks")):
        of_rank = row.get("collective_counts")
        if isinstance(of_rank, dict):
            for name, count in of_rank.items():
                if isinstance(count, int) and not isinstance(count, bool):
                    counts.setdefault(str(name)[:60], {}).setdefault(str(count), []).append(row["rank"])
        status = row.get("status")
        if isinstance(status, dict):
            for key in ("init_state", "async_error"):
                state = status.get(key)
                fine = ("0", "success", "ncclsuccess", "none", "no error", "")
                if isinstance(state, str | int) and str(state).lower() not in fine:
                    errors[str(row["rank"])] = f"{key} {str(state)[:80]}"
    gone = _rows(item.get("missing_ranks"))
    missing = tuple(sorted(row["rank"] for row in gone))
    dead = sorted(
        row["rank"]
        for row in gone
        if isinstance(row.get("status"), dict) and row["status"].get("considered_dead") is True
    )
    name = str(item.get("hash") or item.get("comm_hash") or item.get("id") or "")[:64]
    differing = {operation: by_count for operation, by_count in sorted(counts.items()) if len(by_count) > 1}
    parts = [f"communicator {name or '?'}"]
    for operation, by_count in differing.items():
        ordered = sorted(by_count.items(), key=lambda pair: int(pair[0]))
        parts.append(
            f"{operation} counts differ: " + ", ".join(f"{len(ranks)} ranks at {count}" for count, ranks in ordered)
        )
    if missing:
        parts.append("missing ranks: " + ", ".join(map(str, missing)))
    return Fact(
        kind="missing" if missing else "snapshot",
        format="nccl-ras",
        place=place,
        group_ranks=missing,
        comm=Communicator(name, "", "nccl"),
        text="; ".join(parts),
        details={
            "counts": {
                operation: (
                    sum(map(len, by_count.values())) + len(missing),
                    {int(count): (tuple(ranks), len(ranks)) for count, ranks in by_count.items()},
                )
                for operation, by_count in sorted(counts.items())
            },
            "differing": differing,
            "errors": errors,
            "considered_dead": dead,
            "size": _integer(item.get("size")),
        },
    )
