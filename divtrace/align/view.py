"""One rank's trace, indexed for what alignment asks: where steps lie, what is covered, what holes can hide."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from divtrace.align.steps import StepPositions
from divtrace.events import MODEL_STAGES, STAGE_ORDER, Event
from divtrace.trace.model import RankTrace, Record

MODEL = frozenset(MODEL_STAGES)


class Site(NamedTuple):
    """A place that a rank may or may not record at all."""

    stage: str
    site: str | None
    phase: str


class EventKey(NamedTuple):
    """What two records must share to speak of one event. `step` is None where `round` tells the place."""

    req: str | None
    attempt: int
    round: int | None
    step: int | None
    stage: str
    site: str | None
    phase: str
    n: int

    @property
    def where(self) -> Site:
        """The site that coverage is counted by."""
        return Site(self.stage, self.site, self.phase)


def key_of(event: Event, n: int) -> EventKey:
    """The key of a model event that is the n-th of its kind."""
    if event.req is None:
        return EventKey(None, 0, None, event.step, event.stage, event.site, event.phase or "used", n)
    step = event.step if event.round is None else None
    return EventKey(event.req, event.attempt or 0, event.round, step, event.stage, event.site, event.phase or "used", n)


class Summary(msgspec.Struct, frozen=True):
    """What is known of a rank's whole trace where only some of its records are loaded."""

    events: int
    covered: frozenset[Site]
    first_of_step: Mapping[int, int]
    last_of_step: Mapping[int, int]
    overlapped: bool
    closed: bool
    last_model: int
    """Position of the last model event; -1 if there is none."""


class Scope(msgspec.Struct, frozen=True):
    """What of a replica is loaded as a whole, and may therefore be judged."""

    requests: frozenset[str]
    steps: frozenset[int]
    parted: frozenset[str] = frozenset()
    """Requests that are loaded in some steps only, and counted behind these."""
    parted_steps: range = range(0)

    def holds(self, req: str | None, step: int | None) -> bool:
        """True if every record of this event is loaded, and those that it is judged with."""
        if req in self.parted:
            return step in self.parted_steps or (step in self.steps and step < self.parted_steps.stop)
        return req in self.requests or step in self.steps


class RankView:
    """A rank's records with the indexes that alignment needs.

    `keys[i]` is the key of `records[i]`, or None for collectives and host records. Where a rank records the same key
    again, later ones count as n+1; `repeated` holds such keys with n left out (as n = -1). With a `summary`, `records`
    are only those that were loaded; their positions are still those in the whole trace.
    """

    def __init__(self, trace: RankTrace, summary: Summary | None = None) -> None:
        """Index the trace."""
        self.trace = trace
        self.rank = trace.id[1]
        self.records: list[Record] = trace.records
        self.keys: list[EventKey | None] = []
        self.repeated: set[EventKey] = set()
        self.covered: set[Site] = set()
        self.first_of_step: Mapping[int, int]
        self.last_of_step: Mapping[int, int]
        self.overlapped = False
        """Some model event was written after one of a later step: stages of two steps interleave."""
        self.invisible_loss = not trace.has_seq or trace.dropped > trace.lost
        self.closed = False
        self.last_model = -1
        """Position of the last model event; -1 if there is none."""
        self.length = len(self.records)
        """Records of the whole trace."""
        self.first_of_step, self.last_of_step = self._index()
        self._positions: list[int] | None = None
        if summary is not None:
            self._positions = [record.pos for record in self.records]
            self.covered = set(summary.covered)
            self.first_of_step, self.last_of_step = summary.first_of_step, summary.last_of_step
            self.overlapped, self.closed = summary.overlapped, summary.closed
            self.last_model, self.length = summary.last_model, summary.events
        first = self.first_of_step
        self.steps: Sequence[int] = first.steps if isinstance(first, StepPositions) else sorted(first)

    def between(self, first: int, last: int) -> Iterator[Record]:
        """The loaded records from position `first` to position `last`."""
        for index in range(self._at(first), len(self.records)):
            record = self.records[index]
            if record.pos > last:
                return
            yield record

    def before(self, pos: int) -> Iterator[tuple[Record, EventKey | None]]:
        """The loaded records in front of a position with their keys, the nearest first."""
        for index in range(self._at(pos) - 1, -1, -1):
            yield self.records[index], self.keys[index]

    def _at(self, pos: int) -> int:
        return pos if self._positions is None else bisect_left(self._positions, pos)

    def _index(self) -> tuple[dict[int, int], dict[int, int]]:
        first_of_step: dict[int, int] = {}
        last_of_step: dict[int, int] = {}
        seen: set[EventKey] = set()
        highest: int | None = None
        for record in self.records:
            event = record.event
            stage, step = event.stage, event.step
            key = None
            if stage in MODEL:
                key = key_of(event, event.n or 0)
                if key in seen:
                    self.repeated.add(key._replace(n=-1))
                    while key in seen:
                        key = key._replace(n=key.n + 1)
                seen.add(key)
                self.last_model = record.pos
                self.covered.add(key.where)
                if step is not None:
                    if highest is not None and step < highest:
                        self.overlapped = True
                    highest = step if highest is None or step > highest else highest
            elif stage == "host" and event.site == "end":
                self.closed = True
            self.keys.append(key)
            if step is not None and stage != "host":
                first_of_step.setdefault(step, record.pos)
                last_of_step[step] = record.pos
        return first_of_step, last_of_step

    def hole_between(self, first: int, last: int) -> bool:
        """True if events may be missing somewhere behind position `first` and before position `last`."""
        if self.trace.dropped > self.trace.lost and first < last:
            return True  # the recorder lost events where seq shows no gap: they may be anywhere
        gaps = self.trace.gaps
        return bisect_right(gaps, last) > bisect_right(gaps, first)

    def hole_around_step(self, step: int, *, wide: bool) -> bool:
        """True if a hole can hide an event of this step; `wide` also looks one step to both sides.

        The whole step is looked at, since engines write the stages of one step request by request.
        """
        low, high = (step - 1, step + 1) if wide else (step, step)
        left = bisect_left(self.steps, low)
        before = max((self.last_of_step[s] for s in self.steps[:left][-2:]), default=-1)
        if before < 0 and not self.trace.starts_at_zero:
            return True
        right = bisect_right(self.steps, high)
        after = min((self.first_of_step[s] for s in self.steps[right:][:2]), default=self.length)
        return self.hole_between(before, after)

    def hole_before(self, record: Record) -> bool:
        """True if a hole, or the start of the trace, can hide an earlier event of the same step."""
        step = record.event.step
        first = self.first_of_step.get(step, record.pos) if step is not None else record.pos
        if first == 0 and not self.trace.starts_at_zero:
            return True
        return self.hole_between(first - 1, record.pos)


def stage_order(stage: str) -> int:
    """Place of a stage in the causal order."""
    return STAGE_ORDER[stage]
