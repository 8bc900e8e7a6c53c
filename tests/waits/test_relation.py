"""The wait-for relation against its definition, on random jobs."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from divtrace.waits import Progress, Wait, find_shift, who_waits
from divtrace.waits.components import components
from divtrace.waits.mismatch import odd_ranks


def key(rank: int) -> tuple[int, int]:
    return (0, rank)


@st.composite
def jobs(draw: st.DrawFn) -> list[Progress]:
    ranks = draw(st.integers(2, 7))
    progresses = []
    for position in range(draw(st.integers(1, 4))):
        members = sorted(draw(st.sets(st.integers(0, ranks - 1), min_size=1)))
        last = {key(r): draw(st.integers(-1, 4)) for r in members if draw(st.integers(0, 9)) > 0}
        pending = {r: n for r, n in last.items() if n >= 0 and draw(st.booleans())}
        open_ = draw(st.integers(0, 9)) == 0
        progresses.append(Progress(f"c{position}", tuple(map(key, members)), last, pending, open=open_))
    return progresses


def by_definition(progresses: list[Progress]) -> tuple[set[tuple[int, int]], set[frozenset[tuple[int, int]]]]:
    """Sinks of the relation written out edge by edge, and those of two ranks or more."""
    edges: dict[tuple[int, int], set[tuple[int, int]]] = {}
    blind = set()
    for progress in progresses:
        for waiter, number in progress.pending.items():
            if progress.open or any(m not in progress.last for m in progress.members if m != waiter):
                blind.add(waiter)
            edges.setdefault(waiter, set()).update(m for m, n in progress.last.items() if n < number)
    ranks = {m for p in progresses for m in p.members}

    def reach(start: tuple[int, int]) -> set[tuple[int, int]]:
        seen: set[tuple[int, int]] = set()
        todo = [start]
        while todo:
            for other in edges.get(todo.pop(), set()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen

    reachable = {rank: reach(rank) for rank in ranks}
    awaited = {other for others in edges.values() for other in others}
    sinks = {
        rank
        for rank in awaited
        if all(rank in reachable[other] for other in reachable[rank]) and not (({rank} | reachable[rank]) & blind)
    }
    crossed = {frozenset({rank} | reachable[rank]) for rank in sinks if reachable[rank]}
    return sinks, crossed


@given(jobs())
def test_behind_and_crossings_are_the_sinks(progresses: list[Progress]) -> None:
    waits = who_waits(progresses)
    sinks, crossed = by_definition(progresses)
    assert set(waits.behind) == sinks
    assert {frozenset(crossing.ranks) for crossing in waits.crossings} == crossed
    for crossing in waits.crossings:
        cycle = crossing.cycle
        assert cycle[0].waiter == min(crossing.ranks)
        assert all(a.awaited == b.waiter for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        for wait in cycle:
            progress = next(p for p in progresses if p.comm == wait.comm)
            assert progress.pending[wait.waiter] == wait.number > progress.last[wait.awaited]


@given(jobs(), st.randoms(use_true_random=False))
def test_the_order_of_communicators_and_ranks_does_not_matter(
    progresses: list[Progress], chance: random.Random
) -> None:
    shuffled = []
    for progress in progresses:
        last, pending = list(progress.last.items()), list(progress.pending.items())
        chance.shuffle(last)
        chance.shuffle(pending)
        shuffled.append(Progress(progress.comm, progress.members, dict(last), dict(pending), open=progress.open))
    assert who_waits(shuffled) == who_waits(progresses)
    chance.shuffle(shuffled)
    again = who_waits(shuffled)
    assert (again.behind, again.ahead) == (who_waits(progresses).behind, who_waits(progresses).ahead)


@given(jobs())
def test_ahead_has_no_strict_majority(progresses: list[Progress]) -> None:
    expected = set()
    for progress in progresses:
        for rank, number in progress.pending.items():
            issued = sum(last >= number for last in progress.last.values())
            if 2 * issued <= len(progress.last):
                expected.add(rank)
    assert set(who_waits(progresses).ahead) == expected


def test_every_waiter_of_a_stall_is_named_once() -> None:
    progress = Progress(
        "tp", tuple(map(key, range(4))), {key(r): 5 - (r == 2) for r in range(4)}, {key(0): 5, key(3): 5}
    )
    (stall,) = who_waits([progress]).stalls
    assert stall.awaited == (key(2),)
    assert stall.waiters == (Wait(key(0), key(2), "tp", 5), Wait(key(3), key(2), "tp", 5))


def test_loose_waits_join_the_relation() -> None:
    waits = who_waits([], [Wait(key(2), key(0), "barrier", -1), Wait(key(0), key(1), "barrier", -1)])
    assert waits.behind == (key(1),)


def test_a_long_chain_needs_no_recursion() -> None:
    size = 50_000
    found = components([[node + 1] if node + 1 < size else [] for node in range(size)])
    assert len(set(found)) == size
    assert len(set(components([[(node + 1) % size] for node in range(size)]))) == 1


def test_a_communicator_of_many_ranks_stays_linear() -> None:
    ranks = [key(r) for r in range(20_000)]
    progress = Progress("world", tuple(ranks), {r: r[1] for r in ranks}, {r: r[1] for r in ranks})
    waits = who_waits([progress])
    assert waits.behind == (key(0),)


def test_odd_needs_a_strict_majority() -> None:
    assert odd_ranks({key(0): "a", key(1): "a", key(2): "b"}) == (key(2),)
    assert odd_ranks({key(0): "a", key(1): "b"}) == ()
    assert odd_ranks({key(0): "a", key(1): "a", key(2): "b", key(3): "c"}) == ()


def test_a_shift_must_fit_everything_behind_it() -> None:
    reference = dict(enumerate([1, 2, 3, 4, 5, 6, 7]))
    lacking = dict(enumerate([1, 2, 4, 5, 6, 7]))
    shift = find_shift(lacking, reference, 2)
    assert shift is not None
    assert (shift.kind, shift.earliest, shift.latest, shift.agreeing) == ("missing", 2, 2, 4)
    assert find_shift(lacking | {4: 9}, reference, 2) is None
    assert find_shift({2: 9}, reference, 2) is None
