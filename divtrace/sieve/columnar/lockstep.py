"""Streams the Parquet files of one replica's ranks side by side (SPEC sections 5 and 7, on what agrees).

Whole row groups are compared column by column, first by their stored bytes. Rows whose values differ make their request
a suspect; from the first row on whose key differs, records are taken one by one until the ranks are in step again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from divtrace.sieve.columnar.cursor import ParquetCursor
from divtrace.sieve.columnar.differences import Differences, aligned_rows, same_columns
from divtrace.sieve.columnar.forks import count_forks
from divtrace.sieve.columnar.judge import Judge
from divtrace.sieve.columnar.rounds import Unplain
from divtrace.sieve.columnar.stretch import Part, Stretch, holding
from divtrace.sieve.columnar.tally import Tally, sites
from divtrace.sieve.cursor import NotSievableError
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.lane import Lane
from divtrace.sieve.lockstep import Lockstep

if TYPE_CHECKING:
    import pyarrow as pa

_UNUSED = frozenset({"ts", "pool_index", "pool_free", "dummy"})
_LEAST = 2048
"""Rows below which columns are not worth their while."""
_MOST_PATIENCE = 1024
_OPERATION = (
    "stage",
    "step",
    "site",
    "n",
    "op",
    "src",
    "numel",
    "shape",
    "dtype",
    "comm",
    "comm_ranks",
    "comm_seq",
    "state",
)


class ColumnLockstep(Lockstep):
    """The sieve over one replica whose ranks are all in Parquet files."""

    _patience = 0
    """Records to be taken one by one before columns are tried again."""
    _last_patience = 8

    def run(self) -> ReplicaFacts:
        """Read everything, as `Lockstep.run` does."""
        for lane in self._lanes:
            lane.cursor.fill()
        _pair([_cursor(lane) for lane in self._lanes])
        return super().run()

    def _join(self, waiting: list[Lane], step: float) -> None:
        """Let ranks in; their first records, which told where they begin, go back to their chunks."""
        super()._join(waiting, step)
        for lane in self._active:
            if lane.head is not None and _cursor(lane).give_back():
                lane.head = None

    def _fast(self, stop: float) -> None:
        """Take whole columns as long as the keys are equal on all active ranks, up to a record of step `stop`."""
        import pyarrow as pa

        if self._patience:
            self._patience -= 1
            return
        while self._active and all(lane.cursor.fill() for lane in self._active):
            cursors = [_cursor(lane) for lane in self._active]
            if any(cursor.next_seq is None for cursor in cursors):
                return
            if self._progress is not None:
                self._progress(sum(lane.cursor.bytes_read for lane in self._lanes))
            try:
                _pair(cursors)
                for cursor in cursors:
                    cursor.prepare()
                parts = self._parts(cursors, None)
                count = parts[0].count
                done = self._take(parts, stop)
            except pa.ArrowException as error:
                raise NotSievableError(str(error)) from error
            if done is None:
                continue
            if done < count:
                self._wait(done)
                return
            self._last_patience = 8

    def _wait(self, done: int) -> None:
        """Let some records pass one by one: a check of the columns costs as much as many of them."""
        self._last_patience = 8 if done >= _LEAST else min(2 * self._last_patience, _MOST_PATIENCE)
        self._patience = self._last_patience - 8

    def _parts(self, cursors: Sequence[ParquetCursor], count: int | None) -> list[Part]:
        chunks = [(cursor, cursor.chunk) for cursor in cursors]
        left = min(chunk.rows - cursor.index for cursor, chunk in chunks if chunk is not None)
        rows = left if count is None else count
        if any(chunk is not None and chunk.order is not None for _, chunk in chunks) and not _one_order(cursors):
            for _, chunk in chunks:
                if chunk is not None:
                    chunk.sort()
        return [
            Part(lane.rank, chunk, cursor.index, rows)
            for lane, (cursor, chunk) in zip(self._active, chunks, strict=True)
            if chunk is not None
        ]

    def _take(self, parts: list[Part], stop: float) -> int | None:
        """Take in the rows in front that have equal keys; None if the rows were put in order, to be looked at again."""
        stretch = Stretch(parts)
        count = min(aligned_rows(stretch), _before_step(stretch, stop))
        restart = _first_restart(stretch)
        alone = restart == 0 and count > 0
        count = min(count, 1 if alone else restart)
        if count < stretch.count:
            if stretch.order is not None:
                for part in parts:
                    part.chunk.sort()
                return None
            if not count:
                return 0
            stretch = Stretch([Part(part.rank, part.chunk, part.start, count) for part in parts])
        self._take_in(stretch)
        return count

    def _take_in(self, stretch: Stretch) -> None:
        host = stretch.at_stage("host")
        following = []
        for lane, part in zip(self._active, stretch.parts, strict=True):
            tally = Tally(stretch, part, lane)
            following.append(tally.seq())
            tally.steps(stretch.is_model, host)
            tally.errors(host)
        for where in sites(stretch):
            if where not in self._covered:
                self._cover(where)
        self._note_missing(stretch)
        differences = Differences(stretch, self._comparison)
        for req, step in differences.requests(self._forks.followed):
            self._requests.suspect(req, step)
        for step in differences.steps():
            if step is None:
                self.facts.stepless = True
            else:
                self.facts.irregular.add(step)
        self._note_agreement(differences)
        for of, step in differences.wrong_syncs(self._topology):
            if of is not None:
                self._requests.suspect(of, step)
            elif step is not None:
                self.facts.irregular.add(step)
            else:
                self.facts.stepless = True
        self._collectives(stretch)
        self._rounds(stretch)
        if self._forks.followed:
            count_forks(stretch, differences, self._forks)
        for lane, number in zip(self._active, following, strict=True):
            cursor = _cursor(lane)
            cursor.index += stretch.count
            cursor.pos += stretch.count
            cursor.next_seq = number

    def _note_missing(self, stretch: Stretch) -> None:
        if self._missing:
            self._missing = [name for name in self._missing if all(part.column(name) is None for part in stretch.parts)]

    def _note_agreement(self, differences: Differences) -> None:
        if len(self._active) < 2:
            return
        agreed, step = differences.agreement()
        if agreed:
            self.facts.agreed = True
            known = self.facts.agreed_step
            if step is not None and (known is None or step > known):
                self.facts.agreed_step = step

    def _rounds(self, stretch: Stretch) -> None:
        import pyarrow as pa

        ranks = [part.rank for part in stretch.parts]
        if stretch.count >= _LEAST and self._requests.is_plain:
            try:
                judge = Judge(stretch, self._requests, ranks)
            except (Unplain, pa.ArrowException):
                pass
            else:
                judge.take_in()
                return
        self._one_by_one(stretch, ranks)

    def _one_by_one(self, stretch: Stretch, ranks: list[int]) -> None:
        """Take in the requests' records as the lockstep over lines does."""
        import pyarrow.compute as pc

        req = stretch.column("req")
        if req is None:
            return
        rows = stretch.sorted_rows(pc.indices_nonzero(pc.and_(stretch.is_model, req.is_valid())))
        events = stretch.reference.events(rows)
        columns = [part.column("kv_slots") for part in stretch.parts]
        slots = [[None] * len(events) if column is None else column.take(rows).to_pylist() for column in columns]
        for event, given in zip(events, zip(*slots, strict=True), strict=True):
            self._requests.agree(event, ranks, list(given) if any(one is not None for one in given) else None)

    def _collectives(self, stretch: Stretch) -> None:
        import pyarrow.compute as pc

        rows = stretch.sorted_rows(pc.indices_nonzero(stretch.at_stage("collective")))
        if not len(rows):
            return
        places = stretch.places(rows).to_pylist()
        if same_columns(stretch, _OPERATION, rows):
            for event, place in zip(stretch.reference.events(rows, _OPERATION), places, strict=True):
                self._operation(event, place)
            return
        for lane, part in zip(self._active, stretch.parts, strict=True):
            for event, place in zip(part.events(rows, _OPERATION), places, strict=True):
                if event.comm_seq is None:
                    raise NotSievableError("a collective carries no comm_seq")
                lane.operation(event, lane.cursor.pos + place)


