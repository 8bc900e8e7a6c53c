"""Rows that all ranks of a replica recorded with equal keys, and what is known of each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from divtrace.align.view import MODEL
from divtrace.events import Event
from divtrace.sieve.columnar.chunk import Chunk

if TYPE_CHECKING:
    import pyarrow as pa


class Part(msgspec.Struct):
    """The rows of one rank."""

    rank: int
    chunk: Chunk
    start: int
    count: int

    def column(self, name: str) -> pa.Array | None:
        """A column; None if no row of the whole chunk records it."""
        column = self.chunk.column(name)
        if column is None or (self.start == 0 and self.count == len(column)):
            return column
        return column.slice(self.start, self.count)

    def events(self, rows: pa.Array, names: Iterable[str] | None = None) -> list[Event]:
        """Some rows as events, with these fields or all."""
        import pyarrow.compute as pc

        return self.chunk.events(pc.add(rows, self.start) if self.start else rows, names)


class Stretch:
    """Rows of several ranks side by side; the lowest rank's are the reference."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Take over parts of equal length."""
        import pyarrow.compute as pc

        self.parts = list(parts)
        self.reference = self.parts[0]
        self.count = self.reference.count
        self.order = self.reference.chunk.order
        """Rows in the order of `seq`; None if they stand in it."""
        self.place: pa.Array | None = None if self.order is None else pc.sort_indices(self.order)
        """Where each row stands in that order; None if it is the row itself."""
        stage = self.column("stage")
        assert stage is not None
        names: list[str] = stage.dictionary.to_pylist()
        self._stage_codes = {name: code for code, name in enumerate(names)}
        self.stage = stage.indices
        import pyarrow as pa

        table = pa.array([name in MODEL for name in names], pa.bool_())
        self.is_model = table.take(self.stage)

    def column(self, name: str) -> pa.Array | None:
        """The reference's column."""
        return self.reference.column(name)

    def at_stage(self, name: str) -> pa.Array:
        """True at the rows of a stage."""
        import pyarrow as pa
        import pyarrow.compute as pc

        code = self._stage_codes.get(name)
        if code is None:
            return pa.repeat(pa.scalar(False, pa.bool_()), self.count)
        return pc.equal(self.stage, pa.scalar(code, pa.int32()))

    def valid(self, name: str) -> pa.Array | None:
        """True at the rows that record a field; None if no row does."""
        column = self.column(name)
        return None if column is None else column.is_valid()

    def sorted_rows(self, rows: pa.Array) -> pa.Array:
        """Row indices in the order of `seq`."""
        import pyarrow.compute as pc

        if self.place is None or len(rows) < 2:
            return rows
        return rows.take(pc.sort_indices(self.place.take(rows)))

    def places(self, rows: pa.Array) -> pa.Array:
        """Where rows stand in the order of `seq`."""
        import pyarrow as pa

        return rows.cast(pa.int64()) if self.place is None else self.place.take(rows).cast(pa.int64())


def holding(column: pa.Array | None, texts: Sequence[str], count: int) -> pa.Array:
    """True where a column of texts holds one of these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column is None:
        return pa.repeat(pa.scalar(False, pa.bool_()), count)
    hits = pc.is_in(column.dictionary, pa.array(list(texts), column.dictionary.type))
    return pc.fill_null(hits.take(column.indices), False)
