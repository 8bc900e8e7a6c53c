"""From operations in dumps and logs to those in the traces: by communicator and number, or by order from the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from divtrace.evidence.dump import Dump, Lane, Signature, elements
from divtrace.evidence.facts import Communicator as Named
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.naming import canonical_operation, group_name
from divtrace.topology import communicator_name
from divtrace.walk.collectives import Communicator, Operation
from divtrace.walk.world import WorldWalk

LOOK_BACK = 64
"""Operations in front of the last one that have to agree where numbers do not match."""


class TraceOperations:
    """The operations of one world's traces, to look up those that other evidence names."""

    def __init__(self, world: WorldWalk) -> None:
        """Index the operations that carry numbers."""
        self.ranks = frozenset(world.views)
        self._by_rank: dict[int, dict[Communicator, dict[int, Operation]]] = {}
        for rank, own in world.operations.items():
            lines = self._by_rank.setdefault(rank, {})
            for operation in own:
                if operation.counted:
                    lines.setdefault(operation.communicator, {})[operation.number] = operation
        self._pending: dict[int, list[Operation]] = {}
        for operation in world.waits.pending if world.waits else ():
            self._pending.setdefault(operation.rank, []).append(operation)

    def communicator(self, comm: Named, rank: int) -> Communicator | None:
        """The communicator of the traces that a dump or log means: by name, else by members; None if unclear."""
        known = list(self._by_rank.get(rank, ()))
        names = {communicator_name(text) for text in (comm.name, comm.desc, group_name(comm.desc)) if text}
        fitting = [one for one in known if one.name is not None and communicator_name(one.name) in names]
        if not fitting and comm.members:
            fitting = known
        if comm.members:
            fitting = [one for one in fitting if set(one.ranks) == set(comm.members)]
        return fitting[0] if len(fitting) == 1 else None

    def at(self, rank: int, communicator: Communicator, number: int) -> Operation | None:
        """The operation of this number."""
        return self.numbered(rank, communicator).get(number)

    def numbered(self, rank: int, communicator: Communicator) -> Mapping[int, Operation]:
        """The rank's operations on a communicator, by number."""
        return self._by_rank.get(rank, {}).get(communicator, {})

    def stuck(self, rank: int, communicator: Communicator | None = None) -> Operation | None:
        """The one operation that the rank is stuck in (on this communicator, if one is given)."""
        found = [one for one in self._pending.get(rank, ()) if communicator in (None, one.communicator)]
        return found[0] if len(found) == 1 else None

    def all_stuck(self) -> list[Operation]:
        """Every operation that some rank is stuck in, by rank."""
        return [one for _, own in sorted(self._pending.items()) for one in own]


@dataclass(slots=True)
class GroupJoin:
    """What of one communicator of the dumps was found in the traces."""

    by: Literal["number", "order"] | None
    """None: the traces have the communicator, and neither numbers nor order match."""
    operations: dict[int, Mapping[int, Operation]] = field(default_factory=dict)
    """By rank, by the dump's number."""

    def operation(self, rank: int, number: int) -> Operation | None:
        """The trace's operation."""
        return self.operations.get(rank, {}).get(number)


def fits(op: str | None, operation: Operation) -> bool:
    """True unless both name the operation and name another one."""
    recorded = operation.values.get("op")
    return op is None or recorded is None or canonical_operation(str(recorded)) == op


def join_groups(groups: Iterable[GroupLanes], traces: TraceOperations) -> dict[str, GroupJoin]:
    """By label of the dumps' communicators: what the traces have of them; communicators they lack have no entry."""
    found = {}
    for group in groups:
        communicators = {
            rank: communicator
            for rank in sorted(group.lanes)
            if (communicator := traces.communicator(group.comm, rank)) is not None
        }
        if communicators:
            found[group.label] = _join(group, communicators, traces)
    return found


def _join(group: GroupLanes, communicators: Mapping[int, Communicator], traces: TraceOperations) -> GroupJoin:
    by_number: dict[int, Mapping[int, Operation]] = {}
    agree = True
    for rank, communicator in communicators.items():
        dump, lane = group.lanes[rank]
        numbered = traces.numbered(rank, communicator)
        common = {number: numbered[number] for number in lane.numbers.keys() & numbered.keys()}
        agree = agree and all(_same(dump.signatures[lane.numbers[n]], one) for n, one in common.items())
        by_number[rank] = common
    if agree and any(by_number.values()):
        return GroupJoin("number", by_number)
    by_order: dict[int, Mapping[int, Operation]] = {
        rank: _from_the_end(*group.lanes[rank], traces, communicator, rank)
        for rank, communicator in communicators.items()
    }
    return GroupJoin("order", by_order) if any(by_order.values()) else GroupJoin(None)


def _same(signature: Signature, operation: Operation) -> bool:
    if not fits(signature.op, operation):
        return False
    numel = operation.values.get("numel")
    return numel is None or numel in (elements(signature.input_sizes), elements(signature.output_sizes))


def _from_the_end(
    dump: Dump, lane: Lane, traces: TraceOperations, communicator: Communicator, rank: int
) -> dict[int, Operation]:
    """Operations paired backwards from the one in which the rank is stuck, in the dump as in the trace.

    A broadcast inside a CUDA graph is recorded by the engine and not counted by the communicator.
    """
    stuck = traces.stuck(rank, communicator)
    last = max(lane.pending, default=lane.tail)
    if stuck is None or last is None or last not in lane.numbers:
        return {}
    own = sorted((number for number in lane.numbers if number <= last), reverse=True)[: LOOK_BACK + 1]
    numbered = traces.numbered(rank, communicator)
    recorded = [numbered[number] for number in sorted(numbered, reverse=True) if number <= stuck.number]
    paired: dict[int, Operation] = {}
    at = 0
    for number in own:
        signature = dump.signatures[lane.numbers[number]]
        while at < len(recorded) and recorded[at].values.get("op") == "broadcast" != signature.op:
            at += 1
        if at == len(recorded):
            break
        if not _same(signature, recorded[at]):
            return {}
        paired[number] = recorded[at]
        at += 1
    return paired
