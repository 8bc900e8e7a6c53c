"""The KV slots of every rank over a stretch: laid, cut at the commit, freed at the finish, in the order of `seq`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.sieve.columnar.ragged import integer, last_of_each, ragged
from divtrace.sieve.columnar.rounds import Unplain
from divtrace.sieve.columnar.runs import lay_at_once, runs_of
from divtrace.sieve.columnar.stretch import Part, Stretch, holding
from divtrace.sieve.plain import PlainRequest
from divtrace.sieve.rows import Rows
from divtrace.sieve.slots import FREE, HELD, LONGEST_RUN, SHARED, SlotBytes

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = 1 << 28
Suspect = Callable[[int, int | None], None]
Lives = Mapping[int, PlainRequest]


class _Own(msgspec.Struct):
    """One rank's layouts: rows with as many slots as positions, and the commits of their rounds."""

    part: Part
    rows: Any
    """In no particular order."""
    commits: Any
    """The row of the commit of each, null if it is not here."""
    mismatched: Any


class Layouts:
    """The slots of a stretch; `codes` are the requests that lay any."""

    def __init__(self, stretch: Stretch, rows: pa.Array, keys: pa.Array, codes: pa.Array) -> None:
        """Look at the rows with slots; `rows` is the mask of those with a round, `keys` their rounds.

        Raises:
            Unplain: a round lays slots twice, or slots are none that can be followed.
        """
        import pyarrow.compute as pc

        self._stretch, self._keys, self._codes, self._rows = stretch, keys, codes, rows
        self._commits = pc.indices_nonzero(pc.and_(rows, stretch.at_stage("commit")))
        self._commit_keys = keys.take(self._commits)
        self._own = [self._of(part) for part in stretch.parts]
        self.codes: set[int] = set()
        for own in self._own:
            if own is not None:
                self.codes.update(pc.unique(codes.take(own.rows)).to_pylist())

    def _of(self, part: Part) -> _Own | None:
        import pyarrow.compute as pc

        slots, positions = part.column("kv_slots"), part.column("kv_positions")
        if slots is None or positions is None:
            return None
        rows = pc.indices_nonzero(pc.and_(self._rows, pc.and_(slots.is_valid(), positions.is_valid())))
        counts = pc.list_value_length(slots).take(rows)
        same = pc.equal(counts, pc.list_value_length(positions).take(rows))
        mismatched = rows.filter(pc.invert(same))
        rows = rows.filter(pc.and_(same, pc.greater(counts, integer(0))))
        bounds = pc.min_max(slots.flatten()).as_py()
        if bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] >= _LARGEST):
            raise Unplain
        keys = self._keys.take(rows)
        if len(pc.unique(keys)) != len(keys):
            raise Unplain
        commits = self._commits.take(pc.index_in(keys, self._commit_keys))
        return _Own(part, rows, commits, mismatched)

    def lay(self, rows: Rows, lives: Lives, ranks: Sequence[int], overshoot: pa.Array, suspect: Suspect) -> None:
        """Lay, cut and free; `overshoot` are the rounds that are not judged."""
        for code in sorted(self.codes):
            live = lives[code]
            if not live.slot_index:
                rows._index(live)
        for rank, own in zip(ranks, self._own, strict=True):
            if own is None:
                self._specials(rows, lives, rank, None, suspect).run_to(None)
                continue
            self._lay_own(rows, lives, rank, own, overshoot, suspect)

    def _lay_own(self, rows: Rows, lives: Lives, rank: int, own: _Own, overshoot: pa.Array, suspect: Suspect) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        step = self._stretch.column("step")
        assert step is not None
        for code, at in zip(
            self._codes.take(own.mismatched).to_pylist(), step.take(own.mismatched).to_pylist(), strict=True
        ):
            suspect(code, at)
        if len(overshoot):
            judged = pc.invert(pc.is_in(self._keys.take(own.rows), overshoot))
            own.rows, own.commits = own.rows.filter(judged), own.commits.filter(judged)
        specials = self._specials(rows, lives, rank, own, suspect)
        lays, cuts, own_runs = self._operations(own, lives)
        slots = rows._slots[rank]
        highest = pc.max(lays[2]).as_py() or 0
        if highest > len(slots.owner):
            slots.owner.extend(bytes(highest - len(slots.owner) + (len(slots.owner) >> 3)))
        if specials.leaves_alone(
            self._codes.take(own.rows), pc.multiply(self._stretch.places(own.rows), integer(2))
        ) and lay_at_once(slots, own_runs):
            specials.run_to(None)
            self._remember(rows, lives, rank, own)
            return
        order = pa.concat_arrays([lays[0], cuts[0]])
        by_order = pc.sort_indices(order)
        columns = [pa.concat_arrays([one, two]).take(by_order).to_pylist() for one, two in zip(lays, cuts, strict=True)]
        _Replay(slots, columns, specials).run()
        self._remember(rows, lives, rank, own)

    def _operations(self, own: _Own, lives: Lives) -> tuple[list[pa.Array], list[pa.Array], list[pa.Array]]:
        """Runs of slots that are laid, and those that are cut: each (order, first slot, end, index); cuts negative.

        Also the laid runs as (first slot, first slot that is cut, end, index).
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        count = len(own.rows)
        slots = ragged(own.part.column("kv_slots"), own.rows, count)
        positions = ragged(own.part.column("kv_positions"), own.rows, count)
        indices = pa.array([_index(lives.get(code)) for code in range(1 + max(self.codes, default=0))], pa.int64())
        index = indices.take(self._codes.take(own.rows))
        length = self._lengths(own)
        places, commits = self._stretch.places(own.rows), self._stretch.places(own.commits)
        first, end, low, layout = runs_of(slots, positions)
        if layout is not None:
            index, length, places, commits = (one.take(layout) for one in (index, length, places, commits))
        lays = [pc.multiply(places, integer(2)), first, end, index]
        keep = pc.max_element_wise(pc.subtract(length, low), pa.scalar(0, pa.int64()), skip_nulls=False)
        cut = pc.add(first, keep)
        # Only what is laid first can be cut.
        is_cut = pc.fill_null(pc.and_(pc.less(cut, end), pc.less(places, commits)), False)
        cuts = [pc.multiply(commits, integer(2)), cut, end, pc.negate(index)]
        kept = [first, pc.if_else(is_cut, cut, end), end, index]
        return lays, [one.filter(is_cut) for one in cuts], kept

    def _lengths(self, own: _Own) -> pa.Array:
        import pyarrow as pa

        column = own.part.column("new_seq_len")
        if column is None:
            return pa.nulls(len(own.rows), pa.int64())
        return column.take(own.commits).cast(pa.int64())

    def _specials(self, rows: Rows, lives: Lives, rank: int, own: _Own | None, suspect: Suspect) -> _Specials:
        """What happens to rows of earlier stretches, and to all rows of a request that finishes, by order."""
        import pyarrow.compute as pc

        stretch = self._stretch
        found: list[tuple[int, Callable[[], None]]] = []
        finished = stretch.column("finished")
        if finished is not None:
            at = finished.take(self._commits)
            over = self._commits.filter(pc.and_(at.is_valid(), pc.invert(holding(at, ("",), len(at)))))
            for place, code in zip(stretch.places(over).to_pylist(), self._codes.take(over).to_pylist(), strict=True):
                found.append((2 * place + 1, _Free(rows, lives[code], rank)))
        earlier = [code for code, live in lives.items() if live.windows.get(rank)]
        if earlier and len(self._commits):
            import pyarrow as pa

            commits = self._commits
            mine = pc.is_in(self._codes.take(commits), pa.array(earlier, pa.int64()))
            if own is not None:
                mine = pc.and_(mine, pc.invert(pc.is_in(self._commit_keys, self._keys.take(own.rows))))
            commits = commits.filter(mine)
            part = next(part for part in stretch.parts if part.rank == rank)
            column = part.column("new_seq_len")
            lengths = [] if column is None else column.take(commits).to_pylist()
            for place, code, length in zip(
                stretch.places(commits).to_pylist(), self._codes.take(commits).to_pylist(), lengths, strict=False
            ):
                if length is not None:
                    found.append((2 * place, _Cut(rows, lives[code], rank, length)))
        found.sort(key=lambda one: one[0])
        steps = stretch.column("step")
        return _Specials(
            found, rows, lives, suspect, steps if steps is None or stretch.order is None else steps.take(stretch.order)
        )

    def _remember(self, rows: Rows, lives: Lives, rank: int, own: _Own) -> None:
        """Leave every request's last rows as `Rows` keeps them."""
        import pyarrow.compute as pc

        order = pc.sort_indices(self._stretch.places(own.rows)) if self._stretch.place is not None else None
        codes = self._codes.take(own.rows)
        last, at = last_of_each(codes if order is None else codes.take(order))
        at = at if order is None else order.take(at)
        taken = own.rows.take(at)
        slots, positions = own.part.column("kv_slots"), own.part.column("kv_positions")
        if slots is None or positions is None:
            return
        lengths = self._lengths(own).take(at).to_pylist()
        every = zip(
            last.to_pylist(), positions.take(taken).to_pylist(), slots.take(taken).to_pylist(), lengths, strict=True
        )
        for code, where, given, length in every:
            live = lives[code]
            first, end = min(where), max(where)
            runs = where == list(range(first, end + 1)) and given == list(range(given[0], given[0] + len(given)))
            rows_left = [(pos, slot) for pos, slot in zip(where, given, strict=True) if length is None or pos < length]
            if not runs or live.contested or live.slot_index == SHARED:
                rows._odd[live.req, rank] = rows_left
                end = end if length is None else min(end, length - 1)
                live.windows[rank] = (first, end, -1)
            else:
                live.windows[rank] = (first, end if length is None else min(end, length - 1), given[0])


