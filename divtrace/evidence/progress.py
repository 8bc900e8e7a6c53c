"""What the wait-for analysis asks, from dumps and log operations: last and pending number of every rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from divtrace.evidence.facts import Communicator, Fact, Operation
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.resolve import Membership, member_list
from divtrace.evidence.windows import LastNumbers
from divtrace.waits.model import Progress, RankKey, Wait

NOT_IN_DUMPS = "log"


@dataclass(frozen=True, slots=True)
class Pending:
    """One pending operation of one rank."""

    rank: int
    comm: str
    number: int
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How far all ranks came."""

    progresses: tuple[Progress, ...]
    pending: tuple[Pending, ...]
    loose: tuple[Wait, ...]
    """Waits that do not follow from numbers."""


def _key(rank: int) -> RankKey:
    return (0, rank)


def standing(
    groups: Sequence[GroupLanes],
    numbers: LastNumbers,
    operations: Iterable[Operation],
    facts: Iterable[Fact],
    topology: Membership | None,
) -> Standing:
    """Progress per communicator from dumps, with log operations of the same communicator added.

    A rank whose dump ends too early (`numbers.horizons`) has no pending operation, and where a peer waits for more
    than it shows it is unobserved.
    """
    progresses: list[Progress] = []
    pending: list[Pending] = []
    by_group, alone = _log_operations(operations, groups)
    for position, group in enumerate(groups):
        last = dict(numbers.last[group.label])
        waiting: dict[int, tuple[int, bool]] = {}
        for rank, (_, lane) in sorted(group.lanes.items()):
            if rank in numbers.horizons:
                continue
            if lane.pending:
                number = max(lane.pending)
                waiting[rank] = (number, any(state == 3 for state in lane.pending.values()))
            if lane.tail is not None and _unfinished(group, last, lane.tail):
                waiting[rank] = max(waiting.get(rank, (-1, True)), (lane.tail, True))
        for operation in by_group.get(position, ()):
            _add_operation(operation, last, waiting)
        _forget_beyond_horizon(numbers, last, waiting)
        pending += [Pending(rank, group.label, number, late) for rank, (number, late) in sorted(waiting.items())]
        members = tuple(_key(rank) for rank in group.members)
        progresses.append(
            Progress(
                group.label,
                members,
                {_key(rank): number for rank, number in last.items()},
                {_key(rank): number for rank, (number, _) in waiting.items()},
                open=group.open,
            )
        )
    for comm, rows in alone:
        progress = _from_logs(comm, rows, topology)
        if progress is not None:
            progresses.append(progress)
            pending += [
                Pending(key[1], progress.comm, number, True) for key, number in sorted(progress.pending.items())
            ]
    return Standing(tuple(progresses), tuple(pending), tuple(_loose_waits(facts)) + tuple(_peer_waits(groups)))


def _unfinished(group: GroupLanes, last: dict[int, int], number: int) -> bool:
    """gloo: whether a retired operation at the end of its thread may have timed out.

    It was completed if all members issued it; it was not if one of them, observed, did not; else nobody can tell.
    """
    return group.open or any(last.get(rank, -1) < number for rank in group.members)


def _forget_beyond_horizon(numbers: LastNumbers, last: dict[int, int], waiting: dict[int, tuple[int, bool]]) -> None:
    wanted = max((number for number, _ in waiting.values()), default=-1)
    for rank in numbers.horizons:
        if last.get(rank, wanted) < wanted:
            del last[rank]


def _add_operation(operation: Operation, last: dict[int, int], waiting: dict[int, tuple[int, bool]]) -> None:
    rank = operation.rank
    if rank is None:
        return
    known = [n for n in (operation.last_enqueued, operation.number) if n is not None]
    if known and rank in last:
        last[rank] = max(last[rank], *known)
    elif known and operation.last_enqueued is not None:
        last[rank] = max(known)
    if operation.state == "timeout" and operation.number is not None and rank in last:
        waiting[rank] = max(waiting.get(rank, (-1, True)), (operation.number, True))


def _log_operations(
    operations: Iterable[Operation], groups: Sequence[GroupLanes]
) -> tuple[dict[int, list[Operation]], list[tuple[Communicator, list[Operation]]]]:
    """Log operations by the dumps' communicator of the same name, and those of communicators that no dump shows."""
    by_group: dict[int, list[Operation]] = defaultdict(list)
    alone: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    by_name: dict[str, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        by_name[group.comm.name].append(position)
    for operation in operations:
        comm = operation.comm
        if comm is None or operation.source != "log" or operation.rank is None or not comm.name:
            continue
        fitting = [
            position
            for position in by_name.get(comm.name, ())
            if operation.rank in groups[position].members and (not comm.desc or comm.desc == groups[position].comm.desc)
        ]
        if len(fitting) == 1:
            by_group[fitting[0]].append(operation)
        else:
            alone[comm.name, comm.desc].append(operation)
    rows = [(Communicator(name, desc), found) for (name, desc), found in sorted(alone.items())]
    return by_group, rows


def _from_logs(comm: Communicator, rows: list[Operation], topology: Membership | None) -> Progress | None:
    last: dict[int, int] = {}
    waiting: dict[int, tuple[int, bool]] = {}
    for operation in rows:
        _add_operation(operation, last, waiting)
    if not waiting:
        return None
    members = member_list(comm, min(last), (), topology)
    everyone = sorted({*members, *last}) if members else sorted(last)
    return Progress(
        f"{comm.label} ({NOT_IN_DUMPS})",
        tuple(_key(rank) for rank in everyone),
        {_key(rank): number for rank, number in last.items()},
        {_key(rank): number for rank, (number, _) in waiting.items()},
        open=not members,
    )


def _loose_waits(facts: Iterable[Fact]) -> Iterable[Wait]:
    for fact in facts:
        if fact.kind in ("missing", "waiting") and fact.rank is not None:
            label = fact.comm.label if fact.comm is not None else fact.format
            for rank in fact.ranks:
                if rank != fact.rank:
                    yield Wait(_key(fact.rank), _key(rank), label, fact.number if fact.number is not None else -1)


def _peer_waits(groups: Sequence[GroupLanes]) -> Iterable[Wait]:
    """A receive without a send, or the other way round, where both ranks are recorded from their start."""
    for group in groups:
        for rank, (dump, lane) in sorted(group.lanes.items()):
            for (op, sender, receiver), waiting in sorted(lane.pending_peers.items()):
                other = sender if op == "recv" else receiver
                if not waiting or group.open or other >= len(group.members):
                    continue
                peer = group.members[other]
                found = group.lanes.get(peer)
                if found is None or peer == rank or not (dump.from_start and found[0].from_start):
                    continue
                counterpart = ("send" if op == "recv" else "recv", sender, receiver)
                issued, answered = lane.sent[op, sender, receiver], found[1].sent.get(counterpart, 0)
                if answered < issued:
                    yield Wait(_key(rank), _key(peer), group.label, answered + 1)
