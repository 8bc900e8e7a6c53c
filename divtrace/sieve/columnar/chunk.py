"""Rows of one rank that are looked at together: columns read when asked for, in the order of `seq`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from divtrace.events import FIELD, PHASES, STAGES, Event
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.cursor import NotSievableError
from divtrace.trace.columns import decode_batch
from divtrace.trace.provenance import FILE_COLUMN, LINE_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa

_ALLOWED = {"stage": frozenset(STAGES), "phase": frozenset(PHASES), "kind": frozenset({"event"})}


class Chunk:
    """Whole row groups of one file, or a part of a large one whose columns are all given."""

    def __init__(
        self,
        trace: ParquetTrace,
        groups: Sequence[int],
        rows: int,
        first_row: int,
        given: dict[str, pa.Array] | None = None,
    ) -> None:
        """Take over row groups; `first_row` counts from 0 over the file."""
        self.trace, self.groups, self.rows, self.first_row = trace, groups, rows, first_row
        self.is_whole = given is None
        self._order: pa.Array | None = None
        """Where each row stands in the file, by `seq`; None if rows are in that order already."""
        self._by_order = False
        self._stored: dict[str, pa.Array | None] = {}
        self._ordered: dict[str, pa.Array | None] = {}
        if given is not None:
            self._keep(given)
        names = [name for name in trace.fields if name not in self._stored]
        self._stored.update(dict.fromkeys((name for name in names if not trace.has_values(groups, name)), None))

    @property
    def names(self) -> list[str]:
        """Fields that some row may record."""
        return [name for name in self.trace.fields if self._stored.get(name, True) is not None]

    def load(self, names: Iterable[str]) -> None:
        """Read columns at once that will be asked for."""
        wanted = [name for name in names if name in self.trace.fields and name not in self._stored]
        if wanted:
            self._keep(self.trace.read(self.groups, wanted))

    def _keep(self, columns: dict[str, pa.Array]) -> None:
        import pyarrow as pa

        for name, column in columns.items():
            if column.null_count == len(column) or pa.types.is_null(column.type):
                self._stored[name] = None
                continue
            self._stored[name] = _sound(column, FIELD[name].type, name, self.trace.source.name)

    def adopt(self, other: Chunk, name: str) -> None:
        """Take a column from another rank's chunk that is known to hold the same."""
        self._stored[name] = other._stored[name]
        if self._by_order and other._by_order:
            self._ordered[name] = other.column(name)

    def has(self, name: str) -> bool:
        """True if the column was read already, or is known to be null."""
        return name in self._stored

    def column(self, name: str) -> pa.Array | None:
        """A column in the order of the rows as they are looked at; None if no row records it."""
        if name not in self.trace.fields:
            return None
        if name not in self._stored:
            self.load([name])
        stored = self._stored[name]
        if not self._by_order or stored is None:
            return stored
        if name not in self._ordered:
            self._ordered[name] = stored.take(self._order)
        return self._ordered[name]

    @property
    def order(self) -> pa.Array | None:
        """Rows by `seq`, as indices; None if they stand in that order, or are looked at in it."""
        return None if self._by_order else self._order

    def find_order(self) -> None:
        """Look at `seq`; the chunk's rows need not be in its order.

        Raises:
            NotSievableError: a record has no `seq`.
        """
        import pyarrow.compute as pc

        seq = self.column("seq")
        if seq is None or seq.null_count:
            raise NotSievableError(f"{self.trace.source.name}: a record has no seq")
        if len(seq) > 1 and not pc.all(pc.greater(seq[1:], seq[:-1])).as_py():
            if self.trace.provenance is None:
                raise NotSievableError(f"{self.trace.source.name}: seq is not in order")
            self._order = pc.sort_indices(seq)

    def sort(self) -> None:
        """Look at the rows in the order of `seq` from now on."""
        if self._order is not None:
            self._by_order = True

    def unsort(self) -> None:
        """Look at the rows as they stand in the file again."""
        self._by_order = False
        self._ordered.clear()

    def row(self, index: int) -> int:
        """The row of the file, from 1, that stands at an index of the rows as they are looked at."""
        if self._by_order and self._order is not None:
            index = self._order[index].as_py()
        return self.first_row + index + 1

    def origin_columns(self, rows: pa.Array) -> tuple[list[str | None], list[int | None]] | None:
        """File and line of some rows before a conversion; None if there was none."""
        if self.trace.provenance is None:
            return None
        columns = self.trace.read(self.groups, (FILE_COLUMN, LINE_COLUMN))
        found = [columns[name] for name in (FILE_COLUMN, LINE_COLUMN)]
        if self._order is not None:
            rows = self._order.take(rows)
        files, lines = (column.take(rows).to_pylist() for column in found)
        return files, lines

    def events(self, indices: pa.Array | range, names: Iterable[str] | None = None) -> list[Event]:
        """Some rows as events, with these fields or all.

        Raises:
            NotSievableError: one of them is no good record.
        """
        import pyarrow as pa

        self.load(self.trace.fields if names is None else names)
        columns = {name: column for name in names or self.names if (column := self._stored.get(name)) is not None}
        if self._by_order and self._order is not None:
            # Only these rows are put in order, not the whole chunk.
            if isinstance(indices, range):
                indices = self._order.slice(indices.start, len(indices))
            else:
                indices = self._order.take(indices)
        if isinstance(indices, range):
            parts = [column.slice(indices.start, len(indices)) for column in columns.values()]
        else:
            parts = [column.take(indices) for column in columns.values()]
        batch = pa.RecordBatch.from_arrays(parts, names=list(columns))
        block = decode_batch(batch, 1, self.trace.source.name)
        if block.bad:
            raise NotSievableError(f"{self.trace.source.name}: {block.bad[0].what}")
        return block.events


def _sound(column: pa.Array, kind: str, name: str, file: str) -> pa.Array:
    """The column as the sieve wants it: texts as codes, lists without nulls, numbers finite."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if kind == "str":
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            texts = column.dictionary
            texts.validate(full=True)
            if column.indices.type != pa.int32():
                column = pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), texts)
            if len(texts) != len(pc.unique(texts)) or texts.null_count:
                column = column.dictionary_decode().dictionary_encode()
                texts = column.dictionary
            allowed = _ALLOWED.get(name)
            if allowed is not None and not allowed.issuperset(texts.to_pylist()):
                raise NotSievableError(f"{file}: {name} has values that it may not have")
            if name == "stage" and column.null_count:
                raise NotSievableError(f"{file}: a record has no stage")
        elif kind.startswith("["):
            if column.values.null_count and column.flatten().null_count:
                raise NotSievableError(f"{file}: {name} holds a null")
            if kind == "[str]":
                column.flatten().validate(full=True)
            elif pa.types.is_integer(column.type.value_type) and column.type.value_type != pa.int64():
                column = _wide(column, pa.large_list(pa.int64()), pa.large_list(pa.uint64()))
        elif kind == "int" and column.type != pa.int64():
            column = _wide(column, pa.int64(), pa.uint64())
        elif pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
            raise NotSievableError(f"{file}: {name} holds what is no number")
    except pa.ArrowException as error:
        raise NotSievableError(f"{file}: {name}: {error}") from error
    return column


def _wide(column: pa.Array, usual: pa.DataType, unsigned: pa.DataType) -> pa.Array:
    """Integers of one width; those that need the sign's bit stay unsigned."""
    import pyarrow as pa

    try:
        return column.cast(usual)
    except pa.ArrowInvalid:
        return column.cast(unsigned)
