"""In which rows do two columns differ?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_SIGNED_MAX = 2**63 - 1


def different_rows(one: pa.Array | None, two: pa.Array | None) -> tuple[pa.Array | None, pa.Array | None]:
    """Rows in which both columns hold a value and it differs, and rows that only one of them records.

    Columns are those of `Chunk.column`: texts as dictionaries, integers of 64 bits, lists without nulls.

    Returns:
        Row indices, each None if there are none.
    """
    import pyarrow.compute as pc

    if one is None or two is None:
        lone = two if one is None else one
        return None, None if lone is None else _some(pc.indices_nonzero(lone.is_valid()))
    if one is two or one.equals(two):
        return None, None
    uneven = None
    if one.null_count or two.null_count:
        uneven = _some(pc.indices_nonzero(pc.xor(one.is_valid(), two.is_valid())))
    return _some(_different(one, two)), uneven


def _some(rows: pa.Array) -> pa.Array | None:
    return rows if len(rows) else None


def union(found: Sequence[pa.Array | None]) -> pa.Array:
    """All of these row indices, each once, rising."""
    import pyarrow as pa
    import pyarrow.compute as pc

    every = [rows.cast(pa.int64()) for rows in found if rows is not None]
    if not every:
        return pa.array([], pa.int64())
    rows = pc.unique(pa.concat_arrays(every))
    return rows.take(pc.sort_indices(rows))


def _different(one: pa.Array, two: pa.Array) -> pa.Array:
    """Rows in which both hold a value and it differs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(one.type):
        codes = pc.index_in(two.dictionary, one.dictionary.cast(two.dictionary.type)).fill_null(-1)
        return pc.indices_nonzero(pc.not_equal(one.indices, codes.take(two.indices)))
    if pa.types.is_list(one.type) or pa.types.is_large_list(one.type):
        return _different_lists(one, two)
    return pc.indices_nonzero(unequal(one, two))


def unequal(one: pa.Array, two: pa.Array) -> pa.Array:
    """Where two columns of scalars hold different values; null where one of them holds none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if one.type == two.type or not pa.types.is_integer(one.type) or not pa.types.is_integer(two.type):
        return pc.not_equal(one, two)
    signed, unsigned = (one, two) if two.type == pa.uint64() else (two, one)
    large = pc.greater(unsigned, pa.scalar(_SIGNED_MAX, pa.uint64()))
    small = pc.if_else(large, pa.scalar(0, pa.uint64()), unsigned).cast(pa.int64())
    return pc.or_(large, pc.not_equal(signed, small))


def _different_lists(one: pa.Array, two: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    lengths = pc.not_equal(pc.list_value_length(one), pc.list_value_length(two))
    found = pc.indices_nonzero(lengths)
    alike = pc.indices_nonzero(pc.invert(lengths))
    if len(alike) != len(one):
        one, two = one.take(alike), two.take(alike)
    elements = pc.indices_nonzero(unequal(one.flatten(), two.flatten()))
    if not len(elements):
        return found
    rows = alike.take(pc.unique(pc.list_parent_indices(one).take(elements)))
    return union([found, rows])
