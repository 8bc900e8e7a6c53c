"""Members of process groups that dumps do not name.

Under `TORCH_DISTRIBUTED_DEBUG=DETAIL` every entry has an empty process group. What is left is what the wrapper itself
does: before each operation it gathers, on a helper group of the same members, one number and then the operation's
fingerprint from everybody. The output of these gathers tells how many members there are, and a rank that went on
behind one shows that all members had come that far.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from divtrace.evidence.dump_schema import Entry

MAXIMUM_LANES = 4096
"""Helper groups of one size that are matched with each other; the search is quadratic."""


@dataclass(frozen=True, slots=True)
class HelperLane:
    """The fingerprint gathers of one process group on one rank."""

    size: int
    """Members of the group."""
    widths: Mapping[int, int]
    """Length of what each member gave, by the number of the gather."""
    last: int
    passed: int
    """The highest number behind which the rank went on: all members had issued it."""


def helper_lanes(entries: Sequence[Entry]) -> tuple[tuple[HelperLane, ...], bool]:
    """The helper groups of one dump, and whether every unnamed operation follows a gather on one of them.

    Only then do the helper groups stand for all groups that the rank used.
    """
    nameless: dict[int, list[tuple[int, Entry]]] = defaultdict(list)
    ends: dict[object, int] = {}
    for entry in entries:
        ends[entry.thread_id] = entry.record_id
        if entry.process_group == ("", "") and entry.pg_id is not None and entry.collective_seq_id is not None:
            nameless[entry.pg_id].append((entry.collective_seq_id, entry))
    sizes = {pg_id: size for pg_id, rows in nameless.items() if (size := _size(rows)) is not None}
    found = []
    for pg_id, size in sorted(sizes.items()):
        rows = nameless[pg_id]
        passed = [number for number, row in rows if row.record_id < ends[row.thread_id]]
        widths = {number: row.input_sizes[0][0] for number, row in rows}
        found.append(HelperLane(size, widths, max(widths), max(passed, default=-1)))
    guarded = all(first.pg_id in sizes or second.pg_id in sizes for first, second in pairwise(entries))
    return tuple(found), guarded and bool(entries) and entries[0].pg_id in sizes


def _size(rows: Sequence[tuple[int, Entry]]) -> int | None:
    """The number of members, if all entries are the wrapper's: gathers of one number and of a fingerprint in turn."""
    sizes = set()
    for position, (_, row) in enumerate(rows):
        given, taken = row.input_sizes, row.output_sizes
        if not row.profiling_name.endswith(":all_gather") or len(given) != 1 or len(taken) != 1:
            return None
        if len(given[0]) != 1 or taken[0][1:] != given[0] or (position % 2 == 0) != (given[0] == (1,)):
            return None
        sizes.add(taken[0][0])
    return sizes.pop() if len(sizes) == 1 else None


def unnamed_groups(lanes_of: Mapping[int, Sequence[HelperLane]]) -> dict[int, tuple[tuple[int, ...], ...] | None]:
    """For every rank the members of its unnamed groups; None where those of one are not known.

    Args:
        lanes_of: by rank, the helper lanes of its dump, for all ranks that exist.

    A rank is no member where the record speaks against it: one of the two went on behind a gather that the other had
    not issued, or both gathered something else under one number. Members are known if no choice is left. This takes
    the end of each dump for the rank's own: a dump older than its peers' speaks against members it has.
    """
    by_size: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for rank, lanes in sorted(lanes_of.items()):
        for position, lane in enumerate(lanes):
            by_size[lane.size].append((rank, position))
    members: dict[tuple[int, int], tuple[int, ...]] = {}
    for size, places in by_size.items():
        if size <= len(lanes_of) and len(places) <= MAXIMUM_LANES:
            members |= _matched(size, {place: lanes_of[place[0]][place[1]] for place in places})
    found: dict[int, tuple[tuple[int, ...], ...] | None] = {}
    for rank, lanes in lanes_of.items():
        own = [members.get((rank, position)) for position in range(len(lanes))]
        known = tuple(ranks for ranks in own if ranks is not None)
        found[rank] = known if known and len(known) == len(own) else None
    return found


def _matched(size: int, lanes: Mapping[tuple[int, int], HelperLane]) -> dict[tuple[int, int], tuple[int, ...]]:
    candidates = {
        place: {other for other, its in lanes.items() if other[0] != place[0] and _may_belong(lane, its)}
        for place, lane in lanes.items()
    }
    members: dict[tuple[int, int], tuple[int, ...]] = {}
    changed = True
    while changed:
        changed = False
        for place, others in candidates.items():
            if place in members or len(others) != size - 1:
                continue
            group = {place, *others}
            if any(one in members or not group - {one} <= candidates[one] for one in others):
                continue
            for one in group:
                members[one] = tuple(sorted(rank for rank, _ in group))
            for one, its in candidates.items():
                if one not in group:
                    its -= group
            changed = True
    return members


def _may_belong(first: HelperLane, second: HelperLane) -> bool:
    if first.passed > second.last or second.passed > first.last:
        return False
    agreed = min(first.passed, second.passed)
    return all(second.widths.get(n, width) == width for n, width in first.widths.items() if n <= agreed)


def by_every_group(index: int, own: int | None, rank: int, groups: Iterable[tuple[int, ...]]) -> int | None:
    """The global rank that has the number `index` in every group of `rank`; None if they do not agree.

    Args:
        index: a number inside one of the groups.
        own: the number of `rank` itself in that group, where the line tells it.
        rank: the rank whose line it is.
        groups: the members of all groups that the rank uses, in group order.
    """
    fitting = [group for group in groups if index < len(group) and (own is None or group[own : own + 1] == (rank,))]
    found = {group[index] for group in fitting}
    return found.pop() if len(found) == 1 else None
