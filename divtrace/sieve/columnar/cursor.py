"""One rank's rows, chunk by chunk over all of its files, and one by one where the ranks fell out of step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import msgspec

from divtrace.events import Event, Meta
from divtrace.sieve.columnar.chunk import Chunk
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.cursor import Cursor, NotSievableError, Reading
from divtrace.trace.discover import Source
from divtrace.trace.lines import Lines
from divtrace.trace.model import Record
from divtrace.trace.provenance import Origins

_LONGEST_TAIL = 4096
"""Records of the last step that are kept at hand."""
_AHEAD = 512
"""Rows that are made events at once where rows are taken one by one."""


class Piece(msgspec.Struct):
    """Rows that start at a position of the rank's order."""

    pos: int
    source: Source
    groups: Sequence[int]
    rows: int
    first_row: int


class ColumnReading(Reading):
    """What reading one rank's Parquet files showed."""

    in_columns: ClassVar[bool] = True

    pieces: list[Piece] = msgspec.field(default_factory=list)
    tail: list[Record] = msgspec.field(default_factory=list)
    """All records from the position `tail_from` on."""
    tail_from: int = 0
    names: list[str] = msgspec.field(default_factory=list)
    """Files that the records were in before a conversion; empty if there was none."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read, or that the rank's records were in before they were converted."""
        return tuple(sorted({*self.names, *(piece.source.name for piece in self.pieces if not self.names)}))


