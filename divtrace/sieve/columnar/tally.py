"""What a stretch tells of each rank by itself: where its steps lie, which sites it shows, gaps, errors, ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from divtrace.sieve.columnar.ragged import integer
from divtrace.sieve.columnar.stretch import Part, Stretch, holding
from divtrace.sieve.cursor import NotSievableError

if TYPE_CHECKING:
    import pyarrow as pa

    from divtrace.sieve.lane import Lane


class Tally:
    """One rank's part of a stretch, in the order of `seq`."""

    def __init__(self, stretch: Stretch, part: Part, lane: Lane) -> None:
        """Put the columns that are needed in order."""
        self.part, self.lane = part, lane
        self.stretch = stretch
        self.pos = lane.cursor.pos

    def _ordered(self, column: pa.Array) -> pa.Array:
        return column if self.stretch.order is None else column.take(self.stretch.order)

    def seq(self) -> int:
        """Note the gaps; returns the number that should follow.

        Raises:
            NotSievableError: a number stands twice.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.part.column("seq")
        assert column is not None
        seq = self._ordered(column)
        cursor = self.lane.cursor
        reading = cursor.reading
        first, last = seq[0].as_py(), seq[-1].as_py()
        expected = cursor.next_seq
        if expected is None or first < expected:
            raise NotSievableError("seq is not in order")
        if first != expected:
            reading.gaps.append(self.pos)
            reading.lost += first - expected
        if self.stretch.order is not None and len(seq) > 1 and not pc.all(pc.greater(seq[1:], seq[:-1])).as_py():
            raise NotSievableError("a seq stands twice")
        if last - first != len(seq) - 1:
            steps = pc.subtract(seq[1:], seq[:-1])
            holes = pc.indices_nonzero(pc.not_equal(steps, pa.scalar(1, steps.type)))
            reading.gaps += [self.pos + 1 + hole for hole in holes.to_pylist()]
            reading.lost += sum(steps.take(holes).to_pylist()) - len(holes)
        return int(last) + 1

    def steps(self, model: pa.Array, host: pa.Array) -> None:
        """Note where every step lies, and whether steps interleave; masks are of the stretch's rows."""
        import pyarrow.compute as pc

        lane = self.lane
        recorded = pc.indices_nonzero(pc.invert(self._ordered(host)))
        if not len(recorded):
            return
        lane.last_event = self.pos + recorded[-1].as_py()
        models = pc.indices_nonzero(self._ordered(model))
        if len(models):
            lane.last_model = self.pos + models[-1].as_py()
        column = self.part.column("step")
        if column is None:
            return
        step = self._ordered(column)
        first_of_step, last_of_step = lane.facts.first_of_step, lane.facts.last_of_step
        for value, first, last in _runs(step, recorded):
            first_of_step.setdefault(value, self.pos + first)
            last_of_step[value] = self.pos + last
        for value, _, _ in _runs(step, models):
            lane.reach(value)

    def errors(self, host: pa.Array) -> pa.Array:
        """Rows that tell of errors, init rows, and host rows that are kept; the latter are taken in."""
        import pyarrow.compute as pc

        part, lane = self.part, self.lane
        told = pc.or_(host, self.stretch.at_stage("init"))
        for name in ("error", "error_type"):
            column = part.column(name)
            if column is not None:
                told = pc.or_(told, column.is_valid())
        if host.true_count:
            site = holding(part.column("site"), ("end", "error"), part.count)
            quiet = pc.and_(host, pc.invert(site))
            for name in ("error", "error_type"):
                column = part.column(name)
                if column is not None:
                    quiet = pc.and_(quiet, column.is_null())
            told = pc.and_(told, pc.invert(quiet))
        rows = self.stretch.sorted_rows(pc.indices_nonzero(told))
        if len(rows):
            places = self.stretch.places(rows).to_pylist()
            for event, place in zip(part.events(rows), places, strict=True):
                if event.stage == "host":
                    lane.host(event, self.pos + place)
                else:
                    lane.facts.keep.add(self.pos + place)
        return rows


def _runs(column: pa.Array, rows: pa.Array) -> list[tuple[Any, int, int]]:
    """Stretches of one value over some rows: the value, its first and its last row; rows without one are left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(rows):
        return []
    every = len(rows) == len(column)
    encoded = pc.run_end_encode(column if every else column.take(rows), run_end_type=pa.int64())
    ends = encoded.run_ends
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends[:-1]])
    firsts, lasts = starts, pc.subtract(ends, integer(1))
    if not every:
        firsts, lasts = rows.take(starts), rows.take(lasts)
    found = zip(encoded.values.to_pylist(), firsts.to_pylist(), lasts.to_pylist(), strict=True)
    return [one for one in found if one[0] is not None]


def sites(stretch: Stretch) -> list[tuple[str, str | None, str | None]]:
    """The (stage, site, phase) of all model rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [stretch.column(name) for name in ("stage", "site", "phase")]
    code: Any = None
    texts: list[list[str | None]] = []
    for column in columns:
        names: list[str | None] = [None] if column is None else [*column.dictionary.to_pylist(), None]
        texts.append(names)
        one = (
            pa.repeat(pa.scalar(0, pa.int64()), stretch.count)
            if column is None
            else column.indices.cast(pa.int64()).fill_null(len(names) - 1)
        )
        code = one if code is None else pc.add(pc.multiply(code, integer(len(names))), one)
    found = []
    for value in sorted(pc.unique(code.filter(stretch.is_model)).to_pylist()):
        rest, phase = divmod(value, len(texts[2]))
        stage, site = divmod(rest, len(texts[1]))
        found.append((texts[0][stage] or "", texts[1][site], texts[2][phase]))
    return found
