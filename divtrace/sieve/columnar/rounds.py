"""The invariants of SPEC section 7 over all rounds of a stretch at once, for rounds of the plain shape.

A round that is not plain, or in which something does not hold, makes its request a suspect; where that would be the
rule rather than the exception, the rows are left to the checks of single records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from divtrace.sieve.columnar.ragged import Ragged, constant, integer, ragged, runs_on
from divtrace.sieve.columnar.stretch import Stretch, holding

if TYPE_CHECKING:
    import pyarrow as pa

ROUND_BITS = 32
_LONGEST = 128
"""Longest list of a verify round that is looked at here."""


class Unplain(Exception):  # noqa: N818 - no error: another path takes over
    """Rows have a shape that this module does not follow."""


class Facet:
    """The rows of one kind, one for each round or none."""

    def __init__(self, stretch: Stretch, mask: pa.Array, keys: pa.Array, rounds: pa.Array) -> None:
        """Find the rows.

        Args:
            stretch: all rows.
            mask: the rows of this kind.
            keys: the round of every row of the stretch.
            rounds: every round that is looked at, once.
        """
        import pyarrow.compute as pc

        self._stretch = stretch
        rows = pc.indices_nonzero(mask)
        mine = keys.take(rows)
        if mine.equals(rounds):
            self.rows = rows
        else:
            at = pc.index_in(rounds, mine)
            if len(mine) - pc.count(at).as_py():
                # Some row was not found by its round: it is the second of its kind there.
                raise Unplain
            self.rows = rows.take(at)
        self.count = len(rounds)
        self.is_empty = not len(rows)

    def scalars(self, name: str) -> pa.Array:
        """A column of numbers by round; null where it is not recorded."""
        import pyarrow as pa

        column = self._stretch.column(name)
        if column is None or self.is_empty:
            return pa.nulls(self.count, pa.int64())
        return column.take(self.rows)

    def lists(self, name: str) -> Ragged:
        """A column of lists by round."""
        return ragged(None if self.is_empty else self._stretch.column(name), self.rows, self.count)

    def holds(self, name: str, text: str) -> pa.Array:
        """True where a column of texts holds this one, null where it holds none."""
        import pyarrow as pa

        column = self._stretch.column(name)
        if column is None or self.is_empty:
            return pa.nulls(self.count, pa.bool_())
        hits = pa.array([one == text for one in column.dictionary.to_pylist()], pa.bool_())
        return hits.take(column.indices.take(self.rows))


def no(mask: pa.Array) -> pa.Array:
    """The mask with null for false."""
    import pyarrow.compute as pc

    return pc.fill_null(mask, False)


class Rounds:
    """Every round of a stretch with what was drafted, verified, accepted and committed in it."""

    def __init__(self, stretch: Stretch, rows: pa.Array, keys: pa.Array) -> None:
        """Find the rows of every round.

        Args:
            stretch: all rows.
            rows: those with a round that is looked at here, as a mask.
            keys: the round of every row: request in the upper bits, number in the lower.

        Raises:
            Unplain: a kind of record stands twice in a round, or rounds overlap.
        """
        import pyarrow.compute as pc

        self.keys = pc.unique(keys.filter(rows))
        self.count = len(self.keys)
        self.number = pc.bit_wise_and(self.keys, integer((1 << ROUND_BITS) - 1))
        self.code = pc.shift_right(self.keys, integer(ROUND_BITS))
        masks = _masks(stretch, rows)
        self.draft, self.plan, self.layout, self.target, self.accept, self.commit = (
            Facet(stretch, mask, keys, self.keys) for mask in masks
        )
        self.previous = pc.index_in(pc.subtract(self.keys, integer(1)), self.keys)
        """Index of the round before; null if it is not here."""
        self.following = pc.index_in(pc.add(self.keys, integer(1)), self.keys)
        self._in_turn(stretch)
        correct, drafts = self.accept.scalars("correct_len"), self.draft.lists("draft_tokens")
        self.correct, self.drafts = correct, drafts
        self.bonus = self.accept.scalars("bonus")
        self.targets, self.out = self.target.lists("target_tokens"), self.commit.lists("out_tokens")
        self.committed = self.commit.scalars("commit_len")
        self.seq_len, self.new_seq_len = self.commit.scalars("seq_len"), self.commit.scalars("new_seq_len")
        finished = self.commit.holds("finished", "")
        self.finished = no(pc.invert(finished))
        self.last_token = self._last_token()
        _one_type([self.drafts.values, self.targets.values, self.out.values, self.bonus])

    def _in_turn(self, stretch: Stretch) -> None:
        """Raise Unplain unless a round's records stand in causal order, before those of the next round."""
        import pyarrow as pa
        import pyarrow.compute as pc

        latest = first = None
        for facet in (self.draft, (self.plan, self.layout, self.target), self.accept, self.commit):
            group = facet if isinstance(facet, tuple) else (facet,)
            rows = [_places(stretch, one.rows) for one in group if not one.is_empty]
            if not rows:
                continue
            low, high = pc.min_element_wise(*rows), pc.max_element_wise(*rows)
            if latest is not None and no(pc.less(low, latest)).true_count:
                raise Unplain
            latest = high if latest is None else pc.max_element_wise(latest, high)
            first = low if first is None else pc.min_element_wise(first, low)
        if latest is None or first is None:
            return
        following = first.take(self.following)
        if no(pc.less(following, latest)).true_count or pa.types.is_null(first.type):
            raise Unplain

    def _last_token(self) -> pa.Array:
        """The last committed token of every round, the bonus where no tokens are recorded."""
        import pyarrow as pa
        import pyarrow.compute as pc

        index = pc.subtract(self.committed, pa.scalar(1, pa.int64()))
        last = self.out.at(index)
        if last.type != self.bonus.type:
            last = last.cast(self.bonus.type)
        return pc.coalesce(last, self.bonus)

    def odd(self) -> pa.Array:
        """Rounds of another shape than the plain one, as far as that needs no look at other rounds."""
        import pyarrow as pa
        import pyarrow.compute as pc

        zero = pa.scalar(0, pa.int64())
        layout_first, positions = self.layout.scalars("seq_len"), self.layout.lists("positions")
        masks = [
            pc.and_(pc.is_null(layout_first), pc.is_valid(positions.lengths)),
            pc.and_(pc.is_valid(layout_first), pc.is_null(positions.lengths)),
            pc.not_equal(positions.at(constant(0, self.count)), layout_first),
            pc.invert(runs_on(positions, longest(positions))),
        ]
        correct, path = self.correct, self.accept.lists("accept_path")
        masks += [
            pc.less(correct, zero),
            pc.and_(pc.is_null(correct), pc.is_valid(path.lengths)),
            pc.not_equal(path.lengths, pc.add(correct, integer(1))),
            pc.not_equal(path.at(constant(0, self.count)), zero),
            pc.invert(runs_on(path, longest(path))),
        ]
        judged = self._greedy()
        masks += [
            pc.and_(judged, pc.less_equal(self.targets.lengths, correct)),
            pc.and_(judged, pc.not_equal(self.accept.scalars("cap_trim_len"), zero)),
        ]
        return _any(masks)

    def _greedy(self) -> pa.Array:
        """Rounds whose accept follows from drafts and targets."""
        import pyarrow as pa
        import pyarrow.compute as pc

        branch = pc.coalesce(self.accept.holds("branch", "greedy"), self.target.holds("branch", "greedy"))
        known = pc.and_(pc.is_valid(self.drafts.lengths), pc.is_valid(self.targets.lengths))
        return pc.and_(
            pc.and_(no(branch), known), pc.is_valid(pc.coalesce(self.correct, pa.nulls(self.count, pa.int64())))
        )

    def broken(self, before: pa.Array, root: pa.Array, extra: int) -> pa.Array:
        """Rounds in which an invariant may break.

        Args:
            before: confirmed length that every round continues from, null if unknown.
            root: last committed token that it continues from.
            extra: what a commit adds to the accepted drafts.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        one = pa.scalar(1, pa.int64())
        verify_len, correct, count = self.plan.scalars("verify_len"), self.correct, self.committed
        draft_root = self.draft.scalars("draft_root")
        masks = [
            pc.not_equal(draft_root, root.cast(draft_root.type)),
            pc.not_equal(self.layout.scalars("seq_len"), before),
            pc.less(verify_len, one),
            pc.greater(verify_len, self.plan.scalars("num_draft_tokens")),
            pc.greater(verify_len, self.draft.scalars("num_draft_tokens")),
            pc.greater_equal(correct, verify_len),
            pc.greater(correct, self.drafts.lengths),
            pc.not_equal(self.seq_len, before),
            pc.not_equal(self.new_seq_len, pc.add(self.seq_len, count)),
            pc.not_equal(count, pc.add(correct, integer(extra))),
            pc.less(self.out.lengths, count),
        ]
        drafted = pc.and_(
            pc.and_(pc.is_valid(self.drafts.lengths), pc.is_valid(self.out.lengths)), pc.is_valid(self.bonus)
        )
        masks.append(pc.and_(drafted, pc.less_equal(self.out.lengths, correct)))
        masks.append(pc.and_(drafted, pc.not_equal(self.out.at(correct), self.bonus)))
        judged = self._greedy()
        masks.append(pc.and_(judged, pc.not_equal(self.targets.at(correct), self.bonus)))
        limit = self.drafts.lengths
        limit = pc.min_element_wise(limit, pc.subtract(verify_len, one), skip_nulls=True)
        missed = pc.and_(judged, pc.less(correct, limit))
        masks.append(pc.and_(missed, pc.equal(self.drafts.at(correct), self.targets.at(correct))))
        most = pc.max(correct).as_py() or 0
        for index in range(min(most, longest(self.drafts))):
            token = self.drafts.at(constant(index, self.count))
            inside = pc.greater(correct, pa.scalar(index, pa.int64()))
            masks.append(
                pc.and_(pc.and_(inside, judged), pc.not_equal(token, self.targets.at(constant(index, self.count))))
            )
            masks.append(
                pc.and_(pc.and_(inside, drafted), pc.not_equal(token, self.out.at(constant(index, self.count))))
            )
        return _any(masks)


def longest(lists: Ragged) -> int:
    """The longest list.

    Raises:
        Unplain: it is too long to be looked at element by element.
    """
    import pyarrow.compute as pc

    found: int = pc.max(lists.lengths).as_py() or 0
    if found > _LONGEST:
        raise Unplain
    return found


def _any(masks: list[Any]) -> pa.Array:
    import pyarrow.compute as pc

    found = no(masks[0])
    for mask in masks[1:]:
        found = pc.or_(found, no(mask))
    return found


def _places(stretch: Stretch, rows: pa.Array) -> pa.Array:
    import pyarrow as pa

    return rows.cast(pa.int64()) if stretch.place is None else stretch.place.take(rows).cast(pa.int64())


def _one_type(columns: list[pa.Array]) -> None:
    """Raise Unplain unless the token columns that hold something can be compared with each other."""
    if len({column.type for column in columns if len(column) and column.null_count < len(column)}) > 1:
        raise Unplain


def _masks(stretch: Stretch, rows: pa.Array) -> list[pa.Array]:
    """The rows of every kind: draft, plan, layout, target, accept, commit.

    Raises:
        Unplain: a row is of no kind, or says what another kind should.
    """
    import pyarrow.compute as pc

    draft, verify, accept, commit = (
        pc.and_(rows, stretch.at_stage(name)) for name in ("draft", "verify", "accept", "commit")
    )
    if draft.true_count + verify.true_count + accept.true_count + commit.true_count != rows.true_count:
        raise Unplain
    phase = stretch.column("phase")
    if (
        phase is not None
        and pc.and_(rows, pc.and_(phase.is_valid(), pc.invert(holding(phase, ("used",), len(rows))))).true_count
    ):
        raise Unplain
    numbered = stretch.column("n")
    if numbered is not None and pc.and_(rows, no(pc.not_equal(numbered, 0))).true_count:
        raise Unplain
    for mask, names in (
        (rows, ("draft_parents",)),
        (draft, ("verify_len",)),
        (verify, ("draft_tokens", "correct_len", "bonus")),
        (accept, ("out_tokens", "target_tokens")),
        (commit, ("correct_len", "bonus")),
    ):
        for name in names:
            valid = stretch.valid(name)
            if valid is not None and pc.and_(mask, valid).true_count:
                raise Unplain
    return [
        draft,
        _having(stretch, verify, "verify_len"),
        pc.or_(_having(stretch, verify, "positions"), _having(stretch, verify, "seq_len")),
        _having(stretch, verify, "target_tokens"),
        accept,
        commit,
    ]


def _having(stretch: Stretch, mask: pa.Array, name: str) -> pa.Array:
    import pyarrow.compute as pc

    valid = stretch.valid(name)
    return pc.and_(mask, False) if valid is None else pc.and_(mask, valid)
