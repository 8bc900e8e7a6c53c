"""Log files of any size: blocks are searched for the literals of all families at once, and only lines that hold one
are decoded and read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from divtrace.evidence.facts import Fact, Finding, Operation
from divtrace.evidence.logs.line import MAXIMUM_LINE, Following, Line
from divtrace.evidence.logs.reader import Family, Where
from divtrace.evidence.logs.registry import FAMILIES, LITERALS
from divtrace.evidence.opening import MAXIMUM_LOG, CutFileError, TooLargeError, opened, pieces

if TYPE_CHECKING:
    import polars as pl

BLOCK = 4 << 20
"""Bytes that are searched at once."""
LOOK_AHEAD = 512 << 10
"""Bytes behind a line that its reader may look at; the block's end is kept back by as much."""
_KEY = 5
"""First characters by which a literal is told from the others."""

# Bytes outside ASCII become one ASCII byte each, so that offsets in the text are offsets in the bytes.
_ASCII = bytes(byte if byte < 128 else 1 for byte in range(256))


def _by_key() -> dict[bytes, tuple[tuple[bytes, int], ...]]:
    table: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
    for position, family in enumerate(FAMILIES):
        for literal in family.literals:
            encoded = literal.encode("ascii")
            table[encoded[:_KEY]].append((encoded, position))
    return {key: tuple(entries) for key, entries in table.items()}


_TABLE = _by_key()


@dataclass(slots=True)
class ScanResult:
    """What one log told."""

    operations: list[Operation] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    not_understood: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    problem: str | None = None
    """Why the file was not read to its end."""
    lines: int = 0

    @property
    def recognised(self) -> bool:
        """Whether the file is evidence at all."""
        return bool(self.operations or self.facts or self.not_understood)


def scan(path: Path, name: str) -> ScanResult:
    """Read one log.

    Args:
        path: the file.
        name: how places name it.

    Raises:
        OSError: the file cannot be read.
    """
    result = ScanResult()
    scanner = _Scanner(Where(name), result)
    with opened(path) as stream:
        rest = b""
        try:
            for piece in pieces(stream, BLOCK, MAXIMUM_LOG):
                block = rest + piece if rest else piece
                rest = scanner.block(block, last=False)
        except (CutFileError, TooLargeError) as error:
            result.problem = str(error)
        scanner.block(rest, last=True)
    result.lines = scanner.line_number - 1
    return result


class _Scanner:
    def __init__(self, where: Where, result: ScanResult) -> None:
        self.where = where
        self.result = result
        self.line_number = 1
        self.consumed_to = 0
        self.seen: set[tuple[object, ...]] = set()

    def block(self, data: bytes, *, last: bool) -> bytes:
        """Read the lines of one block; what must be offered again with the next block."""
        limit = len(data)
        if not last:
            limit = data.rfind(b"\n", 0, max(len(data) - LOOK_AHEAD, 0)) + 1
            if limit == 0:
                if len(data) < BLOCK + 4 * LOOK_AHEAD:
                    return data
                limit = len(data) - LOOK_AHEAD
        at = 0
        number = self.line_number
        for offset in _offsets(data[:limit]):
            if offset < at:
                continue
            start = data.rfind(b"\n", at, offset) + 1 or at
            number += data.count(b"\n", at, start)
            end = data.find(b"\n", offset)
            end = len(data) if end < 0 else end
            self._line(data, start, end, number)
            at = min(end + 1, limit) if end + 1 <= limit else limit
            number += end + 1 <= limit
        self.line_number = number + data.count(b"\n", at, limit)
        return data[limit:]

    def _line(self, data: bytes, start: int, end: int, number: int) -> None:
        if number <= self.consumed_to:
            return
        raw = data[start : min(end, start + MAXIMUM_LINE)]
        line = Line(raw.decode("utf-8", "replace"), number)
        more = Following(line, _fetcher(data, end + 1, number))
        for family in _families(raw):
            findings = family.read(line, more, self.where)
            if findings is None:
                counts = self.result.not_understood
                counts[family.name] = counts.get(family.name, 0) + 1
                continue
            for finding in findings:
                self._keep(finding)
        self.consumed_to = number + more.consumed

    def _keep(self, finding: Finding) -> None:
        if isinstance(finding, Operation):
            key: tuple[object, ...] = (
                finding.format, finding.rank, finding.coordinates, finding.group_rank, finding.number, finding.op,
                finding.comm, finding.last_enqueued, finding.state,
            )  # fmt: skip
        else:
            key = (
                finding.format, finding.kind, finding.rank, finding.coordinates, finding.process, finding.group_rank,
                finding.group_ranks, finding.number,
                finding.place.line if finding.kind in ("batch", "stack", "snapshot", "note") else finding.text,
            )  # fmt: skip
        if key in self.seen:
            self.result.duplicates += 1
            return
        self.seen.add(key)
        if isinstance(finding, Operation):
            self.result.operations.append(finding)
        else:
            self.result.facts.append(finding)


def _families(raw: bytes) -> Iterator[Family]:
    """The families of which a literal stands in the line, in the order of the registry."""
    for family in FAMILIES:
        if any(literal in raw for literal in _ENCODED[family.name]):
            yield family


_ENCODED = {family.name: tuple(literal.encode("ascii") for literal in family.literals) for family in FAMILIES}


def _fetcher(data: bytes, start: int, number: int) -> "_Fetch":
    return _Fetch(data, start, number)


class _Fetch:
    """The lines behind a line, one after the other."""

    __slots__ = ("at", "data", "given", "number")

    def __init__(self, data: bytes, start: int, number: int) -> None:
        self.data = data
        self.at = start
        self.number = number
        self.given = 0

    def __call__(self, distance: int) -> Line | None:
        if distance != self.given + 1 or self.at >= len(self.data):
            return None
        end = self.data.find(b"\n", self.at)
        end = len(self.data) if end < 0 else end
        raw = self.data[self.at : min(end, self.at + MAXIMUM_LINE)]
        self.at = end + 1
        self.given = distance
        return Line(raw.decode("utf-8", "replace"), self.number + distance)


def _offsets(data: bytes) -> list[int]:
    """Offsets of literals, ascending."""
    import polars as pl

    if not data:
        return []
    text = (data if data.isascii() else data.translate(_ASCII)).decode("ascii")
    found: pl.Series = pl.Series([text]).str.find_many(list(LITERALS), leftmost=True)
    offsets: list[int] = found.to_list()[0]
    return offsets
