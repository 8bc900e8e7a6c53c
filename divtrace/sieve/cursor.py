"""One rank's lines, in order over all of its files, with what reading them showed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, ClassVar

import msgspec

from divtrace.events import Event, Meta
from divtrace.trace.compression import PARQUET, open_stream
from divtrace.trace.discover import Source, reason
from divtrace.trace.lines import BLOCK, Lines, split_lines
from divtrace.trace.model import Damage, Record
from divtrace.trace.records import BadRecordError, decode_line

_BETWEEN_MARKS = 1 << 22
"""Bytes between places of a file from which it can be read again."""


class NotSievableError(Exception):
    """The input is not in the order that the sieve needs; it has to be loaded as a whole."""


class DisorderError(NotSievableError):
    """The records of a rank are not in the order of `seq`; sorted they could be sieved."""


def opened(source: Source) -> BinaryIO:
    """A file that was there when the input was looked over; raises NotSievableError if it is not any more."""
    try:
        return source.open()
    except OSError as error:
        raise NotSievableError(f"{source.name}: {reason(error)}") from error


class LineSpan(msgspec.Struct):
    """From this position on, the records of one file stand on consecutive lines."""

    pos: int
    source: Source
    line: int


class Mark(msgspec.Struct, frozen=True):
    """Where a line of a file begins, so that reading can start there."""

    source: Source
    line: int
    offset: int


class Reading(msgspec.Struct):
    """What reading one rank's files showed."""

    in_columns: ClassVar[bool] = False
    """The files are Parquet; then this is a `ColumnReading`."""

    metas: list[Meta] = msgspec.field(default_factory=list)
    bad: list[Damage] = msgspec.field(default_factory=list)
    damage: list[Damage] = msgspec.field(default_factory=list)
    unknown: dict[str, int] = msgspec.field(default_factory=dict)
    spans: list[LineSpan] = msgspec.field(default_factory=list)
    marks: list[Mark] = msgspec.field(default_factory=list)
    """One every `_BETWEEN_MARKS` bytes or so, of files that are not compressed."""
    gaps: list[int] = msgspec.field(default_factory=list)
    lost: int = 0
    first_seq: int = -1

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read, sorted."""
        return tuple(sorted({span.source.name for span in self.spans}))

    def line_of(self, pos: int) -> tuple[Source, int]:
        """File and line of the record at a position."""
        span = next(span for span in reversed(self.spans) if span.pos <= pos)
        return span.source, span.line + pos - span.pos


class Cursor:
    """Reads one rank's lines. `lines[index:]` are those of the current block that have not been taken yet."""

    rows = False
    """Records are rows of Parquet files, whose places are looked up only when they are loaded."""

    def __init__(self, world: int, rank: int, sources: list[Source]) -> None:
        """Start in front of the first line of the first file."""
        self.world, self.rank = world, rank
        self.reading = Reading()
        self.lines: list[bytes] = []
        self.index = 0
        self.pos = 0
        """Position of the next record."""
        self.next_seq: int | None = None
        self.text = b""
        self.names_rank = False
        """The current file's name, or a meta in it, tells the rank of records that do not."""
        self.bytes_read = 0
        """Of the files as they lie on the disk, compressed or not."""
        self._first_line = 1
        self._blocks = self._all_blocks(sources)
        self._source = sources[0]

    def _all_blocks(self, sources: list[Source]) -> Iterator[Lines | None]:
        """The blocks of all files; lines that are left when the next one is asked for begin it.

        None instead of a block says that what is left ends its file.
        """
        behind = 0
        for source in sources:
            while self.index < len(self.lines):
                yield None
            self._source = source
            self.names_rank = source.rank is not None
            with opened(source) as file:
                stream = open_stream(file, source.size)
                if stream.peek(4) == PARQUET:
                    raise NotSievableError(source.name)
                marked = 0
                for block in split_lines(stream):
                    if stream.plain and block.offset >= marked + _BETWEEN_MARKS:
                        marked = block.offset
                        self.reading.marks.append(Mark(source, block.first, marked))
                    left = self.lines[self.index :]
                    if left:
                        block.first -= len(left)
                        block.lines = left + block.lines
                        block.text = b"\n".join((*left, block.text))
                    self.reading.spans.append(LineSpan(self.pos, source, block.first))
                    self.bytes_read = behind + file.tell()
                    yield block
                behind += file.tell()

    def fill(self) -> bool:
        """Make sure that there is a line to take; False at the end of the last file."""
        while self.index >= len(self.lines):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._begin(block)
        return True

    def join(self, few: int) -> None:
        """Where fewer than `few` lines are left, have them and the next block of their file as one block."""
        left = self.lines[self.index : self.index + few]
        if 0 < len(left) < few and sum(map(len, left)) < BLOCK:
            block = next(self._blocks, None)
            if block is not None:
                self._begin(block)

    def _begin(self, block: Lines) -> None:
        spans = self.reading.spans
        if len(spans) > 1 and spans[-2].source is spans[-1].source:
            before = spans[-2]
            if before.line + self.pos - before.pos == spans[-1].line:
                spans.pop()
        self.lines, self.index, self.text = block.lines, 0, block.text
        self._first_line = block.first
        if block.cut is not None:
            self._cut(block)

    def _cut(self, block: Lines) -> None:
        number = block.first + len(block.lines) - 1
        self.reading.damage.append(Damage(self._source.name, number, block.cut or ""))
        if block.lines:
            try:
                record, _ = decode_line(block.lines[-1])
            except BadRecordError:
                # The line that the cut went through is bad because of the cut: one damage, not two.
                self.reading.damage.pop()
                self.reading.bad.append(Damage(self._source.name, number, block.cut or ""))
                block.lines.pop()
            else:
                if record is None:
                    block.lines.pop()

    def place(self) -> tuple[str, int, bool]:
        """File and line of the record that was taken last, and whether that is a row of a Parquet file."""
        return self._source.name, self._first_line + self.index - 1, False

    def still_at_hand(self, positions: Iterable[int]) -> list[Record]:
        """Those records at these positions whose lines are in the last block."""
        found = []
        for pos in sorted(positions):
            source, number = self.reading.line_of(pos)
            index = number - self._first_line
            if source is not self._source or not 0 <= index < len(self.lines):
                continue
            try:
                record, _ = decode_line(self.lines[index])
            except BadRecordError:
                continue
            if isinstance(record, Event):
                found.append(Record(record, pos, source.name, number, False))
        return found

    def take(self) -> Event | None:
        """The next record, decoded with all care; None at the end. Metas, blank and bad lines are passed over.

        Raises:
            NotSievableError: the record has no `seq`, an earlier one, or belongs to another rank.
        """
        while self.fill():
            line = self.lines[self.index]
            number = self._first_line + self.index
            self.index += 1
            try:
                record, unknown = decode_line(line)
            except BadRecordError as bad:
                self.reading.bad.append(Damage(self._source.name, number, str(bad)))
                self._restart_span(number + 1)
                continue
            if isinstance(record, Meta):
                self._meta(record)
            if not isinstance(record, Event):
                self._restart_span(number + 1)
                continue
            for name, has_value in unknown.items():
                if has_value:
                    self.reading.unknown[name] = self.reading.unknown.get(name, 0) + 1
            self.check_identity(record)
            self.advance_seq(record)
            self.pos += 1
            return record
        return None

    def _restart_span(self, line: int) -> None:
        spans = self.reading.spans
        if spans and spans[-1].pos == self.pos:
            spans.pop()
        spans.append(LineSpan(self.pos, self._source, line))

    def _meta(self, meta: Meta) -> None:
        if (meta.rank, meta.world or 0) not in ((None, self.world), (None, 0), (self.rank, self.world)):
            raise NotSievableError(f"{self._source.name} holds several ranks")
        self.reading.metas.append(meta)
        self.names_rank = self.names_rank or meta.rank is not None

    def check_identity(self, event: Event) -> None:
        """Raise NotSievableError if a record is not surely of this cursor's rank and world."""
        if not self.is_own(event.rank, event.world):
            raise NotSievableError(f"{self._source.name} holds several ranks")

    def is_own(self, rank: int | None, world: int | None) -> bool:
        """True if a record that names these, or none, is surely of this cursor's rank and world."""
        return (rank == self.rank or (rank is None and self.names_rank)) and world in (None, self.world)

    def advance_seq(self, event: Event) -> None:
        """Note a gap in front of this record, and where the next one should follow."""
        seq = event.seq
        if seq is None:
            raise NotSievableError(f"{self._source.name}: a record has no seq")
        if self.next_seq is None:
            self.reading.first_seq = seq
        elif seq < self.next_seq:
            raise DisorderError(f"{self._source.name}: seq is not in order")
        elif seq > self.next_seq:
            self.reading.gaps.append(self.pos)
            self.reading.lost += seq - self.next_seq
        self.next_seq = seq + 1
