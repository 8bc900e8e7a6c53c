"""Timeouts, and whether the first divergence came before them (SPEC section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from divtrace.report.model import Precedence
from divtrace.walk.collectives import Operation
from divtrace.walk.divergence import Divergence
from divtrace.walk.world import WorldWalk


class TimedOut(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that timed out, on the ranks that say so."""

    world: int
    ranks: tuple[int, ...]
    comm: str | None
    comm_seq: int | None
    op: str | None
    source: Literal["trace", "flight-recorder", "log"] = "trace"
    text: str | None = None
    """What the source says; of a trace the place says it."""
    operations: tuple[Operation, ...] = ()
    """Its records in the traces, where they have any."""
    positions: Mapping[int, int] = msgspec.field(default_factory=dict)
    """By rank: the position in its trace before which it was not issued; no entry where the trace does not tell."""
    entries: Mapping[int, int] = msgspec.field(default_factory=dict)
    """By rank: its position in the rank's dump."""


def timed_out(worlds: Iterable[WorldWalk]) -> list[TimedOut]:
    """Operations that timed out by the traces themselves, by world, communicator and number."""
    found = []
    for world in worlds:
        for match in world.matches:
            late = tuple(operation for _, operation in sorted(match.by_rank.items()) if operation.state == "timeout")
            if late:
                first = late[0]
                found.append(
                    TimedOut(
                        world=world.world,
                        ranks=tuple(one.rank for one in late),
                        comm=first.communicator.name,
                        comm_seq=first.number if first.counted else None,
                        op=first.values.get("op"),
                        operations=late,
                        positions={one.rank: one.issue.pos for one in late},
                    )
                )
    return found


def precedence(first: Divergence | None, timeouts: Iterable[TimedOut]) -> Precedence:
    """Whether every rank of the first divergence that timed out recorded it before it issued that operation.

    Where a source places its timeout on a rank, that counts; another that does not, such as the text that the same
    timeout left in a log, takes nothing from it.
    """
    known = list(timeouts)
    if not known:
        return "no timeout known"
    if first is None:
        return "not shown"
    shown = False
    for rank in first.ranks:
        here = [one for one in known if one.world == first.world and rank in one.ranks]
        places = [
            place for one in here if (place := (one.entries if first.outside else one.positions).get(rank)) is not None
        ]
        if not here:
            continue
        if not places or not all(_before(first, rank, place) for place in places):
            return "not shown"
        shown = True
    return "shown" if shown else "not shown"


def _before(first: Divergence, rank: int, place: int) -> bool:
    position = first.position_on(rank)
    return position is not None and (position < place or (rank in first.passed and position == place))
