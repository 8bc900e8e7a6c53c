"""Roles: which finding is the first, which it explains, which nothing earlier can explain (SPEC section 6)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from divtrace.walk.causes import Causes
from divtrace.walk.collectives import Communicator, Operation
from divtrace.walk.divergence import Divergence

WorldRank = tuple[int, int]


class Cause(msgspec.Struct, frozen=True):
    """Why a finding is a consequence."""

    of: Divergence
    link: Literal["derived", "after"]
    root: Divergence
    """The finding at the head of the chain, which nothing earlier explains."""


class Roles(msgspec.Struct):
    """The findings in causal order, with what explains each."""

    ordered: list[Divergence] = msgspec.field(default_factory=list)
    first: Divergence | None = None
    causes: dict[int, Cause] = msgspec.field(default_factory=dict)
    """By id() of the divergence; those without an entry are the first or independent."""
    by_clock: bool = False
    """Which of several origins is first is known from wall clocks only."""


class Timelines:
    """Every rank's operations per communicator by position, to ask which event of another replica came before."""

    def __init__(self, operations: Mapping[WorldRank, Sequence[Operation]]) -> None:
        """Index the operations."""
        self._lines: dict[WorldRank, dict[Communicator, tuple[list[int], list[int]]]] = {}
        for rank, own in operations.items():
            lines = self._lines.setdefault(rank, {})
            for operation in own:
                if operation.counted:
                    positions, numbers = lines.setdefault(operation.communicator, ([], []))
                    positions.append(operation.issue.pos)
                    numbers.append(operation.number)

    def precedes(self, earlier: Divergence, later: Divergence) -> bool:
        """True if a collective of both stands behind the one and before the other: nobody leaves it before all come."""
        if earlier.world != later.world or earlier.outside or later.outside:
            return False
        for rank in sorted(earlier.records):
            start = earlier.position_on(rank)
            lines = self._lines.get((earlier.world, rank), {})
            if start is not None and self._issues_after(rank, start, lines, later):
                return True
            for other in sorted(later.records):
                end = later.position_on(other)
                others = self._lines.get((later.world, other), {})
                if start is None or end is None or other == rank:
                    continue
                for communicator in lines.keys() & others.keys():
                    positions, numbers = lines[communicator]
                    after = bisect_right(positions, start)
                    other_positions, other_numbers = others[communicator]
                    before = bisect_left(other_positions, end) - 1
                    if after < len(numbers) and before >= 0 and numbers[after] <= other_numbers[before]:
                        return True
        return False

    @staticmethod
    def _issues_after(
        rank: int, start: int, lines: Mapping[Communicator, tuple[list[int], list[int]]], later: Divergence
    ) -> bool:
        """True if `later` is an operation of a communicator of this rank that it had not issued before `start`."""
        operation = later.communicator
        if operation is None or operation.comm_seq is None or rank not in operation.comm_ranks:
            return False
        positions, numbers = lines.get(Communicator(later.world, operation.comm, operation.comm_ranks), ([], []))
        issued = numbers[: bisect_left(positions, start)]
        return bool(numbers) and operation.comm_seq > max(issued, default=-1)


def assign(divergences: Sequence[Divergence], timelines: Timelines) -> Roles:
    """Find the first divergence, and the cause of every one that something earlier explains."""
    roles = Roles()
    heads = _heads(divergences)
    roots, explained = _roots(heads, timelines)
    if not roots:
        return roles
    roles.first = roots[0]
    roles.by_clock = len(roots) > 1
    roles.ordered = sorted(divergences, key=_total_order)
    searches: dict[int, Causes] = {}
    root_of: dict[int, Divergence] = {id(root): root for root in roots}
    for head, by in explained:
        root_of[id(head)] = root_of[id(by)]
        roles.causes[id(head)] = Cause(by, "after", root_of[id(by)])
    for divergence in roles.ordered:
        search = [searches.setdefault(replica, Causes()) for replica in sorted(divergence.orders)]
        if id(divergence) not in root_of:
            derived = next((cause for one in search if (cause := one.of(divergence)) is not None), None)
            head = _head_of(divergence, heads, root_of, roles.first)
            cause = derived if derived is not None else head
            root = root_of.get(id(cause), roles.first)
            root_of[id(divergence)] = root
            roles.causes[id(divergence)] = Cause(cause, "derived" if derived is not None else "after", root)
        for one in search:
            one.add(divergence)
    return roles


def _total_order(divergence: Divergence) -> tuple[object, ...]:
    """Causal order inside a replica; of two replicas only step and stage are held against each other."""
    order = divergence.orders[divergence.replica]
    home = (divergence.world, divergence.replica)
    return (order.step, order.stage, *home, *order[2:], str(divergence.key), str(divergence.communicator))


def _heads(divergences: Sequence[Divergence]) -> dict[int, Divergence]:
    """The least divergence of every replica."""
    heads: dict[int, Divergence] = {}
    for divergence in divergences:
        for replica, order in divergence.orders.items():
            if replica not in heads or order < heads[replica].orders[replica]:
                heads[replica] = divergence
    return heads


def _roots(
    heads: Mapping[int, Divergence], timelines: Timelines
) -> tuple[list[Divergence], list[tuple[Divergence, Divergence]]]:
    """Heads that nothing explains, the first one first; and the others, each with the head that explains it."""
    unique = list({id(heads[replica]): heads[replica] for replica in sorted(heads)}.values())
    by: dict[int, list[Divergence]] = {id(head): [] for head in unique}
    for head in unique:
        for other in unique:
            if other is not head and (_in_replica_before(other, head) or timelines.precedes(other, head)):
                by[id(head)].append(other)
    roots = [head for head in unique if not by[id(head)]] or unique[:1]
    roots.sort(key=lambda root: (_clock(root), root.world, root.replica))
    known = {id(root) for root in roots}
    explained: list[tuple[Divergence, Divergence]] = []
    waiting = [head for head in unique if id(head) not in known]
    while waiting:
        ready = [head for head in waiting if any(id(other) in known for other in by[id(head)])] or waiting[:1]
        for head in ready:
            cause = next((root for root in roots if root in by[id(head)]), None)
            cause = cause or next((other for other in by[id(head)] if id(other) in known), roots[0])
            explained.append((head, cause))
        known |= {id(head) for head in ready}
        waiting = [head for head in waiting if id(head) not in known]
    return roots, explained


def _in_replica_before(earlier: Divergence, later: Divergence) -> bool:
    return any(earlier.orders[r] < later.orders[r] for r in earlier.orders.keys() & later.orders.keys())


def _clock(divergence: Divergence) -> float:
    """Wall clock of the lowest rank's record; used only where nothing else orders two replicas."""
    times = [record.event.ts for _, record in sorted(divergence.records.items()) if record is not None]
    return float("inf") if not times or times[0] is None else times[0]


def _head_of(
    divergence: Divergence, heads: Mapping[int, Divergence], root_of: Mapping[int, Divergence], first: Divergence
) -> Divergence:
    """The head that explains a later divergence: the first finding if it stands before it in a replica of both."""
    before = [
        heads[replica]
        for replica in sorted(divergence.orders)
        if heads[replica].orders[replica] < divergence.orders[replica]
    ]
    if first in before:
        return first
    return next((head for head in before if root_of.get(id(head)) is first), before[0] if before else first)
