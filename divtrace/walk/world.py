"""One world: its groups, its replicas, its collectives, and who waits at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from divtrace.align.groups import Group, Order
from divtrace.align.view import EventKey, RankView, Scope, Summary, stage_order
from divtrace.events import Meta
from divtrace.topology import RankGroup, Topology
from divtrace.trace.model import RankTrace
from divtrace.walk import odd
from divtrace.walk.collectives import Operation, OperationMatch, matches, mismatch, operations_of
from divtrace.walk.compare import Difference
from divtrace.walk.config import config_divergence
from divtrace.walk.divergence import CommunicatorKey, Divergence
from divtrace.walk.judge import ReplicaWalk, walk_replica
from divtrace.walk.progress import LastNumbers, Waits, waits
from divtrace.walk.settings import GroupFlags, setting, token_key, world_topology


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What other evidence than traces (dumps, logs) tells about one world."""

    failing: frozenset[int] = frozenset()
    """Ranks that failed by themselves: no timeout, no lost peer, no abort after a mismatch."""
    failed: frozenset[int] = frozenset()
    """Those of them that others are seen to wait for."""
    compared: frozenset[int] = frozenset()
    """Ranks of which some operation was held against another rank's."""
    stalled: bool = False
    """All ranks have a dump, and all of them are stuck in operations that everybody issued."""
    undecided: bool = False
    """An operation is pending of which a member is not observed."""
    timed_out: frozenset[int] = frozenset()
    """Ranks that gave up waiting in an operation that the traces do not have on all its members."""
    timeout_known: bool = False
    """Somebody gave up waiting in such an operation, be it on an unknown rank."""
    absent: tuple[int, ...] = ()
    """Where there are no traces: ranks that left no dump either."""


class WorldWalk(msgspec.Struct):
    """Everything found in one world."""

    world: int
    topology: Topology
    views: dict[int, RankView]
    metas: dict[int, tuple[Meta, ...]]
    replicas: list[ReplicaWalk] = msgspec.field(default_factory=list)
    operations: dict[int, list[Operation]] = msgspec.field(default_factory=dict)
    matches: list[OperationMatch] = msgspec.field(default_factory=list)
    waits: Waits | None = None
    collective_divergences: list[Divergence] = msgspec.field(default_factory=list)
    matched: frozenset[int] = frozenset()
    """Ranks of which some operation was held against another rank's."""
    meta_conflict: bool = False
    outside: Outside | None = None

    @property
    def divergences(self) -> list[Divergence]:
        """All divergences of this world, replica by replica, then those of collectives."""
        return [*(one for replica in self.replicas for one in replica.divergences), *self.collective_divergences]


class Sieved(msgspec.Struct, frozen=True):
    """What the sieve found in one world whose records are loaded only in part."""

    summaries: Mapping[int, Summary]
    """By rank."""
    scopes: Mapping[RankGroup, Scope]
    """By the ranks of the replica."""
    requests: Mapping[RankGroup, dict[str, int]]
    partial: Mapping[RankGroup, dict[str, int]]
    counted: Mapping[RankGroup, Mapping[str, int]]
    """By rule, findings that were counted only."""
    agreed_steps: Mapping[RankGroup, int | None]
    agreed: frozenset[RankGroup]
    last_numbers: LastNumbers
    matched: frozenset[int]
    """Ranks of which some operation was matched with another rank's."""


def walk_world(
    world: int,
    traces: Mapping[int, RankTrace],
    flags: GroupFlags,
    first_replica: int,
    sieved: Sieved | None = None,
) -> WorldWalk:
    """Align, compare and judge all ranks of one world.

    Args:
        world: the world's number.
        traces: its traces by rank.
        flags: sizes and groups from the command line.
        first_replica: number of the world's first replica; replicas are numbered through over all worlds.
        sieved: what is known of records that are not loaded; None if all are.

    Raises:
        TopologyError: sizes do not divide or groups overlap.
    """
    metas = {rank: tuple(trace.metas) for rank, trace in traces.items()}
    summaries = {} if sieved is None else sieved.summaries
    views = {rank: RankView(traces[rank], summaries.get(rank)) for rank in sorted(traces)}
    groups = world_topology(sorted(traces), metas, flags)
    walk = WorldWalk(world, groups, views, metas)
    for offset, replica in enumerate(groups.replicas):
        index = first_replica + offset
        inside = {rank: views[rank] for rank in sorted(replica.ranks) if rank in views}
        lowest = [meta for rank in inside for meta in metas[rank]]
        one = ReplicaWalk(index, world, replica, inside)
        if sieved is not None:
            ranks = replica.ranks
            one.scope = sieved.scopes.get(ranks, Scope(frozenset(), frozenset()))
            one.requests, one.agreed = dict(sieved.requests.get(ranks, {})), ranks in sieved.agreed
            one.agreed_step = sieved.agreed_steps.get(ranks)
            one.counted = sieved.counted.get(ranks, {})
        one.token_keys = {rank: token_key(metas[rank]) for rank in inside}
        walk_replica(one, groups, setting(lowest, "algorithm"))
        if sieved is not None:
            one.partial = {**sieved.partial.get(replica.ranks, {}), **one.partial}
        conflict = config_divergence(index, world, inside, metas)
        if conflict is not None:
            one.divergences.insert(0, conflict)
            walk.meta_conflict = True
        walk.replicas.append(one)
    walk.operations = {rank: operations_of(view, groups, world) for rank, view in views.items()}
    walk.matches = matches(walk.operations)
    walk.waits = waits(views, walk.operations, None if sieved is None else sieved.last_numbers)
    walk.matched = frozenset({rank for match in walk.matches if len(match.by_rank) > 1 for rank in match.by_rank})
    if sieved is not None:
        walk.matched |= sieved.matched
    home = {rank: replica for replica in walk.replicas for rank in replica.views}
    for match in walk.matches:
        differences = mismatch(match)
        if differences:
            walk.collective_divergences.append(_divergence(match, differences, home))
    _add_crossedorders_of(walk, home)
    return walk


