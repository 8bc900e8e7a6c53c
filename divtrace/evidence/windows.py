"""What was observed of each rank: how far a dump reaches back, and where it ends too early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from divtrace.evidence.dump import Dump
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.naming import ROOTED


@dataclass(frozen=True, slots=True)
class Window:
    """The observation window of one rank."""

    rank: int
    file: str | None
    """None: the rank left no dump."""
    first_record: int | None = None
    last_record: int | None = None
    from_start: bool = False
    active_only: bool = False
    horizon: str | None = None
    """Why nothing can be said past the end of this dump; None where its end is the rank's own."""


@dataclass(frozen=True, slots=True)
class LastNumbers:
    """How far each rank came in each communicator, and which ranks' dumps end too early."""

    last: dict[str, dict[int, int]]
    """Communicator label to rank to last number; -1: observed, and none issued. No entry: unobserved."""
    horizons: dict[int, str]


def last_numbers(groups: Sequence[GroupLanes], by_rank: dict[int, Dump], ended: Iterable[int] = ()) -> LastNumbers:
    """The last number of every member of every communicator, from the entries or else from `pg_status`.

    Args:
        groups: the communicators.
        by_rank: one dump per rank.
        ended: ranks that are known to have failed or exited: their record ends because they did.
    """
    numbers: dict[str, dict[int, int]] = {}
    horizons: dict[int, list[str]] = defaultdict(list)
    dead = set(ended)
    for group in groups:
        peers = {lane.pg_id for _, lane in group.lanes.values()}
        agreed = peers.pop() if len(peers) == 1 else None
        countable = not group.point_to_point
        last: dict[int, int] = {}
        for rank in group.members:
            dump = by_rank.get(rank)
            if dump is None:
                continue
            number = _last_of(group, dump, rank, agreed, countable=countable)
            if number is not None:
                last[rank] = number
        numbers[group.label] = last
        for rank, number in last.items():
            if rank in dead:
                continue
            beyond = [
                (other, lane.passed, lane.passed_op)
                for other, (_, lane) in sorted(group.lanes.items())
                if other != rank and lane.passed > number
            ]
            if beyond:
                other, passed, op = max(beyond, key=lambda item: (item[1], -item[0]))
                unsure = " (which a rank may finish before the others arrive)" if op in ROOTED else ""
                horizons[rank].append(
                    f"the dump ends at {group.label} #{max(number, 0)}, "
                    f"but rank {other} completed {op} #{passed}{unsure}"
                )
    return LastNumbers(numbers, {rank: sorted(why)[0] for rank, why in sorted(horizons.items())})


def _last_of(group: GroupLanes, dump: Dump, rank: int, agreed: int | None, *, countable: bool) -> int | None:
    found = group.lanes.get(rank)
    if found is not None:
        lane = found[1]
        counted = dump.status.get(lane.pg_id, (-1,))[0] if countable and lane.pg_id is not None else -1
        return max(lane.last, counted)
    if dump.from_start:
        return -1
    # pg_id counts a process's own groups: used only where all peers agree on it and this rank has no other use for it.
    if agreed is None or not countable or any(lane.pg_id == agreed for lane in dump.lanes.values()):
        return None
    if not dump.status:
        return None
    return dump.status[agreed][0] if agreed in dump.status else -1
