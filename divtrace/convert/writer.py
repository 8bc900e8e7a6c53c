"""One rank's file: windows of rows in the order of `seq`, each sorted by request inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.align.view import MODEL
from divtrace.convert.claims import Claims
from divtrace.convert.table import batch, schema
from divtrace.events import FIELDS, Event, Meta
from divtrace.trace.parquet import META_KEY
from divtrace.trace.provenance import KEY, Provenance

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW = 1 << 17
"""Rows after which a window ends with its step."""
_LARGEST_WINDOW = WINDOW + (1 << 16)
ROW_GROUP = 1 << 13
_BATCH = 1 << 12
_LISTS = frozenset(field.name for field in FIELDS if field.type in ("[int]", "object"))
_UNIQUE = frozenset({"seq", "ts", "divtrace.line"})
_WITH_STATISTICS = ("rank", "seq", "ts", "step", "req", "round", "stage", "batch")
"""What rows are looked for by. Of the others it is told which row groups record them: a footer with all statistics is a
quarter longer, and every command reads it."""


class RankWriter:
    """Writes the records of one rank in order."""

    def __init__(self, path: Path, rank: tuple[int, int], widths: dict[str, int], *, is_sorted: bool) -> None:
        """Open the file.

        Args:
            path: the file, which is written anew.
            rank: world and rank.
            widths: columns with large integers, see `table.schema`.
            is_sorted: records carry `seq`, so that rows may be sorted by request inside a window.
        """
        from pyarrow import parquet

        self._rank, self._widths, self._is_sorted = rank, widths, is_sorted
        names = schema(widths)
        dictionary = [name for name in names.names if name not in _LISTS and name not in _UNIQUE]
        delta = {name: "DELTA_BINARY_PACKED" for name in _UNIQUE if widths.get(name, 0) < 2}
        self._writer = parquet.ParquetWriter(
            path,
            names,
            compression="zstd",
            use_dictionary=[_leaf(names, name) for name in dictionary],
            column_encoding=delta,
            write_statistics=[_leaf(names, name) for name in _WITH_STATISTICS],
            store_schema=False,
        )
        self._events: list[Event] = []
        self._files: list[str] = []
        self._lines: list[int] = []
        self._contested: list[bool | None] = []
        self._claims = Claims()
        self._tables: list[Any] = []
        self._rows = 0
        self._step: int | None = None
        self.windows: list[int] = []
        self._column_sets: dict[tuple[str, ...], int] = {}
        self._recorded: list[int] = []
        self.requests: set[str] = set()
        """Of all records, and of batches."""

    def add(self, event: Event, file: str, line: int) -> None:
        """Write the next record; `file` and `line` say where it stood.

        Raises:
            Wider: an integer does not fit its column; the file has to be written anew.
        """
        step = event.step
        if step is not None and event.stage in MODEL and (self._step is None or step > self._step):
            self._step = step
            if self._rows >= WINDOW:
                self._end_window()
        elif self._rows >= _LARGEST_WINDOW:
            self._end_window()
        self._events.append(event)
        self._files.append(file)
        self._lines.append(line)
        self._contested.append(self._claims.are_contested(event) or None)
        self._rows += 1
        if len(self._events) >= _BATCH:
            self._end_batch()

    def _end_batch(self) -> None:
        if self._events:
            columns = self._events, self._files, self._lines, self._contested
            self._tables.append(batch(*columns, self._rank, self._widths))
            self._events, self._files, self._lines, self._contested = [], [], [], []

    def _end_window(self) -> None:
        import pyarrow as pa

        self._end_batch()
        if not self._tables:
            return
        table = pa.concat_tables(self._tables).combine_chunks()
        self._tables, self._rows = [], 0
        self.requests.update(_requests(table))
        if self._is_sorted:
            table = table.take(_by_request(table))
        ends = _ends(table) if self._is_sorted else [*range(ROW_GROUP, len(table), ROW_GROUP), len(table)]
        start = 0
        for end in ends:
            rows = table.slice(start, end - start)
            columns = tuple(name for name in rows.column_names if rows.column(name).null_count < len(rows))
            self._recorded.append(self._column_sets.setdefault(columns, len(self._column_sets)))
            self._writer.write_table(rows, row_group_size=len(rows))
            start = end
        self.windows.append(len(ends))

    def finish(self, metas: list[Meta], provenance: Provenance) -> None:
        """Write the rest, and what the rows do not tell."""
        self._end_window()
        provenance.windows = self.windows
        provenance.fields = sorted(set().union(*self._column_sets))
        provenance.recorded, provenance.column_sets = self._recorded, [list(columns) for columns in self._column_sets]
        self._writer.add_key_value_metadata(
            {
                META_KEY.decode(): msgspec.json.encode(metas).decode(),
                KEY.decode(): msgspec.json.encode(provenance).decode(),
            }
        )
        self._writer.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._writer.close()


def _requests(table: pa.Table) -> list[str]:
    """All that are named, as requests or in batches."""
    import pyarrow.compute as pc

    batches = pc.list_flatten(table.column("batch").combine_chunks())
    return [req for names in (table.column("req"), batches) for req in pc.unique(names).to_pylist() if req is not None]


def _leaf(names: pa.Schema, name: str) -> str:
    """The path of a column's values in the file."""
    import pyarrow as pa

    return f"{name}.list.element" if pa.types.is_list(names.field(name).type) else name


def _by_request(table: pa.Table) -> pa.Array:
    """Rows without a request first, then request by request; by `seq` inside."""
    import pyarrow.compute as pc

    order = pc.sort_indices(table.select(["req", "seq"]), sort_keys=[("req", "ascending"), ("seq", "ascending")])
    nulls = table.column("req").null_count
    if not nulls:
        return order
    import pyarrow as pa

    return pa.concat_arrays([order[len(order) - nulls :], order[: len(order) - nulls]])


def _ends(table: pa.Table) -> list[int]:
    """Where row groups end: behind a request's last row if that is near."""
    import pyarrow.compute as pc

    req = table.column("req").combine_chunks()
    before, after = req[:-1], req[1:]
    changes = pc.add(pc.indices_nonzero(pc.fill_null(pc.not_equal(before, after), False)), 1).to_pylist()
    nulls = req.null_count
    # Rows without a request are a row group of their own: whoever asks for a request may pass over the others.
    ends: list[int] = [nulls] if 0 < nulls < len(req) else []
    start = ends[0] if ends else 0
    last: int | None = None
    for change in [*changes, len(req)]:
        while change - start > ROW_GROUP + ROW_GROUP // 2:
            start = last if last is not None and last > start and last - start >= ROW_GROUP // 2 else start + ROW_GROUP
            ends.append(start)
        last = change
    if not ends or ends[-1] < len(req):
        ends.append(len(req))
    return ends
