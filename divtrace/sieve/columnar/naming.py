"""The rules that name the events of many rounds at once at which ranks differ: `divtrace.sieve.apart` by columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from divtrace.sieve.columnar.alike import unequal, union
from divtrace.sieve.columnar.differences import Differences
from divtrace.sieve.columnar.ragged import counted
from divtrace.sieve.columnar.rounds import Rounds, Unplain
from divtrace.sieve.columnar.stretch import Part, Stretch
from divtrace.walk.compare import COMPARED, PADDED, first_difference

if TYPE_CHECKING:
    import pyarrow as pa


class NamedRows:
    """The rows of some rounds at which ranks differ, with the first field that does.

    `rows` and `fields` go together: a row of the stretch, and an index of `COMPARED`. `careful` are the rounds whose
    events have to be named one by one, since some list is longer than what is compared of it; none of their rows is in
    `rows`. `alike` are rows that differ in nothing that is compared.
    """

    def __init__(
        self, stretch: Stretch, differences: Differences, rounds: Sequence[Rounds], keys: pa.Array, mask: pa.Array
    ) -> None:
        """Name the rows.

        Args:
            stretch: all rows.
            differences: where ranks recorded other values.
            rounds: the rounds that are looked at, as each rank recorded them.
            keys: the round of every row.
            mask: True at the rows of these rounds.

        Raises:
            Unplain: only some of more than two ranks recorded a field.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        self._stretch, self._rounds, self._keys = stretch, rounds, keys
        careful: list[Any] = []
        found: list[tuple[Any, int]] = []
        every: list[Any] = []
        for index, name in enumerate(COMPARED):
            if len(stretch.parts) > 2 and mask.take(differences.uneven_in(name)).true_count:
                raise Unplain
            rows = differences.unequal_in(name)
            rows = rows.filter(mask.take(rows))
            if not len(rows):
                continue
            every.append(rows)
            # What an earlier field named is named.
            for earlier, _ in found:
                rows = rows.filter(pc.invert(pc.is_in(rows, earlier)))
            if name == "target_tokens":
                rows = self._deciding(rows)
            elif name in PADDED:
                padded = self._padded(name, rows)
                careful.append(keys.take(rows.filter(padded)))
                rows = rows.filter(pc.invert(padded))
            if len(rows):
                found.append((rows, index))
        self.careful = pc.unique(pa.concat_arrays(careful)) if careful else pa.array([], pa.int64())
        nothing = pa.array([], pa.int64())
        rows = pa.concat_arrays([nothing, *[rows for rows, _ in found]])
        fields = pa.concat_arrays([nothing, *[pa.repeat(pa.scalar(at, pa.int64()), len(rows)) for rows, at in found]])
        plain = pc.invert(pc.is_in(keys.take(rows), self.careful))
        self.rows, self.fields = rows.filter(plain), fields.filter(plain)
        touched = union(every)
        self.alike = touched.filter(
            pc.invert(pc.or_(pc.is_in(touched, self.rows), pc.is_in(keys.take(touched), self.careful)))
        )

    def _round_of(self, rows: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.index_in(self._keys.take(rows), self._rounds[0].keys)

    def _deciding(self, rows: pa.Array) -> pa.Array:
        """The rows whose target tokens differ up to the largest accepted length of their round."""
        import pyarrow.compute as pc

        at = self._round_of(rows)
        accepted = pc.max_element_wise(*[one.correct.take(at) for one in self._rounds], skip_nulls=True)
        differs: Any = None
        first = self._stretch.reference.column("target_tokens")
        for part in self._stretch.parts[1:]:
            column = part.column("target_tokens")
            where = _first_unlike(first, column, rows)
            one = pc.fill_null(pc.or_kleene(pc.is_null(accepted), pc.less_equal(where, accepted)), False)
            differs = one if differs is None else pc.or_(differs, one)
        return rows.filter(differs)

    def _padded(self, name: str, rows: pa.Array) -> pa.Array:
        """True at rows whose list is longer, on some rank, than what is compared of it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found: Any = pa.repeat(pa.scalar(False), len(rows))
        at = self._round_of(rows)
        for part, rounds in zip(self._stretch.parts, self._rounds, strict=True):
            lists = part.column(name)
            if lists is None:
                continue
            lengths = pc.list_value_length(lists).take(rows).cast(pa.int64())
            if name == "positions":
                limits = [_taken(part, "num_tokens", rows), rounds.plan.scalars("verify_len").take(at)]
            elif name == "out_tokens":
                limits = [rounds.committed.take(at)]
            else:
                limits = [pc.add(rounds.correct.take(at), pa.scalar(1, pa.int64()))]
            for limit in limits:
                found = pc.or_(found, pc.fill_null(pc.less(limit, lengths), False))
        return found


def _taken(part: Part, name: str, rows: pa.Array) -> pa.Array:
    import pyarrow as pa

    column = part.column(name)
    return pa.nulls(len(rows), pa.int64()) if column is None else column.take(rows)


def _first_unlike(one: pa.Array, two: pa.Array, rows: pa.Array) -> pa.Array:
    """Of lists that both columns hold, the index of the first element that differs; null where none does.

    Where one list is the beginning of the other this is its length.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    one, two = one.take(rows), two.take(rows)
    lengths, others = (pc.list_value_length(column).cast(pa.int64()) for column in (one, two))
    if not pc.all(pc.equal(lengths, others)).as_py() or one.null_count or two.null_count:
        pairs = zip(one.to_pylist(), two.to_pylist(), strict=True)
        return pa.array([None if a is None or b is None else first_difference((a, b)) for a, b in pairs], pa.int64())
    at = pc.indices_nonzero(unequal(one.flatten(), two.flatten())).cast(pa.int64())
    parents = pc.list_parent_indices(one).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    inside = pc.subtract(counted(len(parents)), pc.subtract(ends, lengths).take(parents))
    mine = parents.take(at)
    first = pc.index_in(counted(len(one)), mine)
    return inside.take(at).take(first)
