"""Runs of KV slots: lists of slots as (first, end), and many runs laid at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtrace.sieve.columnar.ragged import Ragged, counted, integer
from divtrace.sieve.slots import SlotBytes

if TYPE_CHECKING:
    import pyarrow as pa

_SPAN = 1 << 24
"""Slots between the lowest and the highest that are laid at once."""


def runs_of(slots: Ragged, positions: Ragged) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array | None]:
    """Runs over which slots and positions both rise by one.

    Returns:
        First slot, end, first position, and the layout that each is of; None for that if every layout is one run.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    one = pa.scalar(1, pa.int64())
    lengths = slots.lengths
    first, low = slots.values.take(slots.starts), positions.values.take(positions.starts)
    tail = pc.subtract(lengths, one)
    last, high = slots.values.take(pc.add(slots.starts, tail)), positions.values.take(pc.add(positions.starts, tail))
    # Rising steps that add up to the length are all one only if no step is larger or smaller.
    widths = pc.and_(pc.equal(pc.subtract(last, first), tail), pc.equal(pc.subtract(high, low), tail))
    if pc.all(widths).as_py() and _rises(slots) and _rises(positions):
        return first, pc.add(last, one), low, None
    parents, where, other = _elements(slots, positions)
    slot, position = slots.values.take(where), positions.values.take(other)
    goes_on = pc.and_(
        pc.equal(parents[1:], parents[:-1]),
        pc.and_(
            pc.equal(pc.subtract(slot[1:], slot[:-1]), one), pc.equal(pc.subtract(position[1:], position[:-1]), one)
        ),
    )
    starts = pa.concat_arrays(
        [pa.array([0], pa.int64()), pc.add(pc.indices_nonzero(pc.invert(goes_on)).cast(pa.int64()), 1)]
    )
    if not len(slot):
        starts = starts[:0]
    ends = pa.concat_arrays([starts[1:], pa.array([len(slot)] if len(slot) else [], pa.int64())])
    first = slot.take(starts)
    return first, pc.add(first, pc.subtract(ends, starts)), position.take(starts), parents.take(starts)


def _rises(lists: Ragged) -> bool:
    """True if every list rises, as far as neighbouring elements of the column tell."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = lists.values
    if len(values) < 2:
        return True
    falls = pc.add(pc.indices_nonzero(pc.less_equal(values[1:], values[:-1])).cast(pa.int64()), integer(1))
    return bool(pc.all(pc.is_in(falls, lists.starts)).as_py() is not False)


def _elements(slots: Ragged, positions: Ragged) -> tuple[pa.Array, pa.Array, pa.Array]:
    """For every element of all lists: its list, and where it stands in both columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = pc.cumulative_sum(slots.lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    total = offsets[-1].as_py()
    counter = counted(total)
    parents = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, counter))
    inside = pc.subtract(counter, offsets.take(parents))
    return parents, pc.add(slots.starts.take(parents), inside), pc.add(positions.starts.take(parents), inside)


def lay_at_once(slots: SlotBytes, runs: list[pa.Array]) -> bool:
    """Lay and cut runs that do not touch each other in slots that are all free; False if they are not like that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, cut, end, index = runs
    if not len(first):
        return True
    if not pc.all(pc.greater_equal(first[1:], end[:-1])).as_py():
        order = pc.sort_indices(first)
        first, cut, end, index = (one.take(order) for one in runs)
        if pc.all(pc.greater_equal(first[1:], end[:-1])).as_py() is False:
            return False
    low, high = first[0].as_py(), end[-1].as_py()
    if high - low > _SPAN or slots.owner.count(0, low, high) != high - low:
        return False
    # Alternately what a request keeps and what lies free up to the next run.
    following = pa.concat_arrays([first[1:], pa.array([high], pa.int64())])
    ends = pc.subtract(_interleaved(cut, following), integer(low))
    owners = _interleaved(index, pa.repeat(pa.scalar(0, pa.int64()), len(index)))
    wide = pc.greater(ends, pa.concat_arrays([pa.array([0], pa.int64()), ends[:-1]]))
    encoded = pa.RunEndEncodedArray.from_arrays(
        ends.filter(wide).cast(pa.int32()), owners.filter(wide).cast(pa.uint8())
    )
    laid = pc.run_end_decode(encoded)
    slots.owner[low:high] = memoryview(laid.buffers()[1])[laid.offset : laid.offset + len(laid)]
    return True


def _interleaved(one: pa.Array, two: pa.Array) -> pa.Array:
    """Elements of both in turn."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = counted(2 * len(one))
    unit = pa.scalar(1, pa.int64())
    second = pc.multiply(pc.bit_wise_and(at, unit), integer(len(one)))
    return pa.concat_arrays([one, two]).take(pc.add(pc.shift_right(at, unit), second))
