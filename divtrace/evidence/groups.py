"""The communicators of a set of dumps: one per process group, with members as far as they can be known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from divtrace.evidence.dump import Dump, Lane, elements
from divtrace.evidence.facts import Communicator


@dataclass(slots=True)
class GroupLanes:
    """One communicator over all ranks that recorded it."""

    comm: Communicator
    label: str
    lanes: dict[int, tuple[Dump, Lane]]
    """By rank."""
    members: tuple[int, ...]
    """Global ranks in group order; the ranks that recorded it where nothing better is known."""
    open: bool
    """The members are not known in full."""

    @property
    def point_to_point(self) -> bool:
        """Whether send and recv run on it, which share its counters in `pg_status`."""
        return any(lane.point_to_point for _, lane in self.lanes.values())


@dataclass(slots=True)
class RankDumps:
    """The dumps by rank, and what was left aside."""

    by_rank: dict[int, Dump]
    unplaced: list[Dump] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    duplicates: int = 0


def one_dump_per_rank(dumps: Iterable[Dump]) -> RankDumps:
    """One dump per rank: the latest, with the window of earlier dumps of the same process in front of it.

    The same buffer as pickle and as JSON is one dump.
    """
    found = RankDumps({})
    by_rank: dict[int, list[Dump]] = defaultdict(list)
    for dump in sorted(dumps, key=lambda dump: dump.path):
        if dump.rank is None:
            found.unplaced.append(dump)
        else:
            by_rank[dump.rank].append(dump)
    for rank, candidates in sorted(by_rank.items()):
        candidates.sort(key=lambda dump: (dump.last_created, dump.last_record or -1, _settled(dump)))
        latest = candidates[-1]
        for earlier in reversed(candidates[:-1]):
            if _same_process(earlier, latest):
                found.duplicates += _merge(earlier, latest)
            else:
                found.notes.append(
                    f"{earlier.path}: rank {rank} has a later dump of another process, {latest.path}; "
                    "only the later one is compared."
                )
        found.by_rank[rank] = latest
    return found


def _settled(dump: Dump) -> int:
    return -sum(len(lane.pending) for lane in dump.lanes.values())


def _same_process(earlier: Dump, latest: Dump) -> bool:
    if not earlier.count or not latest.count:
        return True
    created = dict(zip(latest.columns[0], latest.columns[5], strict=True))
    shared = [(created[r], t) for r, t in zip(earlier.columns[0], earlier.columns[5], strict=True) if r in created]
    if shared:
        return all(a == b for a, b in shared)
    return (earlier.last_record or 0) < (latest.first_record or 0)


def _merge(earlier: Dump, latest: Dump) -> int:
    """Put the older part of the window in front; the number of entries that both dumps hold."""
    both = len(set(earlier.columns[0]) & set(latest.columns[0]))
    if earlier.first_record is None or latest.first_record is None or earlier.first_record >= latest.first_record:
        return both
    known = {signature: sid for sid, signature in enumerate(latest.signatures)}
    for comm, old in earlier.lanes.items():
        lane = latest.lanes.setdefault(comm, Lane(pg_id=old.pg_id, last=old.last, point_to_point=old.point_to_point))
        for number, sid in old.numbers.items():
            if number in lane.numbers:
                continue
            signature = earlier.signatures[sid]
            if signature not in known:
                known[signature] = len(latest.signatures)
                latest.signatures.append(signature)
            lane.numbers[number] = known[signature]
            lane.position[number] = 0
        if comm not in latest.comms:
            latest.comms.append(comm)
    if (earlier.last_record or 0) + 1 >= latest.first_record:
        latest.first_record = earlier.first_record
    return both


def _size_by_gather(lanes: Iterable[tuple[Dump, Lane]]) -> int | None:
    """The size of a group, from an operation whose output holds every member's input."""
    for dump, lane in lanes:
        for sid in set(lane.numbers.values()):
            what = dump.signatures[sid]
            small, large = elements(what.input_sizes), elements(what.output_sizes)
            if what.op == "reduce_scatter":
                small, large = large, small
            elif what.op != "all_gather":
                continue
            if len(what.input_sizes) == 1 and small > 0 and large > small and large % small == 0:
                return large // small
    return None


def collect_groups(
    by_rank: dict[int, Dump], known_ranks: Iterable[int] = ()
) -> tuple[list[GroupLanes], tuple[int, ...]]:
    """All communicators, and all ranks that are known to exist.

    gloo records no members: they are inferred from the ranks that show the group, from the size that an all_gather
    reveals and from the ranks that must exist; what stays unknown leaves the group open.

    Args:
        by_rank: one dump per rank.
        known_ranks: further ranks that other evidence names.
    """
    lanes: dict[tuple[str, str, str], dict[tuple[int, ...], dict[int, tuple[Dump, Lane]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for rank, dump in sorted(by_rank.items()):
        for comm, lane in dump.lanes.items():
            if comm.name or comm.desc:
                lanes[comm.name, comm.desc, comm.backend][comm.members][rank] = (dump, lane)
    everyone = set(by_rank) | set(known_ranks)
    listed = {rank for dump in by_rank.values() for ranks in dump.configured.values() for rank in ranks}
    everyone |= listed
    groups: list[GroupLanes] = []
    unlisted: list[GroupLanes] = []
    for (name, desc, backend), by_members in sorted(lanes.items()):
        nameless = by_members.pop((), {})
        for members in list(by_members):
            for rank in [rank for rank in nameless if rank in members]:
                by_members[members][rank] = nameless.pop(rank)
        for members, found in sorted(by_members.items()):
            groups.append(GroupLanes(Communicator(name, desc, backend, members), "", found, members, False))
        if nameless:
            group = GroupLanes(Communicator(name, desc, backend), "", nameless, tuple(sorted(nameless)), True)
            groups.append(group)
            unlisted.append(group)
    if not listed and everyone:
        everyone |= set(range(max(everyone) + 1))
    sizes = {id(group): _size_by_gather(group.lanes.values()) for group in unlisted}
    for group in unlisted:
        size = sizes[id(group)]
        if size is not None and _is_world(group.comm) and max(everyone) < size <= 1 << 20:
            everyone |= set(range(size))
    absent = everyone - set(by_rank)
    for group in unlisted:
        size = sizes[id(group)]
        if _is_world(group.comm) and (size is None or size == len(everyone)):
            group.members, group.open = tuple(sorted(everyone)), False
        elif size is not None and size == len(group.lanes):
            group.open = False
        elif size is not None and size - len(group.lanes) == len(absent):
            group.members, group.open = tuple(sorted({*group.lanes, *absent})), False
        else:
            group.open = bool(absent) or len(group.lanes) < 2
    for group in groups:
        group.comm = Communicator(
            group.comm.name, group.comm.desc, group.comm.backend, () if group.open else group.members
        )
    _label(groups)
    return groups, tuple(sorted(everyone))


def _is_world(comm: Communicator) -> bool:
    return comm.desc == "default_pg" or (comm.name == "0" and comm.desc in ("", "undefined"))


def _label(groups: list[GroupLanes]) -> None:
    for attempt in range(4):
        taken: dict[str, int] = defaultdict(int)
        for group in groups:
            comm = group.comm
            parts = [comm.label, f"#{comm.name}" if comm.name else "", comm.backend, str(list(group.members))]
            group.label = " ".join(part for part in parts[: attempt + 1] if part) if attempt else comm.label
            taken[group.label] += 1
        if all(count == 1 for count in taken.values()):
            return
