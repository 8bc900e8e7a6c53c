"""What the tests of log formats share: a log is read, and of each row the attributes that matter are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from divtrace.evidence.facts import Fact, Operation
from divtrace.evidence.logs.scan import ScanResult, scan

Rows = list[dict[str, Any]]


def row(**attributes: Any) -> dict[str, Any]:
    """What is expected of one row."""
    return attributes


def read(tmp_path: Path, text: str) -> ScanResult:
    path = tmp_path / "server.log"
    path.write_text(text)
    return scan(path, "server.log")


def shown(found_row: Operation | Fact, names: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        if name == "comm":
            found[name] = (found_row.comm.name, found_row.comm.desc) if found_row.comm else None
        elif name == "line":
            found[name] = found_row.place.line
        elif name == "details" and isinstance(found_row, Fact):
            found[name] = {key: found_row.details.get(key) for key in names["details"]}
        else:
            found[name] = getattr(found_row, name)
    return found


def check(result: ScanResult, operations: Rows, facts: Rows) -> None:
    assert result.not_understood == {}
    assert [shown(found, want) for found, want in zip(result.operations, operations, strict=True)] == operations
    assert [shown(found, want) for found, want in zip(result.facts, facts, strict=True)] == facts
