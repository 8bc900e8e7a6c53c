"""Collectives: records joined to operations, operations matched inside each communicator (SPEC section 5).

Numbers of different communicators are never compared. An operation without `comm_seq` is numbered by its order, which
means something only if both traces begin at their beginning, and only up to the first gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from divtrace.align.view import RankView
from divtrace.topology import Topology
from divtrace.trace.model import Record
from divtrace.walk.compare import Difference, differ, index_of

ORDER_FIELDS = ("op", "src", "site", "n")
SHAPE_FIELDS = ("numel", "shape", "dtype")
_PARTNERS = frozenset({"send", "recv"})


class Communicator(NamedTuple):
    """A communicator of one world: its name and its global ranks."""

    world: int
    name: str | None
    ranks: tuple[int, ...]


class Operation(msgspec.Struct, eq=False):
    """One operation of one rank; its state is that of its last record."""

    communicator: Communicator
    number: int
    counted: bool
    """The number is `comm_seq`; else it is the order of the records."""
    rank: int
    issue: Record
    last: Record
    values: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def state(self) -> str | None:
        """The last recorded state."""
        return None if self.values.get("state") is None else str(self.values["state"])

    def add(self, record: Record) -> None:
        """Take over what a record tells about this operation."""
        self.last = record
        for name in (*ORDER_FIELDS, *SHAPE_FIELDS, "state", "step"):
            value = getattr(record.event, name)
            if value is not None:
                self.values[name] = value


class OperationMatch(msgspec.Struct):
    """The operations that members of one communicator issued under one number."""

    communicator: Communicator
    number: int
    counted: bool
    by_rank: dict[int, Operation] = msgspec.field(default_factory=dict)

    @property
    def lowest(self) -> Operation:
        """The operation of the lowest rank that issued it."""
        return self.by_rank[min(self.by_rank)]


def operations_of(view: RankView, topology: Topology, world: int) -> list[Operation]:
    """The operations of one rank in the order in which it issued them; those of unknown communicators are left out."""
    found: list[Operation] = []
    counted: dict[tuple[Communicator, int], Operation] = {}
    ordered: Counter[Communicator] = Counter()
    still_open: dict[Communicator, list[Operation]] = {}
    first_gap = view.trace.gaps[0] if view.trace.gaps else view.length
    in_order = view.trace.starts_at_zero and not view.invisible_loss
    for record in view.records:
        event = record.event
        if event.stage != "collective":
            continue
        # Of a communicator whose members are not known, only what the rank itself says is used: no other rank is held
        # against it, but a timeout in it is a timeout.
        known = event.comm_ranks or (topology.members(event.comm, view.rank) if event.comm is not None else None)
        members = known or (view.rank,)
        communicator = Communicator(world, event.comm, tuple(sorted(members)))
        if event.comm_seq is not None:
            operation = counted.get((communicator, event.comm_seq))
            if operation is None:
                operation = Operation(communicator, event.comm_seq, True, view.rank, record, record)
                counted[communicator, event.comm_seq] = operation
                found.append(operation)
        else:
            if not in_order or record.pos >= first_gap:
                continue
            waiting = still_open.setdefault(communicator, [])
            operation = _continued(waiting, record)
            if operation is None:
                operation = Operation(communicator, ordered[communicator], False, view.rank, record, record)
                ordered[communicator] += 1
                waiting.append(operation)
                found.append(operation)
            if event.state in ("completed", "timeout"):
                waiting.remove(operation)
        operation.add(record)
    return found


def _continued(waiting: Iterable[Operation], record: Record) -> Operation | None:
    """The operation that a record without a number continues: an open one of the same op and site.

    Of several the oldest of its own step, since completions may not be recorded, else the oldest.
    """
    event = record.event
    if event.state in (None, "enqueued"):
        return None
    fitting = [one for one in waiting if one.values.get("op") == event.op and one.values.get("site") == event.site]
    return next((one for one in fitting if one.issue.event.step == event.step), next(iter(fitting), None))


def matches(operations: Mapping[int, list[Operation]]) -> list[OperationMatch]:
    """Operations matched by (communicator, number), in a total order."""
    found: dict[tuple[Communicator, bool, int], OperationMatch] = {}
    for rank in sorted(operations):
        for operation in operations[rank]:
            key = (operation.communicator, operation.counted, operation.number)
            match = found.get(key)
            if match is None:
                match = found[key] = OperationMatch(operation.communicator, operation.number, operation.counted)
            match.by_rank[rank] = operation
    return [
        found[key] for key in sorted(found, key=lambda key: (key[0].world, key[0].name or "", key[0].ranks, *key[1:]))
    ]


def mismatch(match: OperationMatch) -> list[Difference]:
    """The fields in which the members' operations differ: what and where first, then sizes."""
    if len(match.by_rank) < 2:
        return []
    found = []
    for name in (*ORDER_FIELDS, *SHAPE_FIELDS):
        values = {rank: operation.values.get(name) for rank, operation in sorted(match.by_rank.items())}
        if name == "n":
            values = {rank: value or 0 for rank, value in values.items()}
        values = {rank: value for rank, value in values.items() if value is not None}
        if len(values) < 2 or not differ(values):
            continue
        if name == "op" and set(values.values()) == _PARTNERS:
            continue
        order = name in ORDER_FIELDS
        rule = "collective-order" if order else "collective-shape"
        found.append(Difference(name, rule, "shape", index_of(values.values()), values, values))
    return found
