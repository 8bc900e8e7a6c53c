"""NCCL RAS reports as JSON (`ncclras -f json`, NCCL 2.28.7 and later)."""

from __future__ import annotations

from typing import Any

import msgspec

from divtrace.evidence.facts import Communicator, Fact, Place

MAXIMUM_RANKS = 1 << 20


def read_ras(data: bytes, path: str) -> list[Fact]:
    """One fact per communicator: counts per rank, and who is missing.

    Raises:
        ValueError: the bytes are no such report.
    """
    try:
        report = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"is cut or no JSON: {error}") from None
    communicators = report.get("communicators") if isinstance(report, dict) else None
    if not isinstance(communicators, list):
        raise ValueError("is no RAS report: it has no list of communicators")
    facts = []
    for position, item in enumerate(communicators, 1):
        if isinstance(item, dict):
            facts.append(_communicator(item, Place(path, position)))
    return facts


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
                if isinstance(state, str) and state.lower() not in ("success", "ncclsuccess", "none", "no error", ""):
                    errors[str(row["rank"])] = f"{key} {state[:80]}"
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
        details={"differing": differing, "errors": errors, "considered_dead": dead, "size": _integer(item.get("size"))},
    )
