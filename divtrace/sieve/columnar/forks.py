"""Counts the findings of requests on which ranks have parted, by columns: `divtrace.sieve.forks` for whole rounds.

Rounds that begin and end inside a stretch are counted here; what stands in front of them and behind them, and whatever
is not of the plain shape, is counted record by record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from divtrace.sieve.apart import RULES, Row
from divtrace.sieve.columnar.differences import Differences
from divtrace.sieve.columnar.naming import NamedRows
from divtrace.sieve.columnar.ragged import last_of_each
from divtrace.sieve.columnar.rounds import ROUND_BITS, Rounds, Unplain
from divtrace.sieve.columnar.stretch import Stretch, holding
from divtrace.sieve.forks import Fork, Forks
from divtrace.walk.compare import COMPARED

if TYPE_CHECKING:
    import pyarrow as pa


def count_forks(stretch: Stretch, differences: Differences, forks: Forks) -> None:
    """Have the records counted of all requests that are followed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    req, number = stretch.column("req"), stretch.column("round")
    if req is None or number is None:
        return
    mine = pc.and_(stretch.is_model, holding(req, sorted(forks.followed), stretch.count))
    # Records outside of rounds change nothing, or give their request back.
    forks.take(differences.rows_of(pc.and_(mine, number.is_null())))
    mine = pc.and_(stretch.is_model, holding(req, sorted(forks.followed), stretch.count))
    rows = pc.and_(mine, number.is_valid())
    bounds = pc.min_max(number.filter(rows)).as_py()
    if bounds["min"] is None:
        return
    if not 0 <= bounds["min"] <= bounds["max"] < (1 << ROUND_BITS) - 2:
        forks.take(differences.rows_of(rows))
        return
    codes = req.indices.cast(pa.int64())
    keys = pc.if_else(rows, pc.add(pc.shift_left(codes, pa.scalar(ROUND_BITS)), number), pa.scalar(-1, pa.int64()))
    keys = keys.fill_null(-1)
    names: list[str] = req.dictionary.to_pylist()
    middle, front = _middle(stretch, keys, rows, names, forks)
    try:
        counting = _Counting(stretch, differences, forks, keys, pc.is_in(keys, middle), names)
    except (Unplain, pa.ArrowException):
        forks.take(differences.rows_of(rows))
        return
    forks.take(differences.rows_of(pc.is_in(keys, front)))
    counting.take_in()
    rest = pc.and_(rows, pc.invert(pc.or_(pc.is_in(keys, middle), pc.is_in(keys, front))))
    forks.take(differences.rows_of(rest))


