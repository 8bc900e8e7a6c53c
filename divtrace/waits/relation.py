"""The wait-for relation over all communicators: who is behind, who is ahead, which orders are crossed.

A collective needs all its members, so a rank with a pending operation waits for every member that has not issued it.
The ranks on which everything rests are the sinks of that relation (the AND model of distributed deadlock detection).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from divtrace.waits.components import components
from divtrace.waits.model import Progress, RankKey, Wait


class Crossing(msgspec.Struct, frozen=True):
    """A crossed order: ranks that wait for each other, with the operation on every edge of the shortest cycle."""

    ranks: tuple[RankKey, ...]
    cycle: tuple[Wait, ...]
    """From the lowest rank around to itself."""


class Stall(msgspec.Struct, frozen=True):
    """One group of ranks that wait for nobody outside it, although others wait for them; each is a stall of its own."""

    awaited: tuple[RankKey, ...]
    waiters: tuple[Wait, ...]
    """For each rank that waits for them directly, one edge; none from inside the group."""
    crossing: Crossing | None


class Waits(msgspec.Struct, frozen=True):
    """The answer: nobody here is called a culprit, only waited for."""

    behind: tuple[RankKey, ...]
    ahead: tuple[RankKey, ...]
    stalls: tuple[Stall, ...]
    unobserved: tuple[Wait, ...]
    """For each (waiter, communicator), one edge to a member of which nothing is known there."""

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        """The crossed orders, by their lowest rank."""
        return tuple(stall.crossing for stall in self.stalls if stall.crossing is not None)


class _Graph:
    """Ranks as nodes, and for each communicator a chain of nodes that stand for "all members up to this number".

    The chain keeps the number of edges linear in the members where a direct graph would be quadratic.
    """

    def __init__(self, ranks: Sequence[RankKey]) -> None:
        self.node = {rank: node for node, rank in enumerate(ranks)}
        self.ranks = ranks
        self.successors: list[list[int]] = [[] for _ in ranks]
        self.opaque: set[int] = set()
        self.pending: dict[RankKey, list[tuple[Progress, list[tuple[int, RankKey]]]]] = {}

    def add(self, progress: Progress) -> None:
        ordered = sorted((progress.last[rank], rank) for rank in progress.members if rank in progress.last)
        numbers = [number for number, _ in ordered]
        unknown = [rank for rank in progress.members if rank not in progress.last]
        lower = {rank: bisect_left(numbers, number) for rank, number in progress.pending.items()}
        chain: list[int] = []
        for _, rank in ordered[: max(lower.values(), default=0)]:
            self.successors.append([self.node[rank], *chain[-1:]])
            chain.append(len(self.successors) - 1)
        for rank in sorted(progress.pending):
            self.pending.setdefault(rank, []).append((progress, ordered))
            if lower[rank]:
                self.successors[self.node[rank]].append(chain[lower[rank] - 1])
            if progress.open or (unknown and unknown != [rank]):
                self.opaque.add(self.node[rank])

    def waits_of(self, rank: RankKey) -> Iterable[Wait]:
        """All direct waits of one rank, by communicator, then the awaited ranks, those furthest behind first."""
        for progress, ordered in self.pending.get(rank, ()):
            number = progress.pending[rank]
            for last, other in ordered:
                if last >= number:
                    break
                yield Wait(rank, other, progress.comm, number)


def _ahead(progresses: Sequence[Progress]) -> tuple[RankKey, ...]:
    found: set[RankKey] = set()
    for progress in progresses:
        numbers = sorted(progress.last[rank] for rank in progress.members if rank in progress.last)
        for rank, number in progress.pending.items():
            issued = len(numbers) - bisect_left(numbers, number)
            if issued * 2 <= (len(numbers) if progress.traced is None else progress.traced):
                found.add(rank)
    return tuple(sorted(found))


def _shortest_cycle(graph: _Graph, members: set[RankKey]) -> tuple[Wait, ...]:
    """The shortest way from the lowest member back to itself inside a component; ties go to ranks further behind."""
    start = min(members)
    reached: dict[RankKey, Wait] = {}
    queue = deque([start])
    while queue:
        rank = queue.popleft()
        for wait in graph.waits_of(rank):
            if wait.awaited == start:
                path = [wait]
                while path[-1].waiter != start:
                    path.append(reached[path[-1].waiter])
                return tuple(reversed(path))
            if wait.awaited in members and wait.awaited not in reached:
                reached[wait.awaited] = wait
                queue.append(wait.awaited)
    return ()


def who_waits(progresses: Sequence[Progress], extra: Iterable[Wait] = ()) -> Waits:
    """Who waits for whom across all communicators.

    Args:
        progresses: one entry per communicator; the order decides only which of several equal edges is shown.
        extra: waits that do not follow from numbers, such as a receive that its sender never issued.

    Time and memory are linear in the members of all communicators, apart from one sort of each.
    """
    loose = list(extra)
    everyone = {rank for progress in progresses for rank in progress.members}
    everyone |= {rank for wait in loose for rank in (wait.waiter, wait.awaited)}
    ranks = sorted(everyone)
    graph = _Graph(ranks)
    for progress in progresses:
        graph.add(progress)
    for wait in loose:
        graph.successors[graph.node[wait.waiter]].append(graph.node[wait.awaited])

    component = components(graph.successors)
    count = max(component, default=-1) + 1
    members: list[list[RankKey]] = [[] for _ in range(count)]
    for node, rank in enumerate(ranks):
        members[component[node]].append(rank)
    leaves = [False] * count
    awaited = [False] * count
    for node, following in enumerate(graph.successors):
        for target in following:
            if component[target] != component[node]:
                leaves[component[node]] = True
                awaited[component[target]] = True
            elif target < len(ranks):
                awaited[component[target]] = True
    for node in graph.opaque:
        leaves[component[node]] = True

    stalls = []
    sinks = [c for c in range(count) if members[c] and awaited[c] and not leaves[c]]
    of_sink = {rank: c for c in sinks for rank in members[c]}
    waiters: dict[int, list[Wait]] = {c: [] for c in sinks}
    # One member per communicator and sink is enough: the one furthest behind.
    furthest: dict[str, dict[int, tuple[int, RankKey]]] = {}
    for progress in progresses:
        for rank in progress.members:
            if rank in of_sink and rank in progress.last:
                entry = (progress.last[rank], rank)
                by_sink = furthest.setdefault(progress.comm, {})
                by_sink[of_sink[rank]] = min(by_sink.get(of_sink[rank], entry), entry)
    for rank in sorted(graph.pending):
        seen: set[int] = set()
        for progress, _ in graph.pending[rank]:
            for sink, (last, other) in sorted(furthest.get(progress.comm, {}).items()):
                if last < progress.pending[rank] and sink != of_sink.get(rank) and sink not in seen:
                    seen.add(sink)
                    waiters[sink].append(Wait(rank, other, progress.comm, progress.pending[rank]))
    for wait in loose:
        its_sink = of_sink.get(wait.awaited)
        if its_sink is not None and its_sink != of_sink.get(wait.waiter):
            waiters[its_sink].append(wait)
    for c in sinks:
        crossing = None
        if len(members[c]) > 1:
            cycle = _shortest_cycle(graph, set(members[c]))
            crossing = Crossing(tuple(sorted(members[c])), cycle)
        stalls.append(Stall(tuple(sorted(members[c])), tuple(waiters[c]), crossing))
    stalls.sort(key=lambda stall: stall.awaited)

    unobserved = []
    for progress in progresses:
        unknown = sorted(rank for rank in progress.members if rank not in progress.last)
        for rank in sorted(progress.pending):
            hidden = next((candidate for candidate in unknown if candidate != rank), None)
            if hidden is not None:
                unobserved.append(Wait(rank, hidden, progress.comm, progress.pending[rank]))
    return Waits(
        behind=tuple(sorted(rank for stall in stalls for rank in stall.awaited)),
        ahead=_ahead(progresses),
        stalls=tuple(stalls),
        unobserved=tuple(unobserved),
    )
