"""Which steps have to be loaded as a whole, because the walk looks at what surrounds a finding in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtrace.sieve.facts import ReplicaFacts
from divtrace.walk.judge import ReplicaWalk
from divtrace.walk.run import Walk
from divtrace.walk.world import WorldWalk

if TYPE_CHECKING:
    from divtrace.sieve.run import SievedWorld

_BEFORE = 2
"""Steps in front of a suspicion that are loaded with it: the last agreement and the order of events show in them."""
_BEHIND = 1
"""Steps behind it: the next collective, which orders it against events of other replicas, is issued there."""


def first_steps(facts: ReplicaFacts, *, is_clean: bool) -> set[int]:
    """Steps to load as a whole: irregular ones, those around the first suspicion, and those of the last collectives.

    None if the whole input `is_clean`, as far as the sieve can tell: nothing is ordered against collectives then.
    """
    if is_clean:
        return set()
    steps = set(facts.irregular)
    kept = [record.event for one in facts.ranks.values() for record in one.kept]
    steps.update(event.step for event in kept if event.stage == "collective" and event.step is not None)
    first = min((step for step in facts.suspects.values() if step is not None), default=None)
    if first is not None:
        steps.update(range(first - _BEFORE, first + _BEHIND + 1))
    return steps


def wants_more(result: Walk, worlds: dict[int, SievedWorld]) -> bool:
    """Have the surroundings of findings loaded that are not yet: steps of collectives, and of the first divergence."""
    more = False
    divergences = [one for world in result.worlds for one in world.divergences]
    are_placed = bool(result.timeouts) or any(_are_placed(world) for world in result.worlds)
    heads: dict[int, int] = {}
    named: dict[int, set[int]] = {}
    for divergence in divergences:
        for index, order in divergence.orders.items():
            if order.step in (float("inf"), -float("inf")):
                continue
            heads[index] = min(int(order.step), heads.get(index, int(order.step)))
            if divergence.outside:
                named.setdefault(index, set()).add(int(order.step))
    for world in result.worlds:
        sieved = worlds[world.world]
        for replica in world.replicas:
            steps = sieved.wanted_steps.get(replica.replica.ranks)
            if steps is None:
                continue
            needed = set(named.get(replica.index, ()))
            if replica.index in heads:
                needed.update(range(heads[replica.index] - _BEFORE, heads[replica.index] + _BEHIND + 1))
            if are_placed:
                needed |= _steps_of_collectives(sieved, replica)
            known_steps = {step for view in replica.views.values() for step in view.first_of_step}
            fresh = (needed & known_steps) - steps
            if fresh:
                steps |= fresh
                more = True
    return more


def _steps_of_collectives(sieved: SievedWorld, replica: ReplicaWalk) -> set[int]:
    """The steps of those that something is known of: the last ones, and those on which ranks may not agree."""
    facts = sieved.replicas[replica.replica.ranks]
    suspects = {(communicator.name, number) for communicator, number in sieved.operations.suspects}
    found: set[int] = set()
    for rank, view in replica.views.items():
        for record in view.records:
            event = record.event
            if event.stage != "collective" or event.step is None:
                continue
            if record.pos in facts.ranks[rank].keep or (event.comm, event.comm_seq) in suspects:
                found.add(event.step)
    return found


def _are_placed(world: WorldWalk) -> bool:
    """True if something of a world is ordered against its collectives."""
    return bool(world.divergences) or world.waits is None or bool(world.waits.pending or world.waits.cycles)
