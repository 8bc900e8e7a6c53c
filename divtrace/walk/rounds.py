"""What one rank recorded of one round of one request, as the invariants and the comparison ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import msgspec

from divtrace.align.groups import Group
from divtrace.align.view import RankView
from divtrace.trace.model import Record

GOING_ON = ("used", "synced")
"""Phases that values across events are read from: what the engine went on with, else what the sync gave it."""


class Found(msgspec.Struct, frozen=True):
    """A recorded value and the record that holds it."""

    value: Any
    record: Record


class Draft(msgspec.Struct, frozen=True):
    """The drafts of a round: all draft steps in order, and their tree if one is recorded."""

    tokens: list[int]
    parents: list[int] | None
    records: tuple[Record, ...]


_position = attrgetter("pos")


class RoundView(msgspec.Struct):
    """One rank's records of one round, by stage and phase, in the rank's own order."""

    view: RankView
    req: str
    attempt: int
    round: int
    groups: list[Group] = msgspec.field(default_factory=list)
    _by_phase: dict[str, list[Record]] | None = None
    _picked: dict[tuple[str, Iterable[str] | None, Iterable[str]], Found | None] = msgspec.field(default_factory=dict)
    _draft: tuple[Draft | None] | None = None

    def records(self, stages: Iterable[str] | None, phases: Iterable[str]) -> Iterator[Record]:
        """Records of these stages (all if None) and phases, in the order of the trace."""
        known = self._phases()
        parts = [known[phase] for phase in phases if phase in known]
        # The groups of one phase are in order already.
        chosen = parts[0] if len(parts) == 1 else sorted((one for part in parts for one in part), key=_position)
        return (record for record in chosen if stages is None or record.event.stage in stages)

    def _phases(self) -> dict[str, list[Record]]:
        if self._by_phase is None:
            self._by_phase = {}
            for group in self.groups:
                self._by_phase.setdefault(group.key.phase, []).append(group.records[self.view.rank])
        return self._by_phase

    def pick(self, name: str, stages: Iterable[str] | None = None, phases: Iterable[str] = GOING_ON) -> Found | None:
        """The last recorded value of a field: from the first of the phases that has one."""
        asked = (name, stages, phases)
        if asked in self._picked:
            return self._picked[asked]
        found = self._picked[asked] = self._pick(name, stages, phases)
        return found

    def _pick(self, name: str, stages: Iterable[str] | None, phases: Iterable[str]) -> Found | None:
        known = self._phases()
        for phase in phases:
            for record in reversed(known.get(phase, ())):
                event = record.event
                value = getattr(event, name)
                if value is not None and (stages is None or event.stage in stages):
                    return Found(value, record)
        return None

    def last(self, name: str) -> Any:
        """The last recorded value of a field that the rank went on with; None if there is none."""
        found = self.pick(name)
        return None if found is None else found.value

    def draft(self) -> Draft | None:
        """The drafts, joined over the draft steps of the last site that recorded any; None if they are not complete."""
        if self._draft is None:
            self._draft = (self._find_draft(),)
        return self._draft[0]

    def _find_draft(self) -> Draft | None:
        for phase in GOING_ON:
            steps: dict[str | None, list[tuple[int, Record]]] = {}
            for group in self.groups:
                if group.key.stage == "draft" and group.key.phase == phase:
                    record = group.records[self.view.rank]
                    if record.event.draft_tokens is not None:
                        steps.setdefault(group.key.site, []).append((group.key.n, record))
            if steps:
                return self._join(max(steps.values(), key=lambda found: max(record.pos for _, record in found)))
        return None

    def _join(self, steps: list[tuple[int, Record]]) -> Draft | None:
        steps.sort(key=lambda step: step[0])
        if [n for n, _ in steps] != list(range(len(steps))):
            return None
        records = tuple(record for _, record in steps)
        if len(records) > 1 and self.view.hole_before(records[0]):
            return None
        tokens: list[int] = []
        parents: list[int] = []
        for record in records:
            tokens += record.event.draft_tokens or []
            parents += record.event.draft_parents or []
        recorded = any(record.event.draft_parents is not None for record in records)
        return Draft(tokens, parents if recorded else None, records)

    def whole(self, *records: Record) -> bool:
        """True if no hole lies between these records of this rank, so that none of them can be superseded unseen."""
        positions = [record.pos for record in records]
        return not self.view.hole_between(min(positions), max(positions))

    def is_finished(self) -> bool | None:
        """Whether this rank says that the request finished in this round; None if it does not say."""
        found = self.pick("finished")
        return None if found is None else bool(found.value)


RoundKey = tuple[str, int, int]
Rounds = dict[RoundKey, dict[int, RoundView]]


def rounds_of(groups: Iterable[Group], views: dict[int, RankView]) -> Rounds:
    """Every (req, attempt, round) with each rank's view of it.

    The groups of a view stand in the order of its rank's records.
    """
    rounds: Rounds = {}
    for group in groups:
        key = group.key
        if key.req is None or key.round is None or not group.records:
            continue
        by_rank = rounds.setdefault((key.req, key.attempt, key.round), {})
        for rank in group.records:
            round_view = by_rank.get(rank)
            if round_view is None:
                round_view = by_rank[rank] = RoundView(views[rank], key.req, key.attempt, key.round)
            round_view.groups.append(group)
    for by_rank in rounds.values():
        for rank, round_view in by_rank.items():
            round_view.groups.sort(key=lambda group, rank=rank: group.records[rank].pos)  # type: ignore[misc]
    return rounds


def overshoot_rounds(rounds: Rounds) -> frozenset[RoundKey]:
    """Rounds after one in which every rank that recorded it says the request finished: run by overlap for nothing."""
    found = set()
    for (req, attempt, number), by_rank in rounds.items():
        says = [said for said in (by_rank[rank].is_finished() for rank in sorted(by_rank)) if said is not None]
        if says and all(says):
            found.add((req, attempt, number + 1))
    return frozenset(found)
