"""Timeouts that the trace itself records, and whether the first divergence came before them (SPEC section 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from divtrace.report.model import Precedence
from divtrace.walk.collectives import Operation
from divtrace.walk.divergence import Divergence
from divtrace.walk.world import WorldWalk


@dataclass(frozen=True, slots=True)
class TimedOut:
    """One operation that timed out, on the ranks that say so."""

    world: int
    operations: tuple[Operation, ...]


def timed_out(worlds: Iterable[WorldWalk]) -> list[TimedOut]:
    """Timed-out operations, by world, communicator and number."""
    found = []
    for world in worlds:
        for match in world.matches:
            late = tuple(operation for _, operation in sorted(match.by_rank.items()) if operation.state == "timeout")
            if late:
                found.append(TimedOut(world.world, late))
    return found


def precedence(first: Divergence | None, timeouts: Iterable[TimedOut]) -> Precedence:
    """Whether every rank of the first divergence that timed out recorded it before it issued that operation."""
    known = list(timeouts)
    if not known:
        return "no timeout known"
    if first is None:
        return "not shown"
    shown = False
    for timeout in known:
        for operation in timeout.operations:
            if timeout.world != first.world or operation.rank not in first.ranks:
                continue
            position = first.position_on(operation.rank)
            if position is None or position >= operation.issue.pos:
                passed = operation.rank in first.passed and position == operation.issue.pos
                if not passed:
                    return "not shown"
            shown = True
    return "shown" if shown else "not shown"