def _index(live: PlainRequest | None) -> int:
    return 0 if live is None else live.slot_index


class _Free(msgspec.Struct):
    """A request finishes."""

    rows: Rows
    live: PlainRequest
    rank: int

    def __call__(self) -> None:
        """Free everything that it holds on the rank."""
        self.rows.free(self.live, (self.rank,))


class _Cut(msgspec.Struct):
    """A commit of rows that were laid before this stretch."""

    rows: Rows
    live: PlainRequest
    rank: int
    length: int

    def __call__(self) -> None:
        """Free the rows at or past the confirmed length."""
        self.rows.cut(self.live, (self.rank,), self.length)


class _Specials:
    """What is done in between, by order."""

    def __init__(
        self, found: list[tuple[int, Callable[[], None]]], rows: Rows, lives: Lives, suspect: Suspect, steps: Any
    ) -> None:
        self._found, self._next = found, 0
        self._rows, self._suspect, self._steps = rows, suspect, steps
        self._code_of = {id(live): code for code, live in lives.items()}
        self._by_index = {live.slot_index: (code, live) for code, live in lives.items() if live.slot_index}
        self._shared = [(code, live) for code, live in lives.items() if live.slot_index == SHARED]

    @property
    def orders(self) -> list[int]:
        """When something is to be done."""
        return [order for order, _ in self._found]

    def leaves_alone(self, codes: pa.Array, orders: pa.Array) -> bool:
        """True if no request lays slots behind its own finish."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for order, what in self._found:
            if isinstance(what, _Free):
                code = self._code_of.get(id(what.live), -1)
                later = pc.and_(pc.equal(codes, pa.scalar(code, pa.int64())), pc.greater(orders, order))
                if later.true_count:
                    return False
        return True

    def run_to(self, order: int | None) -> None:
        """Do what is due up to an order; everything for None."""
        while self._next < len(self._found) and (order is None or self._found[self._next][0] <= order):
            self._found[self._next][1]()
            self._next += 1

    def clash(self, index: int, held: set[int], order: int) -> None:
        """Slots that others hold were laid by the request of an index."""
        step = self._steps[order // 2].as_py()
        layers = self._shared if index == SHARED else [self._by_index[index]]
        for code, live in layers:
            for other in sorted(held):
                self._rows._clash(live, other, step)
            self._suspect(code, step)
        for other in held:
            for code, _ in (
                self._shared if other == SHARED else [self._by_index[other]] if other in self._by_index else []
            ):
                self._suspect(code, step)


class _Replay:
    """Lays and cuts runs in order, on one rank."""

    def __init__(self, slots: SlotBytes, columns: list[list[int]], specials: _Specials) -> None:
        self._slots, self._columns, self._specials = slots, columns, specials

    def run(self) -> None:
        """Do everything."""
        orders = self._columns[0]
        start = 0
        for order in self._specials.orders:
            end = bisect_left(orders, order, start)
            self._some(start, end)
            self._specials.run_to(order)
            start = end
        self._some(start, len(orders))

    def _some(self, start: int, end: int) -> None:
        if start == end:
            return
        owner, zeros, filled, table = self._slots.owner, FREE, _filled(), LONGEST_RUN
        every = self._columns if end - start == len(self._columns[0]) else [one[start:end] for one in self._columns]
        for order, first, stop, index in zip(*every, strict=True):
            count = stop - first
            if index > 0:
                free, mine = (
                    (zeros[count], filled[index][count]) if count < table else (bytes(count), bytes((index,)) * count)
                )
                before = owner[first:stop]
                if before != free:
                    self._specials.clash(index, {*before} - {0}, order)
                    mine = bytes(SHARED if held else index for held in before)  # as `SlotBytes.give` has it
                owner[first:stop] = mine
            else:
                mine = filled[-index][count] if count < table else bytes((-index,)) * count
                if owner[first:stop] == mine:
                    owner[first:stop] = bytes(count)
                else:
                    owner[first:stop] = owner[first:stop].replace(bytes((-index,)), b"\0")


@cache
def _filled() -> list[list[bytearray]]:
    """Runs of every length that one request holds, by its index."""
    return [[held * count for count in range(LONGEST_RUN)] for held in HELD]
