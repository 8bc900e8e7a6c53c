"""Log files of any size: blocks are searched for the literals of all families at once, and only lines that hold one
are decoded and read."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from divtrace.evidence.facts import Fact, Finding, Operation
from divtrace.evidence.logs.line import MAXIMUM_LINE, Following, Line
from divtrace.evidence.logs.reader import Family, Where
from divtrace.evidence.logs.registry import FAMILIES, LITERALS
from divtrace.evidence.opening import MAXIMUM_LOG, CutFileError, TooLargeError, pieces

if TYPE_CHECKING:
    import polars as pl

BLOCK = 4 << 20
"""Bytes that are searched at once."""
SMALL = 256 << 10
"""Bytes up to which the regular expressions of the standard library are faster than loading polars."""
LOOK_AHEAD = 512 << 10
"""Bytes behind a line that its reader may look at; the block's end is kept back by as much."""
MAXIMUM_LINES = 100_000
"""Lines of one file that are read for one literal; what comes behind them is counted and left out. Debug output of
every step would otherwise fill the memory, and nobody reads the hundred thousandth repetition of a timeout."""
_KEY = 5
"""First characters by which a literal is told from the others."""

# Bytes outside ASCII become one ASCII byte each, so that offsets in the text are offsets in the bytes.
_ASCII = bytes(byte if byte < 128 else 1 for byte in range(256))


def _by_key() -> dict[bytes, tuple[tuple[bytes, Family], ...]]:
    table: dict[bytes, list[tuple[bytes, Family]]] = defaultdict(list)
    for family in FAMILIES:
        for literal in family.literals:
            encoded = literal.encode("ascii")
            table[encoded[:_KEY]].append((encoded, family))
    return {key: tuple(sorted(entries, key=lambda entry: -len(entry[0]))) for key, entries in table.items()}


_TABLE = _by_key()


@dataclass(slots=True)
class ScanResult:
    """What one log told."""

    operations: list[Operation] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    not_understood: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    """By literal: lines behind MAXIMUM_LINES that were not read."""
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
    rest = b""
    try:
        for piece in pieces(path, BLOCK, MAXIMUM_LOG):
            block = rest + piece if rest else piece
            rest = scanner.block(block, last=False)
    except (CutFileError, TooLargeError) as error:
        result.problem = str(error)
    scanner.block(rest, last=True)
    result.lines = scanner.line_number - 1
    result.left_out = dict(sorted(result.left_out.items()))
    return result


