"""Where ranks that recorded the same keys recorded other values, or followed a sync of another group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.align.groups import Group
from divtrace.align.view import key_of
from divtrace.events import VALUE_FIELDS, Event, Kind, extra_kind
from divtrace.sieve.columnar.alike import different_rows, union
from divtrace.sieve.columnar.stretch import Part, Stretch
from divtrace.topology import Topology
from divtrace.trace.model import Record
from divtrace.walk.compare import COMPARED, IN_ATTN_TP, Comparison
from divtrace.walk.sync import wrong_group

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS = ("step", "req", "attempt", "round", "site", "phase", "n")
_TOLD = ("stage", *_KEYS, "src", "comm_ranks", "extra", *COMPARED)
"""What is asked of records of requests on which ranks have parted."""
_COMPARED_KINDS = (Kind.CONTROL, Kind.LAYOUT, Kind.SHAPE)


def _is_one(part: Part, other: Part, name: str) -> bool:
    """True if two parts are known to hold the same in a column, without a look."""
    return part.start == other.start and part.chunk.column(name) is other.chunk.column(name)


def aligned_rows(stretch: Stretch) -> int:
    """Rows in front of the first one whose key differs between ranks."""
    import pyarrow.compute as pc

    first = stretch.count
    reference = stretch.reference
    for part in stretch.parts[1:]:
        for name in ("stage", *_KEYS):
            if _is_one(part, reference, name):
                continue
            for rows in different_rows(reference.column(name), part.column(name)):
                if rows is None:
                    continue
                if name != "stage":
                    rows = rows.filter(stretch.is_model.take(rows))
                if len(rows):
                    first = min(first, pc.min(rows).as_py())
    return first


def same_columns(stretch: Stretch, names: Sequence[str], rows: pa.Array) -> bool:
    """True if all ranks hold the same in these columns at some rows."""
    for part in stretch.parts[1:]:
        for name in names:
            if _is_one(part, stretch.reference, name):
                continue
            one, two = stretch.reference.column(name), part.column(name)
            one, two = (None if column is None else column.take(rows) for column in (one, two))
            if any(found is not None for found in different_rows(one, two)):
                return False
    return True


class Differences:
    """The rows of model events in which ranks differ."""

    def __init__(self, stretch: Stretch, comparison: Comparison) -> None:
        """Compare all columns."""

        self._stretch = stretch
        groups = comparison._attn_tp
        firsts: dict[tuple[int, ...], Part] = {}
        for part in stretch.parts:
            firsts.setdefault(groups.get(part.rank, (part.rank,)), part)
        unequal: list[pa.Array | None] = []
        uneven: list[pa.Array | None] = []
        self._by_name: dict[str, list[tuple[pa.Array | None, pa.Array | None]]] = {}
        for part in stretch.parts[1:]:
            for name in COMPARED:
                base = stretch.reference
                if name in IN_ATTN_TP:
                    base = firsts[groups.get(part.rank, (part.rank,))]
                if part is base or _is_one(part, base, name):
                    continue
                values, lone = different_rows(base.column(name), part.column(name))
                unequal.append(values)
                uneven.append(lone)
                self._by_name.setdefault(name, []).append((values, lone))
            unequal.append(self._extra(part))
        model = stretch.is_model
        self._unequal = union(unequal)
        self._uneven = union(uneven)
        self._unequal = self._unequal.filter(model.take(self._unequal))
        self._uneven = self._uneven.filter(model.take(self._uneven))

    def _extra(self, part: Part) -> pa.Array | None:
        """Rows whose `extra` differs in a key that is compared."""
        import pyarrow as pa
        import pyarrow.compute as pc

        one, two = self._stretch.column("extra"), part.column("extra")
        for column, owner in ((one, self._stretch.reference), (two, part)):
            if column is not None:
                rows = pc.indices_nonzero(column.is_valid())
                owner.events(rows)  # a text that is no JSON makes a bad record, of which the sieve knows nothing
        if one is None or two is None or one is two or one.equals(two):
            return None
        rows = pc.indices_nonzero(pc.and_(one.is_valid(), two.is_valid()))
        pairs = zip(self._stretch.reference.events(rows), part.events(rows), strict=True)
        found = [row for row, (a, b) in zip(rows.to_pylist(), pairs, strict=True) if _extra_differs(a, b)]
        return pa.array(found, pa.int64()) if found else None

    def requests(self, known: Collection[str]) -> list[tuple[str, int | None]]:
        """The requests of rows that differ, or that some ranks record in part, each with its first step.

        Without those that are `known`.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = union([self._unequal, self._uneven])
        req, step = self._stretch.column("req"), self._stretch.column("step")
        if req is None or not len(rows):
            return []
        codes = req.indices.take(rows)
        names: list[str] = req.dictionary.to_pylist()
        others = pa.array([code for code, name in enumerate(names) if name not in known], codes.type)
        wanted = pc.is_in(codes, others)
        rows, codes = rows.filter(wanted), codes.filter(wanted)
        if not len(rows):
            return []
        steps = pa.nulls(len(rows), pa.int64()) if step is None else step.take(rows)
        by_step = pc.sort_indices(steps)
        codes, steps = codes.take(by_step), steps.take(by_step)
        found = pc.unique(codes)
        firsts = steps.take(pc.index_in(found, codes)).to_pylist()
        return sorted(zip([names[code] for code in found.to_pylist()], firsts, strict=True))

    def unequal_in(self, name: str) -> pa.Array:
        """Rows in which some rank's value of a field is not the first rank's, rising."""
        return union([values for values, _ in self._by_name.get(name, ())])

    def uneven_in(self, name: str) -> pa.Array:
        """Rows in which some ranks recorded a field and some did not, rising."""
        return union([lone for _, lone in self._by_name.get(name, ())])

    def rows_of(self, mask: pa.Array) -> Iterator[tuple[Event, ...]]:
        """Records of requests, in order, each as every rank made it; one and the same where all are alike."""
        import pyarrow as pa
        import pyarrow.compute as pc

        stretch = self._stretch
        rows = stretch.sorted_rows(pc.indices_nonzero(mask))
        if not len(rows):
            return
        apart = pc.is_in(rows.cast(pa.int64()), union([self._unequal, self._uneven]))
        others = [iter(part.events(rows.filter(apart), _TOLD)) for part in stretch.parts[1:]]
        for event, is_apart in zip(stretch.reference.events(rows, _TOLD), apart.to_pylist(), strict=True):
            yield (event, *[next(other) for other in others]) if is_apart else (event,) * len(stretch.parts)

    def steps(self) -> list[int | None]:
        """The steps of batch-level rows that differ; None where one has no step."""
        rows = self._unequal
        req = self._stretch.column("req")
        if req is not None and len(rows):
            rows = rows.filter(req.take(rows).is_null())
        return list(dict.fromkeys(self._step(rows)))

    def _step(self, rows: pa.Array) -> list[Any]:
        column = self._stretch.column("step")
        return [None] * len(rows) if column is None else list(column.take(rows).to_pylist())

    def agreement(self) -> tuple[bool, int | None]:
        """Whether ranks agreed in any model event, and the last step in which they did."""
        import pyarrow as pa
        import pyarrow.compute as pc

        stretch = self._stretch
        found = None
        for name in (*VALUE_FIELDS, "extra"):
            valid = stretch.valid(name)
            if valid is not None:
                found = valid if found is None else pc.or_(found, valid)
        if found is None:
            return False, None
        found = pc.and_(found, stretch.is_model)
        if len(self._unequal):
            rows = pc.indices_nonzero(found)
            rows = rows.filter(pc.invert(pc.is_in(rows.cast(pa.int64()), self._unequal)))
            step = stretch.column("step")
            return bool(len(rows)), None if step is None else pc.max(step.take(rows)).as_py()
        if not found.true_count:
            return False, None
        step = stretch.column("step")
        return True, None if step is None else pc.max(step.filter(found)).as_py()

    def wrong_syncs(self, topology: Topology) -> list[tuple[str | None, int | None]]:
        """(req, step) of events that followed another sync than that of their sync group."""
        import pyarrow.compute as pc

        stretch = self._stretch
        wrong: dict[tuple[str | None, int | None], None] = {}
        for part in stretch.parts:
            members, source = part.column("comm_ranks"), part.column("src")
            if members is None and source is None:
                continue
            told = None
            for column in (members, source):
                if column is not None:
                    told = column.is_valid() if told is None else pc.or_(told, column.is_valid())
            rows = pc.indices_nonzero(pc.and_(told, stretch.is_model))
            if not len(rows):
                continue
            count = len(rows)
            good: dict[tuple[Any, ...], bool] = {}
            columns = [
                [None] * count if column is None else column.take(rows).to_pylist()
                for column in (members, source, stretch.column("stage"))
            ]
            for at, (ranks, src, stage) in enumerate(zip(*columns, strict=True)):
                key = (None if ranks is None else tuple(ranks), src, stage)
                known = good.get(key)
                if known is None:
                    event = Event(stage=stage, comm_ranks=ranks, src=src)
                    group = Group(key_of(event, 0), {part.rank: Record(event, 0, "", 0, False)})
                    known = good[key] = wrong_group(group, topology) is None
                if not known:
                    row = rows[at : at + 1]
                    req = stretch.column("req")
                    wrong[None if req is None else req.take(row)[0].as_py(), self._step(row)[0]] = None
        return list(wrong)


def _extra_differs(one: Event, two: Event) -> bool:
    here, there = one.extra or {}, two.extra or {}
    keys = [key for key in here.keys() & there.keys() if extra_kind(key) in _COMPARED_KINDS]
    # As JSON a bool is no number.
    return any(msgspec.json.encode(here[key]) != msgspec.json.encode(there[key]) for key in keys)