def _divergence(match: OperationMatch, differences: list[Difference], home: Mapping[int, ReplicaWalk]) -> Divergence:
    lowest = match.lowest
    rules = list(dict.fromkeys(difference.rule for difference in differences))
    ranks = tuple(sorted(match.by_rank))
    first = differences[0]
    return Divergence(
        world=match.communicator.world,
        replica=home[lowest.rank].index,
        key=_key(lowest),
        step=lowest.values.get("step"),
        rule=rules[0],
        also=tuple(rules[1:]),
        rule_class="shape",
        ranks=ranks,
        odd_ranks=odd.by_majority(first.compared, ranks) or (),
        records={rank: match.by_rank[rank].issue for rank in ranks},
        orders=orders_of([match.by_rank[rank] for rank in ranks], home),
        field=first.name,
        index=first.index,
        values=first.values,
        differences=tuple(differences),
        communicator=_communicator(lowest),
    )


def _key(operation: Operation) -> EventKey:
    values = operation.values
    return EventKey(None, 0, None, values.get("step"), "collective", values.get("site"), "used", values.get("n") or 0)


def _communicator(operation: Operation) -> CommunicatorKey:
    name = operation.communicator.name
    return CommunicatorKey(name, operation.communicator.ranks, operation.number if operation.counted else None)


def orders_of(operations: Sequence[Operation], home: Mapping[int, ReplicaWalk]) -> dict[int, Order]:
    """Where operations of one number stand in each replica: as on the lowest rank that issued it there."""
    orders: dict[int, Order] = {}
    for operation in operations:
        replica = home[operation.rank]
        if replica.index not in orders:
            orders[replica.index] = collective_order(operation, replica)
    return orders


def collective_order(operation: Operation, replica: ReplicaWalk) -> Order:
    """Behind the last model event of its own step that precedes it on its rank; behind schedule if there is none."""
    view = replica.views[operation.rank]
    step = operation.issue.event.step
    behind: Group | None = None
    for record, key in view.before(operation.issue.pos):
        if key is not None and (step is None or record.event.step == step):
            behind = replica.by_key[key]
            break
        if step is not None and record.pos < view.first_of_step.get(step, 0):
            break
    tie = f"{operation.communicator.name} {operation.number:020d}"
    if behind is not None:
        return behind.order._replace(behind=1, pos=operation.issue.pos, tie=tie)
    start = -math.inf if step is None else float(step)
    return Order(start, stage_order("schedule"), math.inf, 1, operation.issue.pos, tie)


def _add_crossedorders_of(walk: WorldWalk, home: Mapping[int, ReplicaWalk]) -> None:
    """A crossed order is a finding at the pending operation of its lowest rank, unless one of its operations is one."""
    if walk.waits is None:
        return
    known = {
        (one.communicator.comm, one.communicator.comm_ranks, one.communicator.comm_seq)
        for one in walk.collective_divergences
        if one.communicator
    }
    for cycle in walk.waits.cycles:
        stuck: dict[int, Operation] = {}
        for operation in walk.waits.pending:
            if operation.rank in cycle:
                stuck.setdefault(operation.rank, operation)
        if any((o.communicator.name, o.communicator.ranks, o.number) in known for o in stuck.values()):
            continue
        operations = [stuck[rank] for rank in sorted(stuck)]
        lowest = operations[0]
        names = {operation.rank: operation.communicator.name for operation in operations}
        walk.collective_divergences.append(
            Divergence(
                world=walk.world,
                replica=home[lowest.rank].index,
                key=_key(lowest),
                step=lowest.values.get("step"),
                rule="collective-order",
                also=(),
                rule_class="shape",
                ranks=tuple(sorted(cycle)),
                odd_ranks=(),
                records={operation.rank: operation.issue for operation in operations},
                orders=orders_of(operations, home),
                field="comm",
                values=names,
                differences=(Difference("comm", "collective-order", "shape", None, names, names),),
                communicator=_communicator(lowest),
                cycle=cycle,
            )
        )


def expected_ranks(groups: Topology) -> RankGroup:
    """All ranks that the groups name."""
    return tuple(sorted({rank for replica in groups.replicas for rank in replica.ranks}))
