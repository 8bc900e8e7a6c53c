"""The whole walk: every world of an input, and the roles of all that was found."""

from __future__ import annotations

from dataclasses import dataclass

from divtrace.trace.model import RankTrace, Traces
from divtrace.walk.precedence import TimedOut, timed_out
from divtrace.walk.roles import Roles, Timelines, assign
from divtrace.walk.verdict import Outcome, overall
from divtrace.walk.world import GroupFlags, WorldWalk, walk_world


@dataclass(slots=True)
class Walk:
    """Everything that the report is built from."""

    traces: Traces
    worlds: list[WorldWalk]
    roles: Roles
    outcome: Outcome
    timeouts: list[TimedOut]


def walk(traces: Traces, flags: GroupFlags) -> Walk:
    """Walk all worlds.

    Raises:
        TopologyError: sizes do not divide or groups overlap.
    """
    by_world: dict[int, dict[int, RankTrace]] = {}
    for (world, rank), trace in traces.ranks.items():
        by_world.setdefault(world, {})[rank] = trace
    worlds: list[WorldWalk] = []
    replicas = 0
    for world in sorted(by_world):
        one = walk_world(world, by_world[world], flags, replicas)
        replicas += len(one.replicas)
        worlds.append(one)
    operations = {(one.world, rank): own for one in worlds for rank, own in one.operations.items()}
    divergences = [divergence for one in worlds for divergence in one.divergences]
    roles = assign(divergences, Timelines(operations))
    return Walk(traces, worlds, roles, overall(worlds, bool(divergences)), timed_out(worlds))
