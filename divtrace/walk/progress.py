"""Who waits for whom at the end of a trace (SPEC section 6, "Pending", "Behind and ahead").

What a trace shows is brought into the form that `divtrace.waits` asks for. What it does not show is unobserved, never
missing: such a member is waited for, so that its peers are not called behind, but it is not called behind either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from divtrace.align.view import RankView
from divtrace.waits.model import Progress, RankKey, Wait
from divtrace.waits.relation import Crossing, who_waits
from divtrace.waits.relation import Waits as Relation
from divtrace.walk.collectives import Communicator, Operation


class Waits(msgspec.Struct, frozen=True):
    """The end of one world's run."""

    pending: tuple[Operation, ...]
    behind: tuple[int, ...]
    ahead: tuple[int, ...]
    cycles: tuple[tuple[int, ...], ...]
    """Crossed orders: all ranks that wait for one another; first a cycle in the order of the waiting, then the rest."""
    edges: tuple[Wait, ...] = ()
    """For each rank that waits for somebody who is behind, one such wait; of a crossed order those of its cycle."""


LastNumbers = Mapping[tuple[Communicator, int], int]
"""The last number that a rank issued on a communicator."""


def waits(
    views: Mapping[int, RankView],
    operations: Mapping[int, Sequence[Operation]],
    known: LastNumbers | None = None,
) -> Waits:
    """Pending operations of one world and what follows from them.

    Args:
        views: the ranks that have a trace.
        operations: their operations, or at least the last of each rank on each communicator.
        known: last numbers where not all operations are given.
    """
    last = _last_numbers(operations) | dict(known or {})
    pending = tuple(
        operation
        for rank in sorted(operations)
        for operation in operations[rank]
        if operation.counted and is_pending(operation, operations[rank], views[rank], last)
    )
    observed = {rank for _, rank in last} | {rank for rank in operations if operations[rank]}
    stuck: dict[Communicator, dict[int, int]] = {}
    for operation in pending:
        by_rank = stuck.setdefault(operation.communicator, {})
        by_rank[operation.rank] = max(operation.number, by_rank.get(operation.rank, operation.number))
    names = labels(stuck)
    progresses = [
        Progress(
            comm=names[communicator],
            members=tuple(_key(member) for member in communicator.ranks),
            last={
                _key(member): last.get((communicator, member), -1)
                for member in communicator.ranks
                if member in observed
            },
            pending={_key(rank): number for rank, number in sorted(by_rank.items())},
            traced=sum(member in views for member in communicator.ranks),
        )
        for communicator, by_rank in sorted(stuck.items(), key=lambda item: (item[0].name or "", item[0].ranks))
    ]
    return from_relation(who_waits(progresses), pending)


def _crossed(crossing: Crossing) -> tuple[int, ...]:
    cycle = [wait.waiter[1] for wait in crossing.cycle]
    return (*cycle, *(rank for _, rank in crossing.ranks if rank not in cycle))


def from_relation(relation: Relation, pending: tuple[Operation, ...] = ()) -> Waits:
    """The answer of the relation, for one world."""
    edges = [wait for stall in relation.stalls for wait in stall.waiters]
    edges += [wait for crossing in relation.crossings for wait in crossing.cycle]
    return Waits(
        pending=pending,
        behind=tuple(rank for _, rank in relation.behind),
        ahead=tuple(rank for _, rank in relation.ahead),
        cycles=tuple(_crossed(crossing) for crossing in relation.crossings),
        edges=tuple(edges),
    )


def labels(communicators: Iterable[Communicator]) -> dict[Communicator, str]:
    """How waits name communicators: by name, and by their ranks where several share a name or one has none."""
    known = list(communicators)
    taken = Counter(communicator.name for communicator in known)
    found = {}
    for communicator in known:
        plain = communicator.name if taken[communicator.name] == 1 else None
        found[communicator] = plain or f"{communicator.name or 'unnamed'} {list(communicator.ranks)}"
    return found


def _key(rank: int) -> RankKey:
    return (0, rank)


def is_pending(operation: Operation, own: Sequence[Operation], view: RankView, last: LastNumbers) -> bool:
    """True if the rank is stuck in this operation, as far as the trace tells."""
    if operation.state == "timeout":
        return True
    if operation.state == "completed" or operation is not own[-1] or view.closed:
        return False
    if view.last_model > operation.issue.pos:
        return False
    return all(
        last.get((operation.communicator, member), -1) <= operation.number for member in operation.communicator.ranks
    )


def _last_numbers(operations: Mapping[int, Iterable[Operation]]) -> dict[tuple[Communicator, int], int]:
    last: dict[tuple[Communicator, int], int] = {}
    for rank, own in operations.items():
        for operation in own:
            if operation.counted:
                key = (operation.communicator, rank)
                last[key] = max(operation.number, last.get(key, -1))
    return last
