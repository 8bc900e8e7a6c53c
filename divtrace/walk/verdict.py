"""The six verdicts (SPEC section 6), for the whole input and for each replica."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from divtrace.align.view import RankView
from divtrace.events import Event
from divtrace.report.model import Verdict
from divtrace.walk.judge import ReplicaWalk
from divtrace.walk.world import Outside, WorldWalk, expected_ranks


class Outcome(msgspec.Struct, frozen=True):
    """A verdict and the ranks that it rests on."""

    verdict: Verdict
    ranks: tuple[tuple[int, int], ...] = ()
    """(world, rank): who raised, who is silent, or who left no trace."""
    lack: Literal["trace", "dump"] = "trace"
    """What ranks of an insufficient outcome left none of."""


def has_raised(view: RankView) -> bool:
    """True if the rank recorded an error of its own."""
    return any(
        record.event.error is not None
        or record.event.error_type is not None
        or (record.event.stage == "host" and record.event.site == "error")
        for record in view.records
    )


def absent_ranks(world: WorldWalk) -> tuple[int, ...]:
    """Ranks that the groups name and that left no trace; none where no rank left any, for dumps alone are no traces."""
    if not world.views:
        return ()
    return tuple(rank for rank in expected_ranks(world.topology) if rank not in world.views)


def compared_anything(world: WorldWalk, ranks: Collection[int] | None = None) -> bool:
    """True if some event or operation of these ranks (all if None) was held against another rank's."""
    for replica in world.replicas:
        if (ranks is None or set(replica.views) & set(ranks)) and (replica.agreed or replica.divergences):
            return True
    matched = world.matched | (world.outside.compared if world.outside else frozenset())
    return bool(matched if ranks is None else matched & set(ranks))


def overall(worlds: Iterable[WorldWalk], divergent: bool) -> Outcome:
    """The verdict on the whole input."""
    known = list(worlds)
    if divergent:
        return Outcome("divergence")
    for outcome in (_failed(known), _silent(known), _stalled(known), _insufficient(known)):
        if outcome is not None:
            return outcome
    return Outcome("clean")


def of_replica(world: WorldWalk, replica: ReplicaWalk) -> Verdict:
    """The verdict on one replica: the same questions, asked of its ranks only."""
    ranks = set(replica.replica.ranks)
    if any(replica.index in divergence.orders for divergence in world.divergences):
        return "divergence"
    if any(rank in ranks for _, rank in _raised_ranks(world)):
        return "rank_failed"
    behind = world.waits.behind if world.waits else ()
    edges = world.waits.edges if world.waits else ()
    waited_for = {wait.awaited[1] for wait in edges if wait.waiter[1] in ranks} - ranks
    if waited_for & {rank for _, rank in _raised_ranks(world)}:
        return "rank_failed"
    if any(rank in ranks or rank in waited_for for rank in behind):
        return "rank_silent"
    complete = ranks <= set(replica.views)
    if complete and len(ranks) > 1 and compared_anything(world, ranks) and _stopped_together(replica):
        return "uniform_stall"
    outside = world.outside or Outside()
    if outside.stalled:
        return "uniform_stall"
    unexplained = bool(outside.timed_out & ranks) or (outside.undecided and not world.views)
    if not compared_anything(world, ranks) or _waits_for_absent(world, ranks) or unexplained:
        return "insufficient"
    return "clean"


def _raised_ranks(world: WorldWalk) -> list[tuple[int, int]]:
    """Ranks that peers wait for and that raised; an error of a rank that is itself stuck is the timeout."""
    if world.waits is None:
        return []
    stuck = {operation.rank for operation in world.waits.pending}
    behind = set(world.waits.behind)
    raised = {rank for rank in behind if rank in world.views and has_raised(world.views[rank])}
    if world.outside is not None:
        raised |= world.outside.failing & behind
        # Who issued all that its peers are stuck in has not failed before it, whatever its log says.
        passed = {rank for rank, own in world.operations.items() if own} if stuck else set()
        raised |= world.outside.failed - (passed - behind)
    return [(world.world, rank) for rank in sorted(raised - stuck)]


def _failed(worlds: Iterable[WorldWalk]) -> Outcome | None:
    ranks = tuple(rank for world in worlds for rank in _raised_ranks(world))
    return Outcome("rank_failed", ranks) if ranks else None


def _silent(worlds: Iterable[WorldWalk]) -> Outcome | None:
    ranks = tuple((world.world, rank) for world in worlds if world.waits for rank in world.waits.behind)
    return Outcome("rank_silent", ranks) if ranks else None


def _stalled(worlds: list[WorldWalk]) -> Outcome | None:
    if worlds and all(world.outside is not None and world.outside.stalled for world in worlds):
        return Outcome("uniform_stall")
    if any(absent_ranks(world) for world in worlds) or sum(len(world.views) for world in worlds) < 2:
        return None
    if not any(compared_anything(world) for world in worlds):
        return None
    views = [view for world in worlds for view in world.views.values()]
    if not (all(not view.closed for view in views) or all(has_raised(view) for view in views)):
        return None
    if all(_same_place(replica) for world in worlds for replica in world.replicas):
        return Outcome("uniform_stall")
    return None


def _stopped_together(replica: ReplicaWalk) -> bool:
    views = list(replica.views.values())
    ended = all(not view.closed for view in views) or all(has_raised(view) for view in views)
    return ended and _same_place(replica)


def _same_place(replica: ReplicaWalk) -> bool:
    """True if the last model event or operation of all ranks of the replica has one key."""
    places = {_last_place(view) for view in replica.views.values()}
    numbers: dict[object, set[int | None]] = {}
    for view in replica.views.values():
        event = _last_event(view)
        if event is not None and event.stage == "collective":
            # Numbers of different communicators, such as those of two attn_tp groups, are never compared.
            numbers.setdefault((event.comm, tuple(event.comm_ranks or ())), set()).add(event.comm_seq)
    return len(places) <= 1 and all(len(known) == 1 for known in numbers.values())


def _last_event(view: RankView) -> Event | None:
    """The last model event or operation of a rank."""
    return next((record.event for record in reversed(view.records) if record.event.stage != "host"), None)


def _last_place(view: RankView) -> object:
    for record, key in zip(reversed(view.records), reversed(view.keys), strict=True):
        event = record.event
        if key is not None:
            return key
        if event.stage == "collective":
            return (event.comm, event.step, event.site, event.n or 0)
    return None


def _waits_for_absent(world: WorldWalk, ranks: Collection[int] | None = None) -> bool:
    if world.waits is None:
        return False
    return any(
        member not in world.views
        for operation in world.waits.pending
        if ranks is None or operation.rank in ranks
        for member in operation.communicator.ranks
    )


def _insufficient(worlds: list[WorldWalk]) -> Outcome | None:
    nothing = not any(compared_anything(world) for world in worlds)
    waiting = any(_waits_for_absent(world) for world in worlds)
    outsides = [world.outside for world in worlds if world.outside is not None]
    unexplained = any(outside.undecided or outside.timeout_known for outside in outsides)
    if not nothing and not waiting and not unexplained:
        return None
    absent = [(world.world, rank) for world in worlds for rank in absent_ranks(world)]
    if not absent and not any(world.views for world in worlds):
        without = [(world.world, rank) for world in worlds if world.outside for rank in world.outside.absent]
        return Outcome("insufficient", tuple(without), "dump")
    return Outcome("insufficient", tuple(absent))