class ParquetCursor(Cursor):
    """Reads one rank's rows. Rows of `chunk` from `index` on have not been taken yet."""

    rows = True

    reading: ColumnReading

    def __init__(self, world: int, rank: int, traces: list[ParquetTrace], metas: list[Meta]) -> None:
        """Start in front of the first row of the first file."""
        self._traces = traces
        super().__init__(world, rank, [trace.source for trace in traces])
        self.reading = ColumnReading(metas=list(metas))
        self.chunk: Chunk | None = None
        self._last: Chunk | None = None
        self._prepared: Chunk | None = None
        self._chunks = self._all_chunks()
        self._events: list[Event] = []
        self._events_from = 0

    def _all_blocks(self, sources: object) -> Iterator[Lines]:  # noqa: ARG002 - there are no lines in Parquet
        return iter(())

    def _all_chunks(self) -> Iterator[Chunk]:
        for trace in self._traces:
            first_row = 0
            for groups in trace.pieces():
                rows = sum(trace.group_rows[index] for index in groups)
                if not trace.is_large(groups):
                    yield Chunk(trace, groups, rows, first_row)
                elif trace.provenance is not None:
                    raise NotSievableError(f"{trace.source.name} has a window that is too large")
                else:
                    start = first_row
                    for batch in trace.batches(groups, list(trace.fields)):
                        given = dict(zip(batch.schema.names, batch.columns, strict=True))
                        yield Chunk(trace, groups, batch.num_rows, start, given)
                        start += batch.num_rows
                first_row += rows

    def close(self) -> None:
        """Let go of all files, and take over from a conversion what its rows do not tell."""
        for trace in self._traces:
            trace.close()
        (origin, *others) = [trace.provenance for trace in self._traces]
        if origin is not None and not others:
            self.reading.gaps, self.reading.lost = list(origin.gaps), origin.lost
            self.reading.names = origin.files

    def fill(self) -> bool:
        """Make sure that there is a row to take; False at the end of the last file."""
        while self.chunk is None or self.index >= self.chunk.rows:
            if self.chunk is not None:
                self._last = self.chunk
            self.chunk = next(self._chunks, None)
            self.index, self._events = 0, []
            if self.chunk is None:
                return False
            chunk = self.chunk
            if not chunk.rows:
                continue
            piece = Piece(self.pos, chunk.trace.source, chunk.groups, chunk.rows, chunk.first_row)
            self.reading.pieces.append(piece)
            self.bytes_read += (chunk.trace.source.size or 0) * chunk.rows // max(chunk.trace.rows, 1)
        return True

    def prepare(self) -> None:
        """Find the order of the chunk's rows, and check what every row has to say; once for each chunk."""
        if self.chunk is not None and self.chunk is not self._prepared:
            self._prepared = self.chunk
            self.chunk.load(("seq", "rank", "world", "stage", "kind"))
            self.chunk.find_order()
            self._check_rows(self.chunk)

    def _check_rows(self, chunk: Chunk) -> None:
        """Hold the rank and the world of every row against this cursor's; count what is unknown."""
        import pyarrow.compute as pc

        for name, expected in (("rank", self.rank), ("world", self.world)):
            column = chunk.column(name)
            if column is not None and pc.min_max(column).as_py() != {"min": expected, "max": expected}:
                raise NotSievableError(f"{chunk.trace.source.name} holds several ranks")
        if chunk.column("stage") is None:
            raise NotSievableError(f"{chunk.trace.source.name}: a record has no stage")
        chunk.column("kind")
        if chunk.trace.unknown and chunk.is_whole:
            for name, column in chunk.trace.read(chunk.groups, chunk.trace.unknown).items():
                if count := len(column) - column.null_count:
                    self.reading.unknown[name] = self.reading.unknown.get(name, 0) + count
        elif chunk.trace.unknown:
            raise NotSievableError(f"{chunk.trace.source.name} has unknown columns")

    def give_back(self) -> bool:
        """Give the very first record back, so that its chunk is whole again; False if another was taken since."""
        if self.pos != 1 or self.index != 1 or self.chunk is None or self.next_seq is None:
            return False
        self.pos = self.index = 0
        self.next_seq -= 1
        self.chunk.unsort()
        return True

    def place(self) -> tuple[str, int, bool]:
        """The row of the record that was taken last; where it stood before a conversion is not asked."""
        chunk = self.chunk
        assert chunk is not None
        return chunk.trace.source.name, chunk.row(self.index - 1), True

    def still_at_hand(self, positions: Iterable[int]) -> list[Record]:
        """Those records at these positions whose rows are in the last chunk."""
        if self._last is None or not self.reading.pieces:
            return []
        chunk, first = self._last, self.reading.pieces[-1].pos
        chunk.sort()
        rows = [pos - first for pos in sorted(positions) if pos >= first]
        if chunk is not self._prepared:
            return []
        found = self._records(chunk, rows)
        self.reading.tail_from = first + self._tail(chunk)
        self.reading.tail = self._records(chunk, list(range(self.reading.tail_from - first, chunk.rows)))
        return found

    def _tail(self, chunk: Chunk) -> int:
        """The row of a chunk from which on its last step lies, if that is not far from the end."""
        import pyarrow.compute as pc

        step = chunk.column("step")
        if step is None:
            return chunk.rows
        highest = pc.max(step).as_py()
        at = pc.index(step, value=highest).as_py() if highest is not None else -1
        return at if at >= 0 and chunk.rows - at <= _LONGEST_TAIL else chunk.rows

    def _records(self, chunk: Chunk, rows: list[int]) -> list[Record]:
        """Some rows of the last chunk as records."""
        import pyarrow as pa

        first = self.reading.pieces[-1].pos
        indices = pa.array(rows, pa.int64())
        origins = Origins(chunk.trace.source.name, chunk.origin_columns(indices), chunk.trace.provenance)
        found = []
        for at, (row, event) in enumerate(zip(rows, chunk.events(indices), strict=True)):
            file, line, is_row = origins.of(at, chunk.row(row))
            found.append(Record(event, first + row, file, line, is_row))
        return found

    def take(self) -> Event | None:
        """The next record as an event; None at the end.

        Raises:
            NotSievableError: the record is no good one, or its `seq` is an earlier one.
        """
        if not self.fill() or self.chunk is None:
            return None
        self.prepare()
        self.chunk.sort()
        at = self.index - self._events_from
        if not 0 <= at < len(self._events):
            last = min(self.index + _AHEAD, self.chunk.rows)
            self._events, self._events_from = self.chunk.events(range(self.index, last)), self.index
            at = 0
        event = self._events[at]
        self.index += 1
        self.advance_seq(event)
        self.pos += 1
        return event
