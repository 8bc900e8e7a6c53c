"""From what lines say of themselves to global ranks, without inventing any.

Three things name a rank: a global number, engine coordinates, and a number inside a communicator. The last becomes a
global rank only where the members of that communicator are known, or where they follow from the numbers themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from divtrace.evidence.coordinates import Coordinates
from divtrace.evidence.dump import Dump
from divtrace.evidence.facts import Communicator, Fact, Operation
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.logs.nccl_info import FORMAT as NCCL_INFO
from divtrace.evidence.naming import group_name
from divtrace.evidence.unnamed import by_every_group, unnamed_groups

_T = TypeVar("_T", Operation, Fact)


class Membership(Protocol):
    """What is asked of a topology: the members of the communicator of this name that holds this rank."""

    def members(self, communicator: str, rank: int) -> tuple[int, ...] | None:
        """Global ranks in group order; None if not known."""


GLOO = "gloo"
"""Backend whose log lines name no group."""
PlaceRank = Callable[[Coordinates], int | None]
"""The global rank of engine coordinates, None where the sizes are not known."""


def with_own_rank(item: _T, file_rank: int | None, place_rank: PlaceRank) -> _T:
    """The row with its global rank: stated by the line, by its coordinates, or by the name of its file."""
    if item.rank is not None:
        return item
    rank = place_rank(item.coordinates) if item.coordinates is not None else None
    if rank is None and item.coordinates is None:
        # A file of one rank may still quote a parent process, which is no rank.
        rank = file_rank if item.process is None else None
    return item if rank is None else msgspec.structs.replace(item, rank=rank)


def joined_operations(operations: Iterable[Operation]) -> list[Operation]:
    """Watchdog lines of one work, put together: the first names op and sizes, the next the process group and counts.

    Both repeat in exception texts and stack traces; one row remains for each (rank, process group, number).
    """
    rows: list[Operation] = []
    by_work: dict[tuple[object, ...], int] = {}
    for operation in operations:
        who = (
            (operation.rank, operation.coordinates, operation.group_rank)
            if operation.rank is None
            else (operation.rank,)
        )
        key = (operation.format, who, operation.number, operation.place.file if who[0] is None else "")
        if operation.number is None or operation.format == NCCL_INFO:
            rows.append(operation)
            continue
        at = by_work.get(key)
        if at is not None and _compatible(rows[at], operation):
            rows[at] = _merged(rows[at], operation)
            continue
        by_work[key] = len(rows)
        rows.append(operation)
    return rows


def _compatible(first: Operation, second: Operation) -> bool:
    if first.comm is not None and second.comm is not None and first.comm.name != second.comm.name:
        return False
    if first.op is not None and second.op is not None and first.op != second.op:
        return False
    ranks = (first.group_rank, second.group_rank)
    # `[Rank 4]` of the first line and of the second are the same number inside the group, or one of them is unstated.
    return None in ranks or ranks[0] == ranks[1]


_FILLED = (
    "comm",
    "op",
    "numel_in",
    "numel_out",
    "last_enqueued",
    "last_completed",
    "timeout_ms",
    "ran_ms",
    "group_rank",
)


def _merged(first: Operation, second: Operation) -> Operation:
    missing = {n: getattr(second, n) for n in _FILLED if getattr(first, n) is None and getattr(second, n) is not None}
    return msgspec.structs.replace(first, **missing) if missing else first


def member_list(
    comm: Communicator | None, rank: int | None, groups: Sequence[GroupLanes], topology: Membership | None
) -> tuple[int, ...]:
    """Members of the communicator that a line names, from the dumps' groups or the topology; empty if not known."""
    if comm is None:
        return ()
    if comm.members:
        return comm.members
    for group in groups:
        same = comm.name and group.comm.name == comm.name and (not comm.desc or group.comm.desc == comm.desc)
        if same and not group.open and (rank is None or rank in group.members):
            return group.members
    if topology is not None and rank is not None and comm.desc:
        return topology.members(group_name(comm.desc), rank) or ()
    return ()


def groups_of_ranks(
    by_rank: Mapping[int, Dump], groups: Sequence[GroupLanes], world: Sequence[int]
) -> dict[int, tuple[tuple[int, ...], ...]]:
    """By rank the members of every gloo group that it used; without ranks of which not all groups are known."""
    found: dict[int, tuple[tuple[int, ...], ...]] = {}
    if set(world) == set(by_rank) and all(dump.helpers_complete for dump in by_rank.values()):
        unnamed = unnamed_groups({rank: dump.helpers for rank, dump in by_rank.items()})
        return {rank: members for rank, members in unnamed.items() if members is not None}
    for rank, dump in sorted(by_rank.items()):
        own = [group for group in groups if rank in group.lanes and group.comm.backend == GLOO]
        named = all(comm.name or comm.desc for comm in dump.comms)
        if own and named and dump.from_start and not any(group.open for group in own):
            found[rank] = tuple(group.members for group in own)
    return found


def with_peer_ranks(
    facts: Iterable[Fact],
    groups: Sequence[GroupLanes],
    topology: Membership | None,
    world: Sequence[int],
    used: Mapping[int, Sequence[tuple[int, ...]]] | None = None,
) -> list[Fact]:
    """The facts, with the ranks they name inside a communicator turned into global ranks where that is certain.

    Where members are not known: a sorted group in which index X is global rank X begins with ranks 0 … X, so that
    every lower index is certain as well. If lines of one format show an index that is not the rank, several groups
    are in play and each line speaks for itself only. Where a line of gloo names no group, an index that means one rank
    in every gloo group that its rank `used` is taken for that rank; the fact says so (`details["by_every_group"]`).
    """
    rows = list(facts)
    identity: dict[str, int] = defaultdict(lambda: -1)
    mixed: set[str] = set()
    for fact in rows:
        if (
            fact.rank is not None
            and fact.group_rank is not None
            and not member_list(fact.comm, fact.rank, groups, topology)
        ):
            if fact.rank == fact.group_rank:
                identity[fact.format] = max(identity[fact.format], fact.rank)
            else:
                mixed.add(fact.format)
    complete = bool(world) and tuple(world) == tuple(range(len(world)))
    result = []
    for fact in rows:
        if not fact.group_ranks or fact.ranks:
            result.append(fact)
            continue
        members = member_list(fact.comm, fact.rank, groups, topology)
        certain = fact.group_rank if fact.group_rank is not None and fact.rank == fact.group_rank else -1
        if fact.format not in mixed:
            certain = max(certain, identity[fact.format])
        found: list[int] = []
        for index in fact.group_ranks:
            if members:
                found += [members[index]] if index < len(members) else []
            elif index <= certain or (complete and certain >= 0 and index == len(world) - 1):
                found.append(index)
        if not found and fact.comm is None and fact.rank is not None and used and fact.format.startswith(GLOO):
            every = [
                by_every_group(index, fact.group_rank, fact.rank, used.get(fact.rank, ())) for index in fact.group_ranks
            ]
            found = [rank for rank in every if rank is not None]
            if found:
                fact = msgspec.structs.replace(fact, details={**fact.details, "by_every_group": True})
        result.append(msgspec.structs.replace(fact, ranks=tuple(found)) if found else fact)
    return result
