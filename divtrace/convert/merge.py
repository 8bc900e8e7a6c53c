"""One rank's records in the order of `seq`, whatever the order of its lines, in bounded memory.

Lines are sorted in portions that are written to temporary files, and the portions are merged. Records that share a
`seq` are settled as `divtrace.trace.order` does.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import msgspec

from divtrace.events import Event, Meta
from divtrace.sieve.cursor import Cursor, LineSpan, NotSievableError, Reading
from divtrace.trace.discover import Source
from divtrace.trace.model import Damage, canonical
from divtrace.trace.records import decode_line

PORTION = 32 << 20
"""Bytes of lines that are sorted at a time."""
_LENGTH = struct.Struct("<Q")
_END = float("inf")

Line = tuple[int, int, int, bytes]
"""`seq`, number of the file, number of the line, text."""
_decode = msgspec.msgpack.Decoder(Line).decode


class _AnyOrder(Cursor):
    """Reads lines in the order in which they stand."""

    def __init__(self, world: int, rank: int, sources: list[Source]) -> None:
        super().__init__(world, rank, sources)
        self._numbers = {source.name: number for number, source in enumerate(sources)}
        self._waiting: list[tuple[str, Meta]] = []
        self.last_of_file: dict[str, int] = {}
        self.anchored: list[tuple[str, int | None, Meta]] = []
        """File, `seq` of the record behind it in this file (None at its end), and the meta."""

    def advance_seq(self, event: Event) -> None:
        if event.seq is None:
            raise NotSievableError(f"{self._source.name}: a record has no seq")
        file = self._source.name
        self.last_of_file[file] = event.seq
        self.anchored += [(name, event.seq if name == file else None, meta) for name, meta in self._waiting]
        self._waiting.clear()

    def _meta(self, meta: Meta) -> None:
        super()._meta(meta)
        self._waiting.append((self._source.name, meta))

    def every_line(self) -> Iterator[Line]:
        """Every good record's line with its place."""
        while (event := self.take()) is not None:
            file, number, _ = self.place()
            yield event.seq or 0, self._numbers[file], number, self.lines[self.index - 1]
        self.anchored += [(name, None, meta) for name, meta in self._waiting]


class MergedCursor:
    """Hands out one rank's records in the order of `seq`, as `Cursor` does where lines are in order."""

    def __init__(self, world: int, rank: int, sources: list[Source], folder: Path) -> None:
        """Keep what is to be read; `folder` takes the portions while they are needed."""
        self._source = _AnyOrder(world, rank, sources)
        self._names = [source.name for source in sources]
        self._folder = folder
        self._place = ("", 0, False)
        self._wanted: dict[int, int] = {}
        self._events = self._merged()
        self.reading = Reading()
        self.duplicates = 0

    @property
    def bytes_read(self) -> int:
        """Of the files as they lie on the disk."""
        return self._source.bytes_read

    def place(self) -> tuple[str, int, bool]:
        """File and line of the record that was taken last, and that this is no row of a Parquet file."""
        return self._place

    def take(self) -> Event | None:
        """The next record; None at the end.

        Raises:
            NotSievableError: a record carries no `seq`, or belongs to another rank.
            OSError: a portion cannot be written.
        """
        return next(self._events, None)

    def _merged(self) -> Iterator[Event]:
        with tempfile.TemporaryDirectory(prefix="portions-", dir=self._folder) as folder:
            portions = [_read(path) for path in self._portions(Path(folder))]
            self._take_over()
            reading = self.reading
            expected: int | None = None
            was_contested = False
            for pos, (seq, group) in enumerate(groupby(heapq.merge(*portions), key=itemgetter(0))):
                event, contested = self._settled(list(group))
                if expected is None:
                    reading.first_seq = expected = seq
                reading.lost += seq - expected
                if seq != expected or contested or was_contested:
                    reading.gaps.append(pos)
                if seq in self._wanted:
                    self._wanted[seq] = pos
                was_contested, expected = contested, seq + 1
                yield event
        self._order_metas()

    def _portions(self, folder: Path) -> Iterator[Path]:
        held: list[Line] = []
        size = count = 0
        for line in self._source.every_line():
            held.append(line)
            size += len(line[3])
            if size >= PORTION:
                yield _write(folder / str(count), held)
                held, size, count = [], 0, count + 1
        yield _write(folder / str(count), held)

    def _take_over(self) -> None:
        """What reading the lines showed, but for their order."""
        source, reading = self._source, self.reading
        reading.bad, reading.damage, reading.unknown = source.reading.bad, source.reading.damage, source.reading.unknown
        sources = {span.source.name: span.source for span in source.reading.spans}
        reading.spans = [LineSpan(0, one, 1) for _, one in sorted(sources.items())]
        anchors = [source.last_of_file.get(file) if seq is None else seq for file, seq, _ in source.anchored]
        self._wanted = {seq: -1 for seq in anchors if seq is not None}

    def _settled(self, lines: list[Line]) -> tuple[Event, bool]:
        """The record that stands for all of one `seq`, and whether another event was recorded under it too."""
        if len(lines) == 1:
            _, file, number, text = lines[0]
            self._place = (self._names[file], number, False)
            return _event(text), False
        found = [(_event(text), self._names[file], number) for _, file, number, text in lines]
        found.sort(key=lambda one: (one[0].ts is None, one[0].ts or 0, canonical(one[0]), one[1], one[2]))
        (first, name, number), *others = found
        text = canonical(first)
        contested = False
        for event, other, line in others:
            if canonical(event) == text:
                self.duplicates += 1
            else:
                what = f"another event has the same seq {first.seq} and stays, in {name}:{number}"
                self.reading.bad.append(Damage(other, line, what))
                contested = True
        self._place = (name, number, False)
        return first, contested

    def _order_metas(self) -> None:
        """By the records beside them, as `divtrace.trace.order` has it."""

        def key(entry: tuple[str, int | None, Meta]) -> tuple[float, bytes]:
            file, seq, meta = entry
            last = self._source.last_of_file.get(file)
            if seq is not None:
                return self._wanted[seq], canonical(meta)
            return (_END if last is None else self._wanted[last] + 0.5), canonical(meta)

        self.reading.metas = [meta for _, _, meta in sorted(self._source.anchored, key=key)]


def _event(text: bytes) -> Event:
    record, _ = decode_line(text)
    assert isinstance(record, Event)
    return record


def _write(path: Path, lines: list[Line]) -> Path:
    lines.sort()
    with path.open("wb") as file:
        for line in lines:
            data = msgspec.msgpack.encode(line)
            file.write(_LENGTH.pack(len(data)))
            file.write(data)
    return path


def _read(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            yield _decode(file.read(_LENGTH.unpack(head)[0]))
