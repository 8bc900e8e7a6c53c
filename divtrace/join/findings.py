"""What dumps and logs show as findings beside those of the traces: the same kind of data, the same roles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from divtrace.align.groups import Order
from divtrace.align.view import EventKey, stage_order
from divtrace.events import Event
from divtrace.evidence.dump import Dump
from divtrace.evidence.report import EvidenceFinding, EvidenceReport
from divtrace.join.operations import GroupJoin
from divtrace.rules import rule_class
from divtrace.trace.model import Record
from divtrace.waits.relation import Crossing
from divtrace.walk.collectives import Operation
from divtrace.walk.compare import Difference, index_of
from divtrace.walk.divergence import CommunicatorKey, Divergence
from divtrace.walk.world import WorldWalk, orders_of

_CREATED = 5
"""Column of a dump that holds the time of creation."""


def add_findings(report: EvidenceReport, world: WorldWalk, joins: Mapping[str, GroupJoin]) -> None:
    """Add what the evidence shows to the world's findings, unless its traces show the same."""
    dumps = {dump.rank: dump for dump in report.dumps if dump.rank is not None}
    for place, finding in enumerate(report.findings):
        located = _located(finding, joins.get(finding.comm or ""))
        if _known(finding, located, world):
            continue
        world.collective_divergences.append(_divergence(finding, report, world, located, dumps, place))


def _located(finding: EvidenceFinding, join: GroupJoin | None) -> dict[int, Operation]:
    """The traces' operation on every rank of the finding; empty unless all have one."""
    if join is None or finding.number is None:
        return {}
    found = {rank: one for rank in finding.ranks if (one := join.operation(rank, finding.number)) is not None}
    return found if len(found) == len(finding.ranks) else {}


def _known(finding: EvidenceFinding, located: Mapping[int, Operation], world: WorldWalk) -> bool:
    if finding.rule == "batch-membership":
        replicas = {one.index for one in world.replicas if set(one.replica.ranks) & set(finding.ranks)}
        return any(finding.rule in one.rules and replicas & one.orders.keys() for one in world.divergences)
    if finding.field == "comm":
        return any(one.cycle and set(one.cycle) <= set(finding.ranks) for one in world.divergences)
    named = {(one.communicator.name, one.communicator.ranks, one.number) for one in located.values()}
    return any(
        (one.communicator.comm, one.communicator.comm_ranks, one.communicator.comm_seq) in named
        for one in world.divergences
        if one.communicator is not None
    )


def _divergence(
    finding: EvidenceFinding,
    report: EvidenceReport,
    world: WorldWalk,
    located: Mapping[int, Operation],
    dumps: Mapping[int, Dump],
    place: int,
) -> Divergence:
    cycle = _cycle(finding, report.waits.crossings)
    stage = "schedule" if finding.rule == "batch-membership" else "collective"
    steps = [one.values.get("step") for _, one in sorted(located.items())]
    differences = tuple(_difference(finding, name, values) for name, values in finding.fields)
    named = next(one for one in differences if one.name == finding.field)
    ranks = tuple(sorted(cycle)) if cycle else finding.ranks
    rules = dict.fromkeys(one.rule for one in differences if one.rule != finding.rule)
    return Divergence(
        world=world.world,
        replica=_home(finding, world),
        key=EventKey(None, 0, None, steps[0] if steps else None, stage, None, "used", 0),
        step=steps[0] if steps else None,
        rule=finding.rule,
        also=tuple(rules),
        rule_class=rule_class(finding.rule),
        ranks=ranks,
        odd_ranks=finding.odd_ranks,
        records={rank: _record(finding, stage, rank, located, dumps) for rank in ranks},
        orders=_orders(finding, world, located, stage, place),
        field=named.name,
        index=named.index,
        values=named.values,
        differences=(named, *(one for one in differences if one is not named)),
        communicator=None
        if finding.rule == "batch-membership"
        else CommunicatorKey(finding.comm, finding.comm_ranks or (), finding.number),
        cycle=cycle,
        outside=not located,
        remark=_remark(finding),
    )


def _cycle(finding: EvidenceFinding, crossings: tuple[Crossing, ...]) -> tuple[int, ...]:
    if finding.field != "comm":
        return ()
    found = next(one for one in crossings if tuple(rank for _, rank in one.ranks) == finding.ranks)
    return tuple(wait.waiter[1] for wait in found.cycle)


def _difference(finding: EvidenceFinding, name: str, values: Mapping[int, object]) -> Difference:
    rule: str = finding.rule
    if finding.rule != "batch-membership":
        rule = "collective-order" if name in ("op", "comm") else "collective-shape"
    shown = {rank: _plain(value) for rank, value in sorted(values.items())}
    index = None if name == "batch" else index_of(shown.values())
    return Difference(name, rule, rule_class(rule), index, shown, shown)


def _plain(value: object) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _record(
    finding: EvidenceFinding, stage: str, rank: int, located: Mapping[int, Operation], dumps: Mapping[int, Dump]
) -> Record | None:
    """The rank's entry or line as a record; its place in the rank's order is the trace's where that is known."""
    if rank not in finding.where:
        return None
    file, line = finding.where[rank]
    position = located[rank].issue.pos if rank in located else line or 0
    created = None
    dump = dumps.get(rank)
    if dump is not None and dump.path == file and line:
        created = dump.columns[_CREATED][line - 1] or None
    event = Event(stage=stage, comm=finding.comm, comm_seq=finding.number, op=finding.op, ts=created)  # type: ignore[arg-type]  # one of two literals
    return Record(event, position, file, line or 0, is_row=False)


def _orders(
    finding: EvidenceFinding, world: WorldWalk, located: Mapping[int, Operation], stage: str, place: int
) -> dict[int, Order]:
    """In each replica that it belongs to: where the traces have it, else behind all that they have."""
    home = {rank: one for one in world.replicas for rank in one.views}
    if located and all(rank in home for rank in located):
        return orders_of([one for _, one in sorted(located.items())], home)
    members = {*finding.ranks, *(finding.comm_ranks or ())}
    replicas = [one.index for one in world.replicas if set(one.replica.ranks) & members]
    order = Order(math.inf, stage_order(stage), place)
    return dict.fromkeys(replicas or [_home(finding, world)], order)


def _home(finding: EvidenceFinding, world: WorldWalk) -> int:
    """The replica of the lowest rank that is in one."""
    for rank in finding.ranks:
        for one in world.replicas:
            if rank in one.replica.ranks:
                return one.index
    return world.replicas[0].index


def _remark(finding: EvidenceFinding) -> str:
    parts = []
    if finding.field == "comm":
        text = finding.attribution.removeprefix("Crossed order: ")
        parts.append(text[:1].upper() + text[1:])
    elif finding.shifts or finding.comm is None:
        parts.append(finding.attribution)
    if finding.following:
        more = "operation differs" if finding.following == 1 else "operations differ"
        parts.append(f"{finding.following} later {more} on this communicator.")
    return " ".join(parts)
