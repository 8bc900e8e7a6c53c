"""Evidence beside the traces of a world, or in place of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from divtrace.evidence.analyse import conclude
from divtrace.evidence.coordinates import Coordinates, global_rank
from divtrace.evidence.naming import group_name
from divtrace.evidence.read import Evidence
from divtrace.evidence.report import EvidenceReport
from divtrace.evidence.resolve import PlaceRank
from divtrace.join.findings import add_findings
from divtrace.join.operations import GroupJoin, TraceOperations, join_groups
from divtrace.join.timeouts import JoinedTimeouts, by_source, joined_timeouts
from divtrace.topology import RankGroups, Sizes, Topology, communicator_name, topology
from divtrace.trace.discover import Discovery
from divtrace.trace.model import Damage, Traces
from divtrace.walk.judge import ReplicaWalk
from divtrace.walk.progress import Waits, from_relation
from divtrace.walk.run import DECISIONS, Walk, concluded
from divtrace.walk.settings import GroupFlags, world_sizes, world_topology
from divtrace.walk.world import Outside, WorldWalk, expected_ranks


def with_evidence(walk: Walk, evidence: Evidence, flags: GroupFlags) -> Walk:
    """The walk of the traces, with all that the evidence adds; evidence belongs to world 0, or else the lowest."""
    world = next((one for one in walk.worlds if one.world == 0), walk.worlds[0])
    report = _conclude(evidence, world.topology, world_sizes(world.metas, flags), world.world, sorted(world.views))
    traces = TraceOperations(world)
    joins = join_groups(report.groups, traces)
    complete = len(walk.worlds) == 1 and set(expected_ranks(world.topology)) <= set(world.views)
    placed = joined_timeouts(report, world.world, traces, joins, complete=complete)
    _complete(world, report, joins, placed)
    walk.traces.damage = _damage(walk.traces.damage, report)
    notes = [
        f"Of {label} in the dumps and in the traces neither numbers nor order match; they are not joined."
        for label, join in joins.items()
        if join.by is None
    ]
    joined = concluded(walk.traces, walk.worlds, walk.missing_fields)
    return msgspec.structs.replace(
        joined,
        timeouts=by_source([*joined.timeouts, *placed.timeouts]),
        evidence=report,
        evidence_world=world.world,
        notes=(*notes, *placed.notes),
    )


def evidence_alone(found: Discovery, evidence: Evidence, flags: GroupFlags) -> Walk:
    """The walk of an input without traces: one world, whose ranks and groups come from the evidence.

    Raises:
        TopologyError: the sizes of the command line do not divide.
    """
    sizes = world_sizes({}, flags)
    report = conclude_alone(evidence, flags)
    groups = _stated_groups(flags) or (None if sizes else _recorded_groups(report))
    world = WorldWalk(0, topology(report.ranks, parallel=sizes, groups=groups), {}, {})
    if not report.ranks:
        world.topology = msgspec.structs.replace(world.topology, replicas=(), notes=())
    world.replicas = [ReplicaWalk(index, 0, one, {}) for index, one in enumerate(world.topology.replicas)]
    world.waits = Waits((), (), (), ())
    placed = joined_timeouts(report, 0, TraceOperations(world), {})
    _complete(world, report, {}, placed)
    traces = Traces(
        ranks={},
        files=(),
        ignored_files=found.ignored_files,
        damage=_damage(found.damage, report),
        bad_lines=0,
        unknown_fields={},
        duplicates=0,
        notes=[],
        runs=(),
        shared_metas=[],
    )
    joined = concluded(traces, [world], DECISIONS)
    return msgspec.structs.replace(joined, timeouts=by_source(placed.timeouts), evidence=report)


def conclude_alone(evidence: Evidence, flags: GroupFlags) -> EvidenceReport:
    """What the evidence supports where there are no traces."""
    sizes = world_sizes({}, flags)
    stated = topology((), parallel=sizes, groups=_stated_groups(flags)) if sizes or flags.attn_tp_groups else None
    return _conclude(evidence, stated, sizes, 0, ())


def conclude_beside(traces: Traces, evidence: Evidence, flags: GroupFlags) -> tuple[EvidenceReport, int]:
    """What the evidence supports beside traces, and the world that it belongs to."""
    worlds = {world for world, _ in traces.ranks}
    world = 0 if 0 in worlds else min(worlds)
    metas = {rank: tuple(trace.metas) for (w, rank), trace in traces.ranks.items() if w == world}
    groups = world_topology(sorted(metas), metas, flags)
    return _conclude(evidence, groups, world_sizes(metas, flags), world, sorted(metas)), world


def _conclude(
    evidence: Evidence, groups: Topology | None, sizes: Sizes | None, world: int, traced: Iterable[int]
) -> EvidenceReport:
    assumed = groups is None or (sizes is None and len(groups.replicas) < 2 and bool(groups.notes))
    expected = () if groups is None else expected_ranks(groups)
    return conclude(
        evidence,
        topology=groups,
        place_rank=_placing(sizes, world),
        replicas=None if groups is None or assumed else [one.ranks for one in groups.replicas],
        known_ranks=sorted({*traced, *expected}),
    )


def _stated_groups(flags: GroupFlags) -> dict[str, RankGroups] | None:
    return {"attn_tp": flags.attn_tp_groups} if flags.attn_tp_groups else None


def _recorded_groups(report: EvidenceReport) -> dict[str, RankGroups] | None:
    """The attn_tp groups that the dumps name, or the replicas that the prefixes of log lines name; None if neither."""
    named = {
        group.members
        for group in report.groups
        if communicator_name(group_name(group.comm.desc)) == "attn_tp" and not group.open
    }
    if named and sum(map(len, named)) == len({rank for members in named for rank in members}):
        return {"attn_tp": tuple(sorted(named))}
    by_index: dict[int, set[int]] = {}
    for fact in report.facts:
        if fact.rank is not None and fact.coordinates is not None and fact.coordinates.dp is not None:
            by_index.setdefault(fact.coordinates.dp, set()).add(fact.rank)
    if len(by_index) > 1 and sum(map(len, by_index.values())) == len(set().union(*by_index.values())):
        return {"attn_tp": tuple(tuple(sorted(ranks)) for _, ranks in sorted(by_index.items()))}
    return None


def _placing(sizes: Sizes | None, world: int) -> PlaceRank:
    """Global ranks of engine coordinates; a data-parallel index without DP attention names another world."""

    def place(coordinates: Coordinates) -> int | None:
        if sizes is not None and sizes.attention_dp == 1 and coordinates.dp not in (None, world):
            return None
        return global_rank(coordinates, tp=None if sizes is None else sizes.tp, pp=1 if sizes is None else sizes.pp)

    return place


def _complete(world: WorldWalk, report: EvidenceReport, joins: dict[str, GroupJoin], placed: JoinedTimeouts) -> None:
    """Add to a world what the evidence shows: findings, who waits, who failed."""
    held: dict[str, set[int]] = {}
    for group in report.groups:
        if len(group.lanes) > 1:
            held.setdefault(group.label, set()).update(group.lanes)
    add_findings(report, world, joins)
    world.outside = Outside(
        failing=frozenset(report.failing),
        failed=frozenset(report.failed),
        compared=frozenset().union(*held.values()) if report.compared else frozenset(),
        stalled=report.verdict == "uniform_stall" and not (set(expected_ranks(world.topology)) - set(report.ranks)),
        # What logs leave open are the timeouts that they tell of.
        undecided=report.undecided and (placed.unplaced or bool(report.dumps)),
        timed_out=placed.unplaced_ranks,
        timeout_known=placed.unplaced,
        absent=tuple(rank for rank, window in report.windows.items() if window.file is None),
    )
    own = world.waits
    if own is None or not (own.behind or own.cycles):
        pending = () if own is None else own.pending
        outside = from_relation(report.waits, pending)
        if outside.behind or outside.ahead or outside.cycles:
            world.waits = outside


def _damage(known: Iterable[Damage], report: EvidenceReport) -> list[Damage]:
    """Damage of the input, with the evidence that could not be read."""
    found = [*known, *(Damage(one.path, one.line, one.what) for one in report.unreadable)]
    return sorted(found, key=lambda one: (one.file, one.line or 0, one.what))
