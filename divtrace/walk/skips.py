"""Which ranks skipped an event that their peers recorded, and which merely cannot be compared there (SPEC 5)."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import msgspec

from divtrace.align.groups import Group
from divtrace.align.view import RankView, Site, stage_order


class Unseen(msgspec.Struct):
    """Why events that peers recorded are not compared on one rank."""

    before_first: int = 0
    after_last: int = 0
    hidden: int = 0
    no_coverage: frozenset[Site] = frozenset()
    """Sites that peers record and this rank never."""


class _Span(NamedTuple):
    first: int
    last: int


_ANY = -1
HISTORY = 16
"""Steps (rounds) before the missing event that are asked for what the rank always wrote after it."""


class _StepSite(NamedTuple):
    """A place in a step: batch-level ones by their occurrence, those of requests all together."""

    where: Site
    n: int
    batch_level: bool


class Skips:
    """Judges absences in one replica. `unseen` fills up as events are judged."""

    def __init__(self, views: dict[int, RankView]) -> None:
        """Keep the ranks that have a trace."""
        self._views = views
        self._wide = any(view.overlapped for view in views.values())
        self._in_step: dict[int, dict[_StepSite, dict[int, _Span]]] = {}
        self._in_round: dict[int, dict[Site, dict[tuple[str, int, int], _Span]]] = {}
        everything = frozenset(site for view in views.values() for site in view.covered)
        self.unseen = {rank: Unseen(no_coverage=everything - view.covered) for rank, view in views.items()}
        self.partial: dict[str, int] = {}
        """Requests of which some event is not compared on a rank that records its site, with the lowest such rank."""

    def skipped_by(self, group: Group) -> dict[int, int]:
        """Ranks that skipped this event, each with the position of the later record that shows it went past."""
        found = {}
        for rank in sorted(self._views.keys() - group.records.keys()):
            if rank in group.hidden:
                self.unseen[rank].hidden += 1
                continue
            passed = self._judge(self._views[rank], group)
            if passed is not None:
                found[rank] = passed
            elif group.key.req is not None and group.key.where in self._views[rank].covered:
                self.partial[group.key.req] = min(rank, self.partial.get(group.key.req, rank))
        return found

    def _judge(self, view: RankView, group: Group) -> int | None:
        unseen = self.unseen[view.rank]
        if group.key.where not in view.covered:
            return None
        if not self._began_before(view, group):
            unseen.before_first += 1
            return None
        passed = self._passed(view, group)
        if passed is None:
            unseen.after_last += 1
            return None
        if view.invisible_loss or (group.step is not None and view.hole_around_step(group.step, wide=self._wide)):
            unseen.hidden += 1
            return None
        if group.step is None and view.trace.gaps:
            unseen.hidden += 1
            return None
        return passed

    def _began_before(self, view: RankView, group: Group) -> bool:
        if not view.steps:
            return view.trace.starts_at_zero and bool(view.records)
        if group.step is None or view.steps[0] < group.step:
            return True
        if view.steps[0] > group.step:
            return False
        # The trace begins in this very step: only an earlier stage of it shows that the rank was already recording.
        own = stage_order(group.key.stage)
        for record in view.between(view.first_of_step[group.step], view.last_of_step[group.step]):
            if record.event.step == group.step and stage_order(record.event.stage) < own:
                return True
        return False

    def _passed(self, view: RankView, group: Group) -> int | None:
        if group.step is not None:
            later = bisect_left(view.steps, group.step + 2)
            if later < len(view.steps):
                return view.first_of_step[view.steps[later]]
        if group.key.round is not None:
            return min(self._always_after_in_round(view, group), default=None)
        return min(self._always_after_in_step(view, group), default=None)

    def _always_after_in_step(self, view: RankView, group: Group) -> list[int]:
        """First records of this step at sites that the rank's earlier steps always wrote after the missing event.

        For an event of one request only batch-level sites and collectives tell: how often per-request sites occur in a
        step depends on how many requests it had.
        """
        if group.step is None:
            return []
        sites = self._steps_of(view)
        own = _StepSite(group.key.where, group.key.n if group.key.req is None else _ANY, group.key.req is None)
        known = sites.get(own, {}).items()
        earlier = [(step, span) for step, span in known if group.step - HISTORY <= step < group.step]
        found = []
        for site, spans in sites.items():
            here = spans.get(group.step)
            if here is None or (group.key.req is not None and not site.batch_level):
                continue
            common = [(span, spans[step]) for step, span in earlier if step in spans]
            if common and all(other.first > span.last for span, other in common):
                found.append(here.first)
        return found

    def _always_after_in_round(self, view: RankView, group: Group) -> list[int]:
        key = group.key
        if key.req is None or key.round is None:
            return []
        own = (key.req, key.attempt, key.round)
        sites = self._rounds_of(view)
        missing = sites.get(key.where, {})
        found = []
        for spans in sites.values():
            here = spans.get(own)
            if here is None:
                continue
            earlier = [
                round_key for round_key, span in missing.items() if round_key in spans and span.first < here.first
            ]
            earlier = self._recent(view, earlier, group.step)
            common = [(missing[round_key], spans[round_key]) for round_key in earlier]
            if common and all(other.first > span.last for span, other in common):
                found.append(here.first)
        return found

    def _recent(
        self, view: RankView, rounds: list[tuple[str, int, int]], step: int | None
    ) -> list[tuple[str, int, int]]:
        """Those of the rounds that the rank ran in the last steps."""
        if step is None:
            return rounds
        start = view.first_of_step.get(next((s for s in view.steps if s >= step - HISTORY), step), 0)
        sites = self._rounds_of(view)
        return [key for key in rounds if any(spans[key].first >= start for spans in sites.values() if key in spans)]

    def _steps_of(self, view: RankView) -> dict[_StepSite, dict[int, _Span]]:
        known = self._in_step.get(view.rank)
        if known is None:
            known = self._in_step[view.rank] = {}
            for record, key in zip(view.records, view.keys, strict=True):
                event = record.event
                if event.step is None or event.stage == "host" or event.state == "timeout":
                    continue
                if key is None:
                    site = _StepSite(Site(event.stage, event.site, event.comm or ""), event.n or 0, True)
                else:
                    site = _StepSite(key.where, key.n if key.req is None else _ANY, key.req is None)
                spans = known.setdefault(site, {})
                span = spans.get(event.step)
                spans[event.step] = _Span(record.pos if span is None else span.first, record.pos)
        return known

    def _rounds_of(self, view: RankView) -> dict[Site, dict[tuple[str, int, int], _Span]]:
        known = self._in_round.get(view.rank)
        if known is None:
            known = self._in_round[view.rank] = {}
            for record, key in zip(view.records, view.keys, strict=True):
                if key is None or key.req is None or key.round is None:
                    continue
                spans = known.setdefault(key.where, {})
                round_key = (key.req, key.attempt, key.round)
                span = spans.get(round_key)
                spans[round_key] = _Span(record.pos if span is None else span.first, record.pos)
        return known
