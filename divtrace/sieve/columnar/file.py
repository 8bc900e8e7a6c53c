"""One rank's Parquet file: its columns, and whether a piece of it holds the same bytes as another rank's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.events import FIELDS, Meta
from divtrace.sieve.cursor import NotSievableError
from divtrace.trace.discover import Source, is_remote
from divtrace.trace.parquet import META_KEY
from divtrace.trace.provenance import PREFIX, Provenance, provenance_of
from divtrace.trace.records import BadRecordError, check_integers

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {field.name: field.type for field in FIELDS}
_LARGEST_PIECE = 1 << 18
"""Rows of a row group that are looked at as one; larger ones are read in parts of half of this."""


class ParquetTrace:
    """A Parquet file of one rank whose columns have the types of the fields."""

    def __init__(self, source: Source, footer: Any = None) -> None:
        """Open the file and look at its columns; `footer` is the metadata of the file if it was read before.

        Raises:
            NotSievableError: it is damaged, or a column is of another type than the field.
        """
        import pyarrow as pa
        from pyarrow import parquet

        self.source = source
        try:
            # An object of a storage is opened once for all that is read of it.
            self._object = _remote(source.path) if is_remote(source.path) else None
            self._where = source.path if self._object is None else self._object
            plain = self._plain = parquet.ParquetFile(self._where, memory_map=False, metadata=footer)
            schema = plain.schema_arrow
            self.provenance: Provenance | None = provenance_of(plain.metadata.metadata or {})
            recorded = None if self.provenance is None else frozenset(self.provenance.fields)
            self.fields = {
                name: schema.field(name).type
                for name in schema.names
                if name in _TYPES and (recorded is None or name in recorded)
            }
            if len(set(schema.names)) != len(schema.names):
                raise NotSievableError(f"{source.name} has a column twice")
            for name, arrow in self.fields.items():
                if not fits(_TYPES[name], arrow):
                    raise NotSievableError(f"{source.name}: the column {name} is of the type {arrow}")
            self._texts = [
                name for name, arrow in self.fields.items() if _TYPES[name] == "str" and not pa.types.is_null(arrow)
            ]
        except (pa.ArrowException, OSError, ValueError, UnicodeError) as error:
            raise NotSievableError(f"{source.name}: {error}") from error
        metadata = self.metadata = plain.metadata
        self._schema = plain.schema
        self._opened: Any = None
        self.rows: int = metadata.num_rows
        self._leaves: dict[str, list[int]] = {}
        for index in range(metadata.num_columns):
            path = self._schema.column(index).path
            # A column of a conversion has a dot in its name; behind that of others stands the part of a list.
            self._leaves.setdefault(path if path.startswith(PREFIX) else path.partition(".")[0], []).append(index)
        self._recorded = _recorded(self.provenance, metadata.num_row_groups)
        self.group_rows: list[int] = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        self.unknown = [name for name in schema.names if name not in _TYPES and not name.startswith(PREFIX)]
        self.metas = _metas(metadata.metadata or {}, source)
        self._bytes: Any = None

    @property
    def file(self) -> Any:
        """The file, read so that texts come as dictionaries."""
        if self._opened is None:
            from pyarrow import parquet

            self._opened = parquet.ParquetFile(
                self._where, memory_map=False, metadata=self.metadata, read_dictionary=self._texts
            )
        return self._opened

    def pieces(self) -> list[list[int]]:
        """The row groups that are looked at together, in order."""
        if self.provenance is None:
            return [[index] for index, rows in enumerate(self.group_rows) if rows]
        found = []
        first = 0
        for count in self.provenance.windows:
            found.append(list(range(first, first + count)))
            first += count
        if first != len(self.group_rows):
            raise NotSievableError(f"{self.source.name}: its windows are not as its metadata says")
        return found

    def is_large(self, groups: Sequence[int]) -> bool:
        """True if these row groups hold too many rows to be looked at as one."""
        return sum(self.group_rows[index] for index in groups) > _LARGEST_PIECE

    def read(self, groups: Sequence[int], names: Sequence[str]) -> dict[str, pa.Array]:
        """Columns of some row groups, each as one array."""
        with self._damage_told():
            table = self.table(groups, names)
            return {name: whole(table.column(name)) for name in names}

    def table(self, groups: Sequence[int], names: Sequence[str]) -> pa.Table:
        """Columns of some row groups, as they come."""
        with self._damage_told():
            return self.file.read_row_groups(list(groups), columns=list(names), use_threads=False)

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise NotSievableError(f"{self.source.name}: {error}") from error

    def batches(self, groups: Sequence[int], names: Sequence[str]) -> Any:
        """Columns of large row groups, in parts."""
        return self.file.iter_batches(
            batch_size=_LARGEST_PIECE // 2, row_groups=list(groups), columns=list(names), use_threads=False
        )

    def first_row(self, group: int) -> int:
        """Rows of the file in front of a row group."""
        return sum(self.group_rows[:group])

    def may_hold(self, group: int, req: str, name: str = "req") -> bool:
        """False if the statistics say that no row of a row group names this request in its `req`, or in its `batch`."""
        if name not in self._leaves:
            return False
        column = self.metadata.row_group(group).column(self._leaves[name][0])
        known = column.statistics
        if known is None or not known.has_min_max:
            return known is None or not known.has_null_count or known.null_count != column.num_values
        try:
            return bool(known.min <= req <= known.max)
        except (TypeError, UnicodeError):
            return True

    def tells(self, name: str) -> bool:
        """Whether the file has a column, a field's or one that a conversion added."""
        return name in self._leaves

    def may_be_null(self, group: int, name: str) -> bool:
        """False if the statistics say that every row of a row group records a field."""
        known = self.metadata.row_group(group).column(self._leaves[name][0]).statistics
        return known is None or not known.has_null_count or known.null_count > 0

    def has_values(self, groups: Sequence[int], name: str) -> bool:
        """False if a column of these row groups is surely null throughout."""
        if self._recorded is not None:
            return any(name in self._recorded[group] for group in groups)
        metadata = self.metadata
        for group in groups:
            for leaf in self._leaves[name]:
                column = metadata.row_group(group).column(leaf)
                known = column.statistics
                if known is None or not known.has_null_count or known.null_count != column.num_values:
                    return True
        return False

    def same_bytes(self, groups: Sequence[int], other: ParquetTrace, others: Sequence[int], name: str) -> bool:
        """True if a column's stored bytes equal another file's, and so its values; False says nothing."""
        here, there = self._leaves.get(name, []), other._leaves.get(name, [])
        if len(here) != len(there) or len(groups) != len(others):
            return False
        for mine, its in zip(here, there, strict=True):
            if self._schema.column(mine) != other._schema.column(its):
                return False
            for group, its_group in zip(groups, others, strict=True):
                one, two = self._chunk(group, mine), other._chunk(its_group, its)
                if one[1:] != two[1:] or self.raw(*one[:2]) != other.raw(*two[:2]):
                    return False
        return True

    def _chunk(self, group: int, leaf: int) -> tuple[int, int, int, str]:
        """Offset, size, number of values and codec of a column chunk."""
        column = self.metadata.row_group(group).column(leaf)
        start = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset:
            start = min(start, column.dictionary_page_offset)
        return start, column.total_compressed_size, column.num_values, column.compression

    def raw(self, start: int, size: int) -> bytes:
        """Bytes of the file."""
        if self._object is not None:
            try:
                return bytes(self._object.read_at(size, start))
            except OSError as error:
                raise NotSievableError(f"{self.source.name}: {error}") from error
        if self._bytes is None:
            self._bytes = open(self.source.path, "rb")  # noqa: PTH123, SIM115 - may hold surrogates; closed below
        return os.pread(self._bytes.fileno(), size, start)

    def close(self) -> None:
        """Let go of the file."""
        self._plain.close()
        if self._opened is not None:
            self._opened.close()
        if self._bytes is not None:
            self._bytes.close()
        if self._object is not None:
            self._object.close()