def _cursor(lane: Lane) -> ParquetCursor:
    cursor = lane.cursor
    assert isinstance(cursor, ParquetCursor)
    return cursor


def _pair(cursors: Sequence[ParquetCursor]) -> None:
    """Read the columns of the chunks that the ranks stand at, and only once where the stored bytes are equal."""
    first = cursors[0].chunk
    if first is None:
        return
    first.load(name for name in first.trace.fields if name not in _UNUSED)
    for cursor in cursors[1:]:
        chunk = cursor.chunk
        if chunk is None or chunk is first:
            continue
        if chunk.is_whole and first.is_whole and chunk.rows == first.rows:
            for name in chunk.trace.fields:
                if name in _UNUSED or chunk.has(name) or not first.has(name):
                    continue
                if chunk.trace.same_bytes(chunk.groups, first.trace, first.groups, name):
                    chunk.adopt(first, name)
        chunk.load(name for name in chunk.trace.fields if name not in _UNUSED)


def _one_order(cursors: Sequence[ParquetCursor]) -> bool:
    """True if all ranks stand in front of chunks whose rows have the same order."""
    first = cursors[0].chunk
    if first is None or first.order is None:
        return False
    for cursor in cursors:
        chunk = cursor.chunk
        if cursor.index or chunk is None or chunk.order is None or chunk.rows != first.rows:
            return False
        if chunk is not first and not chunk.order.equals(first.order):
            return False
    return True


def _before_step(stretch: Stretch, stop: float) -> int:
    """Rows in front of the first one of a step that has to wait."""
    import pyarrow as pa
    import pyarrow.compute as pc

    step = stretch.column("step")
    if step is None or stop == float("inf"):
        return stretch.count
    late = pc.and_(stretch.is_model, pc.fill_null(pc.greater_equal(step, pa.scalar(int(max(stop, -(2**62))))), False))
    return _first(late, stretch.count)


def _first_restart(stretch: Stretch) -> int:
    """Rows in front of the first schedule event that retracts or extends a request."""
    import pyarrow.compute as pc

    decision = stretch.column("decision")
    if decision is None:
        return stretch.count
    restarts = pc.and_(stretch.at_stage("schedule"), holding(decision, ("retract", "extend"), stretch.count))
    return _first(restarts, stretch.count)


def _first(mask: pa.Array, count: int) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    at: int = pc.index(mask, pa.scalar(True)).as_py()
    return count if at < 0 else at
