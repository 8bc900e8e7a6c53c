"""Judges the events of one replica: one `Divergence` for each event that differs, breaks or is skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from divtrace.align.groups import Group, Order, align
from divtrace.align.view import EventKey, RankView, Scope
from divtrace.invariants import CHECKS
from divtrace.invariants.base import Break, Context
from divtrace.topology import ReplicaGroup, Topology
from divtrace.walk.assemble import Evidence, assemble
from divtrace.walk.compare import Comparison, Difference, values_of
from divtrace.walk.divergence import Divergence
from divtrace.walk.rounds import RoundKey, Rounds, RoundView, overshoot_rounds, rounds_of
from divtrace.walk.skips import Skips, Unseen
from divtrace.walk.slots import SlotWalk
from divtrace.walk.sync import Phases, after_sync, is_healed, is_ineffective, overrides, wrong_group

RecordId = tuple[int, int]
"""(rank, position)"""


class SiteNote(msgspec.Struct, frozen=True):
    """A harmless difference at one event and field."""

    order: Order
    site: str | None
    field: str


class ReplicaWalk(msgspec.Struct):
    """One replica, aligned and judged."""

    index: int
    world: int
    replica: ReplicaGroup
    views: dict[int, RankView]
    """Of the ranks that have a trace."""
    groups: list[Group] = msgspec.field(default_factory=list)
    by_key: dict[EventKey, Group] = msgspec.field(default_factory=dict)
    rounds: Rounds = msgspec.field(default_factory=dict)
    overshoot: frozenset[RoundKey] = frozenset()
    divergences: list[Divergence] = msgspec.field(default_factory=list)
    healed: list[SiteNote] = msgspec.field(default_factory=list)
    unsettled: list[SiteNote] = msgspec.field(default_factory=list)
    """Differences before a sync of which nothing after it is recorded."""
    overridden: list[SiteNote] = msgspec.field(default_factory=list)
    """Synced values that all ranks replaced by one and the same other value."""
    drift: list[SiteNote] = msgspec.field(default_factory=list)
    agreements: list[Group] = msgspec.field(default_factory=list)
    """Events that two ranks recorded with equal values, in causal order."""
    unseen: dict[int, Unseen] = msgspec.field(default_factory=dict)
    partial: dict[str, int] = msgspec.field(default_factory=dict)
    """Requests compared only in part, each with the lowest rank of which a part is not compared."""
    scope: Scope | None = None
    """What is loaded as a whole; None: everything."""
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    """Rounds of every request, the prefill not counted."""
    counted: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By rule: findings behind those that a report lists, which are not among the divergences."""
    agreed_step: int | None = None
    """The last step in which two ranks agreed."""
    token_keys: dict[int, str] = msgspec.field(default_factory=dict)
    """How each rank recorded token ids."""
    agreed: bool = False
    """Some event was recorded by two ranks with equal values."""


def walk_replica(walk: ReplicaWalk, topology: Topology, algorithm: str | None) -> ReplicaWalk:
    """Align and judge the model events of one replica, as far as its scope goes."""
    views = walk.views
    walk.groups = align(views)
    walk.by_key = {group.key: group for group in walk.groups}
    walk.rounds = rounds_of(walk.groups, views)
    walk.overshoot = overshoot_rounds(walk.rounds)
    _Judge(walk, topology, algorithm).run()
    if walk.scope is None:
        _count(walk)
    walk.agreed = walk.agreed or bool(walk.agreements)
    steps = [group.step for group in walk.agreements if group.step is not None]
    walk.agreed_step = max([*steps, *([] if walk.agreed_step is None else [walk.agreed_step])], default=None)
    return walk


def _count(walk: ReplicaWalk) -> None:
    """What the sieve counts where it has read the trace."""
    walk.requests = {group.key.req: 0 for group in walk.groups if group.key.req is not None}
    for req, _, number in walk.rounds:
        walk.requests[req] += number > 0