def _recorded(provenance: Provenance | None, groups: int) -> list[frozenset[str]] | None:
    """The columns that each row group records; None if the file does not tell."""
    if provenance is None or len(provenance.recorded) != groups:
        return None
    sets = [frozenset(columns) for columns in provenance.column_sets]
    if not all(0 <= number < len(sets) for number in provenance.recorded):
        return None
    return [sets[number] for number in provenance.recorded]


def _remote(path: str) -> Any:
    from divtrace.trace.remote import open_random

    return open_random(path)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; texts of several dictionaries get one."""
    import pyarrow as pa

    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def fits(kind: str, arrow: pa.DataType) -> bool:
    """True if a column's type makes its values those of a field of this kind, but for texts that are not UTF-8."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(arrow):
        return True
    if kind.startswith("["):
        return (types.is_list(arrow) or types.is_large_list(arrow)) and fits(kind[1:-1], arrow.value_type)
    if kind == "object":
        return types.is_map(arrow) and fits("str", arrow.key_type) and fits("str", arrow.item_type)
    if types.is_dictionary(arrow):
        return kind == "str" and fits("str", arrow.value_type)
    if kind == "int":
        return bool(types.is_integer(arrow))
    if kind == "str":
        return bool(types.is_string(arrow) or types.is_large_string(arrow))
    if kind == "bool":
        return bool(types.is_boolean(arrow))
    return bool(types.is_floating(arrow) or (kind == "number" and types.is_integer(arrow)))


def _metas(metadata: dict[bytes, bytes], source: Source) -> list[Meta]:
    text = metadata.get(META_KEY)
    if text is None:
        return []
    try:
        found = msgspec.json.decode(text, type=Meta | list[Meta])
        metas = found if isinstance(found, list) else [found]
        for meta in metas:
            check_integers(meta)
    except (msgspec.DecodeError, BadRecordError, RecursionError) as error:
        raise NotSievableError(f"{source.name}: {error}") from error
    return metas