class _Scanner:
    def __init__(self, where: Where, result: ScanResult) -> None:
        self.where = where
        self.result = result
        self.line_number = 1
        self.consumed_to = 0
        self.seen: set[tuple[object, ...]] = set()
        self.plain: dict[bytes, int] = {}
        self.counts: dict[bytes, int] = defaultdict(int)
        self.lines: dict[int, Line] = {}

    def block(self, data: bytes, *, last: bool) -> bytes:
        """Read the lines of one block; what must be offered again with the next block."""
        limit = len(data)
        if not last:
            limit = data.rfind(b"\n", 0, max(len(data) - LOOK_AHEAD, 0)) + 1
            if limit == 0:
                if len(data) < BLOCK + 4 * LOOK_AHEAD:
                    return data
                limit = len(data) - LOOK_AHEAD
        self.lines.clear()
        number = self.line_number
        counted = 0
        end = -1
        start = 0
        families: list[Family] = []
        for offset in self._offsets(data[:limit]):
            if offset > end:
                if families:
                    self._line(data, start, end, number, families)
                    families = []
                start = data.rfind(b"\n", counted, offset) + 1 or counted
                number += data.count(b"\n", counted, start)
                counted = start
                end = data.find(b"\n", offset)
                if end < 0:
                    end = len(data)
            family = self._family_at(data, offset)
            if family is not None and family not in families:
                families.append(family)
        if families:
            self._line(data, start, end, number, families)
        self.line_number = number + data.count(b"\n", counted, limit)
        return data[limit:]

    def _offsets(self, data: bytes) -> list[int]:
        """Offsets of literals, ascending; those that were read often enough are only counted."""
        wanted = []
        for literal in LITERALS:
            encoded = literal.encode("ascii")
            if self.counts[encoded] < MAXIMUM_LINES:
                wanted.append(literal)
            elif further := data.count(encoded):
                name = literal.strip()
                self.result.left_out[name] = self.result.left_out.get(name, 0) + further
        return _offsets(data, wanted)

    def _family_at(self, data: bytes, offset: int) -> Family | None:
        for literal, family in _TABLE[data[offset : offset + _KEY]]:
            if data.startswith(literal, offset):
                count = self.counts[literal] = self.counts[literal] + 1
                if count <= MAXIMUM_LINES:
                    return family
                name = literal.decode("ascii").strip()
                self.result.left_out[name] = self.result.left_out.get(name, 0) + 1
                return None
        return None

    def _line(self, data: bytes, start: int, end: int, number: int, families: list[Family]) -> None:
        if number <= self.consumed_to:
            return
        raw = data[start : min(end, start + MAXIMUM_LINE)]
        known = self.plain.get(raw)
        if known is not None:
            self.result.duplicates += known
            return
        line = Line(raw.decode("utf-8", "replace"), number)
        fetch = _Fetch(data, end + 1, number, self.lines)
        more = Following(line, fetch, lambda: self._before(data, start, number, fetch))
        told = 0
        understood = True
        for family in families:
            findings = family.read(line, more, self.where)
            if findings is None:
                understood = False
                counts = self.result.not_understood
                counts[family.name] = counts.get(family.name, 0) + 1
                continue
            for finding in findings:
                told += 1
                self._keep(finding)
        if understood and not fetch.given and not fetch.looked_back:
            # The same bytes again tell the same again, because no other line was looked at.
            self.plain[raw] = told
        self.consumed_to = number + more.consumed

    def _before(self, data: bytes, start: int, number: int, fetch: _Fetch) -> Line | None:
        """The line in front of the one that begins at `start`, unless it was read already."""
        begin = max(data.rfind(b"\n", 0, max(start - 1, 0)) + 1, start - 1 - MAXIMUM_LINE)
        if start >= 2 and data.startswith(data[begin:start], start):
            # The same line again is not the first half of this one.
            return None
        fetch.looked_back = True
        if start < 2 or number - 1 <= self.consumed_to:
            return None
        return Line(data[begin : start - 1].decode("utf-8", "replace"), number - 1)

    def _keep(self, finding: Finding) -> None:
        if isinstance(finding, Operation):
            key: tuple[object, ...] = (
                finding.rank,
                finding.coordinates,
                finding.group_rank,
                finding.number,
                finding.op,
                finding.comm,
                finding.last_enqueued,
                finding.state,
                finding.format,
                # NCCL's own log has a line for each operation; those of one group call share their number.
                finding.place.line if finding.format == "nccl-info" else None,
            )
            rows: list[Operation] | list[Fact] = self.result.operations
        else:
            own = finding.place.line if finding.kind in ("batch", "stack", "snapshot", "note") else None
            text = None if finding.group_ranks else finding.text
            key = (
                finding.rank,
                finding.coordinates,
                finding.group_rank,
                finding.group_ranks,
                finding.number,
                finding.process,
                finding.kind,
                finding.format,
                text,
                own,
            )
            rows = self.result.facts
        if key in self.seen:
            self.result.duplicates += 1
            return
        self.seen.add(key)
        rows.append(finding)  # type: ignore[arg-type]  # chosen by the finding's own type above


class _Fetch:
    """The lines behind a line, one after the other.

    Lines that were looked at stay at hand for the length of a block: interleaved tracebacks look at the same ones.
    """

    __slots__ = ("at", "data", "given", "known", "looked_back", "number")

    def __init__(self, data: bytes, start: int, number: int, known: dict[int, Line]) -> None:
        self.known = known
        self.data = data
        self.at = start
        self.number = number
        self.given = 0
        self.looked_back = False

    def __call__(self, distance: int) -> Line | None:
        if distance != self.given + 1:
            return None
        self.given = distance
        if self.at >= len(self.data):
            return None
        end = self.data.find(b"\n", self.at)
        end = len(self.data) if end < 0 else end
        line = self.known.get(self.at)
        if line is None:
            raw = self.data[self.at : min(end, self.at + MAXIMUM_LINE)]
            line = self.known[self.at] = Line(raw.decode("utf-8", "replace"), self.number + distance)
        self.at = end + 1
        return line


@lru_cache(maxsize=16)
def _any_of(literals: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.escape(literal.encode("ascii")) for literal in literals))


def _offsets(data: bytes, literals: list[str]) -> list[int]:
    """Offsets of literals, ascending; where two begin at one place, the first of the list counts."""
    if not data or not literals:
        return []
    if len(data) <= SMALL:
        return [found.start() for found in _any_of(tuple(literals)).finditer(data)]
    import polars as pl

    text = (data if data.isascii() else data.translate(_ASCII)).decode("ascii")
    found: pl.Series = pl.Series([text]).str.find_many(literals, leftmost=True)
    offsets: list[int] = found.to_list()[0]
    return offsets