class _Judge:
    def __init__(self, walk: ReplicaWalk, topology: Topology, algorithm: str | None) -> None:
        self._walk = walk
        self._topology = topology
        self._comparison = Comparison(walk.replica, walk.token_keys)
        self._skips = Skips(walk.views)
        self._breaks = _all_breaks(walk, algorithm)

    def run(self) -> None:
        walk = self._walk
        families: dict[EventKey, dict[str, Group]] = {}
        for group in walk.groups:
            known = group.key.stage == "init" or walk.scope is None or walk.scope.holds(group.key.req, group.step)
            if not known:
                continue  # init events have no step, and are all loaded
            families.setdefault(group.key._replace(phase=""), {})[group.key.phase] = group
        for phases in families.values():
            self._family(phases)
        walk.divergences.sort(key=lambda divergence: divergence.orders[walk.index])
        walk.agreements.sort(key=lambda group: group.order)
        walk.unseen, walk.partial = self._skips.unseen, self._skips.partial

    def _family(self, phases: dict[str, Group]) -> None:
        walk = self._walk
        key = next(iter(phases.values())).key
        rounds: Mapping[int, RoundView] | None = None
        if key.req is not None and key.round is not None:
            round_key = (key.req, key.attempt, key.round)
            if round_key in walk.overshoot:
                return
            rounds = walk.rounds.get(round_key)
        differences: dict[str, list[Difference]] = {}
        for phase, group in phases.items():
            differences[phase], drift = self._comparison.differences(group, rounds)
            if phase != "local":
                walk.drift += [SiteNote(group.order, key.site, name) for name in drift]
        self._before_sync(phases, differences)
        for phase in ("local", "synced", "used"):
            if phase in phases:
                self._event(phases, phase, differences.get(phase, []), rounds)

    def _before_sync(self, phases: Phases, differences: Mapping[str, list[Difference]]) -> None:
        local = phases.get("local")
        if local is None or not differences["local"]:
            return
        after = after_sync(phases)
        for difference in differences["local"]:
            note = SiteNote(local.order, local.key.site, difference.name)
            if after is None:
                self._walk.unsettled.append(note)
            elif is_healed(difference, after, differences[after.key.phase]):
                self._walk.healed.append(note)

    def _event(
        self, phases: Phases, phase: str, differences: list[Difference], rounds: Mapping[int, RoundView] | None
    ) -> None:
        walk, group = self._walk, phases[phase]
        evidence = Evidence(group=group, replica=walk.index, world=walk.world)
        evidence.wrong_group = wrong_group(group, self._topology)
        evidence.skipped = self._skips.skipped_by(group)
        for rank, record in group.records.items():
            evidence.breaks += self._breaks.get((rank, record.pos), [])
        evidence.source = _source(phases)
        if phase != "local":
            evidence.differences = differences
        if phase == "synced":
            evidence.ineffective = any(is_ineffective(difference, self._topology) for difference in differences)
        if phase == "used":
            names = {difference.name for difference in differences}
            for override in overrides(phases, rounds):
                if override.name not in names:
                    walk.overridden.append(SiteNote(group.order, group.key.site, override.name))
                elif evidence.override is None:
                    evidence.override = override
        divergence = assemble(evidence)
        if divergence is not None:
            walk.divergences.append(divergence)
        elif phase != "local" and not differences and _compared(group):
            walk.agreements.append(group)


def _compared(group: Group) -> bool:
    """True if two ranks recorded some field of this event that is compared."""
    if len(group.records) < 2:
        return False
    recorded: set[object] = set()
    for record in group.records.values():
        event = record.event
        names: set[object] = {index for index, value in enumerate(values_of(event)) if value is not None}
        names.update(key for key in event.extra or {} if key.startswith(("control.", "layout.", "shape.")))
        if names & recorded:
            return True
        recorded |= names
    return False


def _source(phases: Phases) -> int | None:
    """The recorded source of the sync that an event followed."""
    for phase in ("synced", "used", "local"):
        group = phases.get(phase)
        if group is not None:
            sources = [record.event.src for _, record in sorted(group.records.items()) if record.event.src is not None]
            if sources:
                return sources[0]
    return None


def _all_breaks(walk: ReplicaWalk, algorithm: str | None) -> dict[RecordId, list[Break]]:
    """Every broken invariant, by the record at which it breaks."""
    found: dict[RecordId, list[Break]] = {}

    def keep(rank: int, breaks: Iterable[Break]) -> None:
        for one in breaks:
            known = found.setdefault((rank, one.record.pos), [])
            if all(other.rule != one.rule for other in known):
                known.append(one)

    restarts = {rank: _restarts(view) for rank, view in walk.views.items()}
    for round_key, by_rank in walk.rounds.items():
        if round_key in walk.overshoot or not _in_scope(walk, by_rank):
            continue
        req, attempt, number = round_key
        before = walk.rounds.get((req, attempt, number - 1), {})
        for rank, current in by_rank.items():
            context = Context(algorithm, restarts[rank].get(req, ()))
            for check in CHECKS:
                keep(rank, check(current, before.get(rank), context))
    for rank, view in walk.views.items():
        requests = None if walk.scope is None else walk.scope.requests | walk.scope.parted
        keep(rank, SlotWalk(view, walk.overshoot, requests).breaks())
    return found


def _in_scope(walk: ReplicaWalk, by_rank: Mapping[int, RoundView]) -> bool:
    if walk.scope is None:
        return True
    group = next(iter(by_rank.values())).groups[0]
    return walk.scope.holds(group.key.req, group.step)


def _restarts(view: RankView) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for record in view.records:
        event = record.event
        if event.stage == "schedule" and event.req is not None and event.decision in ("retract", "extend"):
            found[event.req] = (*found.get(event.req, ()), record.pos)
    return found
