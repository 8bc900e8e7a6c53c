"""Who waits for whom at the end of a trace (SPEC section 6, "Pending", "Behind and ahead").

A rank waits for a member that has not issued the operation it is stuck in. What the trace does not show is unobserved,
never missing: such a member is waited for, so that its peers are not called behind, but it is not called behind either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from divtrace.align.view import RankView
from divtrace.walk.collectives import Communicator, Operation

Edges = Mapping[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Waits:
    """The end of one world's run."""

    pending: tuple[Operation, ...]
    behind: tuple[int, ...]
    ahead: tuple[int, ...]
    cycles: tuple[tuple[int, ...], ...]
    """Crossed orders: ranks that wait for one another, each in the order of the waiting, from the lowest rank on."""
    edges: Edges
    unobserved: frozenset[int]
    """Members of pending operations that recorded no collective or left no trace."""


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
    pending = [
        operation
        for rank in sorted(operations)
        for operation in operations[rank]
        if operation.counted and is_pending(operation, operations[rank], views[rank], last)
    ]
    observed = {rank for _, rank in last} | {rank for rank in operations if operations[rank]}
    edges: dict[int, set[int]] = {}
    unobserved: set[int] = set()
    for operation in pending:
        for member in operation.communicator.ranks:
            if member == operation.rank:
                continue
            if member not in observed:
                unobserved.add(member)
                edges.setdefault(operation.rank, set()).add(member)
            elif last.get((operation.communicator, member), -1) < operation.number:
                edges.setdefault(operation.rank, set()).add(member)
    frozen = {rank: frozenset(targets) for rank, targets in edges.items()}
    sinks = sink_components(frozen)
    behind = sorted({rank for sink in sinks for rank in sink if rank not in unobserved})
    cycles = [_cycle(sink, frozen) for sink in sinks if len(sink) > 1]
    return Waits(
        pending=tuple(pending),
        behind=tuple(behind),
        ahead=_ahead(pending, views, last),
        cycles=tuple(sorted(cycles)),
        edges=frozen,
        unobserved=frozenset(unobserved),
    )


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


def _ahead(pending: Iterable[Operation], views: Mapping[int, RankView], last: LastNumbers) -> tuple[int, ...]:
    found = set()
    for operation in pending:
        traced = [member for member in operation.communicator.ranks if member in views]
        issued = [member for member in traced if last.get((operation.communicator, member), -1) >= operation.number]
        if 2 * len(issued) <= len(traced):
            found.add(operation.rank)
    return tuple(sorted(found))


def sink_components(edges: Edges) -> list[tuple[int, ...]]:
    """Strongly connected components that wait for nobody outside and that somebody waits for, sorted."""
    nodes = sorted(edges.keys() | {target for targets in edges.values() for target in targets})
    component = _components(nodes, edges)
    waited_for = {component[target] for targets in edges.values() for target in targets}
    leaving = {
        component[rank] for rank, targets in edges.items() for target in targets if component[target] != component[rank]
    }
    members: dict[int, list[int]] = {}
    for rank in nodes:
        members.setdefault(component[rank], []).append(rank)
    return sorted(tuple(ranks) for index, ranks in members.items() if index in waited_for and index not in leaving)


def _components(nodes: Sequence[int], edges: Edges) -> dict[int, int]:
    """Tarjan's algorithm without recursion, so that a thousand ranks do not overflow the stack."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target not in component:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    while True:
                        member = stack.pop()
                        component[member] = index[node]
                        if member == node:
                            break
    return component


def _cycle(sink: Sequence[int], edges: Edges) -> tuple[int, ...]:
    """A shortest cycle through the lowest rank of a component, in the order of the waiting."""
    inside = set(sink)
    start = min(sink)
    came_from: dict[int, int] = {}
    frontier = [start]
    while frontier:
        following = []
        for rank in frontier:
            for target in sorted(edges.get(rank, frozenset()) & inside):
                if target == start:
                    path = [rank]
                    while path[-1] != start:
                        path.append(came_from[path[-1]])
                    return tuple(reversed(path))
                if target not in came_from:
                    came_from[target] = rank
                    following.append(target)
        frontier = following
    return tuple(sink)
