"""Lists of one column, addressed by where they start, without copying their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa


class Ragged(msgspec.Struct, frozen=True):
    """Some rows of a list column: `values[starts[i]:starts[i] + lengths[i]]` is row i; null where there is none."""

    values: pa.Array
    starts: pa.Array
    lengths: pa.Array

    def take(self, rows: pa.Array) -> Ragged:
        """Other rows of the same column; a null index gives none."""
        return Ragged(self.values, self.starts.take(rows), self.lengths.take(rows))

    def at(self, index: pa.Array) -> pa.Array:
        """One element of every row; null where the row has none at that index."""
        import pyarrow as pa
        import pyarrow.compute as pc

        inside = pc.and_(pc.less(index, self.lengths), pc.greater_equal(index, pa.scalar(0, pa.int64())))
        where = pc.if_else(inside, pc.add(self.starts, index), pa.scalar(None, pa.int64()))
        return self.values.take(where)


def ragged(column: pa.Array | None, rows: pa.Array, count: int) -> Ragged:
    """Some rows of a list column that may be absent; `rows` may hold nulls, `count` is its length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column is None:
        nothing = pa.nulls(count, pa.int64())
        return Ragged(pa.array([], pa.int64()), nothing, nothing)
    offsets = column.offsets.cast(pa.int64())
    starts = offsets.take(rows)
    lengths = pc.subtract(offsets.take(pc.add(rows, integer(1))), starts)
    if column.null_count:
        valid = column.is_valid().take(rows)
        starts = pc.if_else(valid, starts, pa.scalar(None, pa.int64()))
        lengths = pc.if_else(valid, lengths, pa.scalar(None, pa.int64()))
    return Ragged(column.values, starts, lengths)


def runs_on(lists: Ragged, longest: int) -> pa.Array:
    """True where a list's elements rise by one; null where there is no list."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _all_run_on(lists):
        return pc.is_valid(lists.lengths)
    good = pc.greater_equal(lists.lengths, pa.scalar(0, pa.int64()))
    first = lists.at(constant(0, len(lists.starts)))
    for index in range(1, longest):
        element = lists.at(constant(index, len(lists.starts)))
        good = pc.and_(good, pc.fill_null(pc.equal(element, pc.add(first, integer(index))), True))
    return good


def integer(value: int) -> pa.Scalar:
    """A number as Arrow takes it; for one without a type it would look for the module dateutil again, each time."""
    import pyarrow as pa

    return pa.scalar(value, pa.int64())


def constant(value: int, count: int) -> pa.Array:
    """The same number in every row."""
    import pyarrow as pa

    return pa.repeat(integer(value), count)


def _all_run_on(lists: Ragged) -> bool:
    """True if the column's values fall out of step exactly where a list of these starts; False says nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(lists.values) < 2 or lists.starts.null_count:
        return False
    steps = pc.subtract(lists.values[1:], lists.values[:-1])
    breaks = pc.indices_nonzero(pc.not_equal(steps, pa.scalar(1, steps.type))).cast(pa.int64())
    return bool(pc.add(breaks, integer(1)).equals(lists.starts[1:]))


def counted(count: int) -> pa.Array:
    """The numbers from 0 on."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.subtract(pc.cumulative_sum(constant(1, count)), pa.scalar(1, pa.int64()))


def last_of_each(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The distinct values, and where each stands for the last time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    distinct = pc.unique(values)
    behind = pa.scalar(len(values) - 1, pa.int64())
    # The first from behind is the last.
    found = pc.index_in(distinct, values.take(pc.subtract(behind, counted(len(values)))))
    return distinct, pc.subtract(behind, found.cast(pa.int64()))