def _middle(
    stretch: Stretch, keys: pa.Array, rows: pa.Array, names: list[str], forks: Forks
) -> tuple[pa.Array, pa.Array]:
    """Rounds of which all records are here, and those in front of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    committed = set(pc.unique(keys.filter(pc.and_(rows, stretch.at_stage("commit")))).to_pylist())
    numbers: dict[int, list[int]] = {}
    for key in sorted(pc.unique(keys.filter(rows)).to_pylist()):
        numbers.setdefault(key >> ROUND_BITS, []).append(key)
    middle: list[int] = []
    front: list[int] = []
    for code, mine in numbers.items():
        open_round = forks.followed[names[code]].open_round
        start = mine[0] if open_round is None else (code << ROUND_BITS) + open_round
        following = start + 1
        for key in mine:
            if key <= start:
                front.append(key)
            elif key == following and key in committed:
                middle.append(key)
                following += 1
            else:
                break
    return pa.array(middle, pa.int64()), pa.array(front, pa.int64())


class _Counting:
    """Whole rounds of requests that are followed. Nothing is changed before `take_in`."""

    def __init__(
        self,
        stretch: Stretch,
        differences: Differences,
        forks: Forks,
        keys: pa.Array,
        mask: pa.Array,
        names: list[str],
    ) -> None:
        """Look at the rounds in `mask`; raises Unplain if they have to be counted record by record."""
        self._stretch, self._differences, self._forks = stretch, differences, forks
        self._keys, self._mask, self._names = keys, mask, names
        self._is_empty = not mask.true_count
        if self._is_empty:
            return
        self._check_marks()
        self._rounds = [Rounds(Stretch([part]), mask, keys) for part in stretch.parts]
        self._steps = self._steps_of_rounds()
        self._odd = [one.odd() for one in self._rounds]
        self._named = NamedRows(stretch, differences, self._rounds, keys, mask)

    def _check_marks(self) -> None:
        """Raise Unplain if a record holds anything that is judged otherwise; syncs were looked at before."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for part in self._stretch.parts:
            for name in ("extra", "attempt", "n"):
                column = part.column(name)
                if column is None:
                    continue
                marked = column.is_valid()
                if name in ("attempt", "n"):
                    marked = pc.fill_null(pc.not_equal(column, pa.scalar(0, column.type)), False)
                if pc.and_(self._mask, marked).true_count:
                    raise Unplain

    def _steps_of_rounds(self) -> pa.Array:
        """The step of every round; raises Unplain if its records are of several."""
        import pyarrow.compute as pc

        step = self._stretch.column("step")
        first = self._rounds[0]
        if step is None:
            raise Unplain
        steps = step.take(first.commit.rows)
        at = pc.index_in(self._keys.filter(self._mask), first.keys)
        if not pc.all(pc.fill_null(pc.equal(step.filter(self._mask), steps.take(at)), False)).as_py():
            raise Unplain
        return steps

    def take_in(self) -> None:
        """Check all rounds on every rank, count the findings, and leave every request behind its last round."""
        if self._is_empty:
            return
        followed = self._forks.followed
        lives: dict[int, Fork] = {}
        keys = self._rounds[0].keys.to_pylist()
        for key in keys:
            code, number = key >> ROUND_BITS, key & ((1 << ROUND_BITS) - 1)
            fork = followed.get(self._names[code])
            if fork is None or code in lives:
                continue
            if self._forks.enters(fork, number):
                lives[code] = fork
        for code in self._broken(lives):
            self._give_back(code, lives)
        self._count(lives)
        self._leave(lives)

    def _give_back(self, code: int, lives: dict[int, Fork]) -> None:
        self._forks.give_back(self._names[code])
        lives.pop(code, None)

    def _by_code(self, values: dict[int, Any], kind: pa.DataType) -> pa.Array:
        import pyarrow as pa

        return pa.array([values.get(code) for code in range(len(self._names))], kind)

    def _broken(self, lives: dict[int, Fork]) -> list[int]:
        """Requests of which some round is not plain, breaks an invariant, or is the last one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found: set[int] = set()
        for index, (rounds, odd) in enumerate(zip(self._rounds, self._odd, strict=True)):
            broken = pc.or_(odd, rounds.finished)
            if index:
                carried = {code: fork.rounds[index - 1] for code, fork in lives.items()}
                lengths = self._by_code({code: one.new_seq_len for code, one in carried.items()}, pa.int64())
                tokens = self._by_code({code: one.last_token for code, one in carried.items()}, rounds.last_token.type)
                is_first = rounds.previous.is_null()
                before = pc.if_else(is_first, lengths.take(rounds.code), rounds.new_seq_len.take(rounds.previous))
                root = pc.if_else(is_first, tokens.take(rounds.code), rounds.last_token.take(rounds.previous))
                broken = pc.or_(broken, rounds.broken(before, root, self._forks.extra))
            found.update(pc.unique(rounds.code.filter(broken)).to_pylist())
        return sorted(found)

    def _count(self, lives: dict[int, Fork]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        named, rounds, forks = self._named, self._rounds[0], self._forks
        mine = pc.is_in(rounds.code, pa.array(sorted(lives), pa.int64()))
        at = pc.index_in(self._keys.take(named.rows), rounds.keys)
        at, fields = at.filter(mine.take(at)), named.fields.filter(mine.take(at))
        careful = [one for one in self._one_by_one() if one[0] in lives]
        by_step = Counter(_counts(self._steps.take(at)))
        by_step.update(step for _, step, rule in careful if rule is not None)
        forks.seen(by_step, pc.max(self._steps.filter(mine)).as_py() or 0)
        for (code, field, is_behind), count in self._by_request(at, fields):
            fork = lives[code]
            (fork.behind if is_behind else fork.before)[RULES[field]] += count
        for code, step, rule in careful:
            if rule is None:
                lives[code].agreed(step)
            else:
                (lives[code].behind if forks.is_behind(step) else lives[code].before)[rule] += 1
        alike = pc.index_in(self._keys.take(named.alike), rounds.keys)
        for code, step in zip(rounds.code.take(alike).to_pylist(), self._steps.take(alike).to_pylist(), strict=True):
            if code in lives:
                lives[code].agreed(step)
        firsts = zip(rounds.code.to_pylist(), rounds.number.to_pylist(), self._steps.to_pylist(), strict=True)
        for code, number, step in firsts:
            # Whether its first round goes on from the one before was not asked: the walk has to.
            if code in lives and number == lives[code].first_round and forks.is_behind(step):
                self._give_back(code, lives)

    def _by_request(self, at: pa.Array, fields: pa.Array) -> Iterator[tuple[tuple[int, int, bool], int]]:
        """Counts by request, field, and whether they are behind the cut; `at` are the rounds of the fields."""
        import pyarrow as pa
        import pyarrow.compute as pc

        step, cut = self._steps.take(at), self._forks.cut
        behind = pa.repeat(pa.scalar(0, pa.int64()), len(at))
        if cut is not None:
            behind = pc.greater_equal(step, pa.scalar(cut, step.type)).cast(pa.int64())
        width = 2 * len(COMPARED)
        combined = pc.add(pc.multiply(self._rounds[0].code.take(at), width), pc.add(pc.multiply(fields, 2), behind))
        for value, count in sorted(_counts(combined).items()):
            code, rest = divmod(value, width)
            yield (code, rest // 2, bool(rest % 2)), count

    def _one_by_one(self) -> list[tuple[int, int, str | None]]:
        """(request, step, rule) of every event of the rounds that are named with care."""
        if not len(self._named.careful):
            return []
        import pyarrow.compute as pc

        by_round: dict[tuple[str, int], list[Row]] = {}
        for row in self._differences.rows_of(pc.is_in(self._keys, self._named.careful)):
            by_round.setdefault((row[0].req or "", row[0].round or 0), []).append(row)
        codes = {name: code for code, name in enumerate(self._names)}
        return [
            (codes[req], row[0].step or 0, rule)
            for (req, _), rows in by_round.items()
            for row, rule in zip(rows, self._forks.rules(rows), strict=True)
        ]

    def _leave(self, lives: dict[int, Fork]) -> None:
        codes, at = last_of_each(self._rounds[0].code)
        numbers = self._rounds[0].number.take(at).to_pylist()
        ends = [
            list(zip(one.new_seq_len.take(at).to_pylist(), one.last_token.take(at).to_pylist(), strict=True))
            for one in self._rounds[1:]
        ]
        for index, (code, number) in enumerate(zip(codes.to_pylist(), numbers, strict=True)):
            if code in lives:
                lives[code].leave(number, [end[index] for end in ends])


def _counts(values: pa.Array) -> dict[int, int]:
    import pyarrow.compute as pc

    found = pc.value_counts(values)
    return dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True))
