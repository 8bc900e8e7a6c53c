"""A divergence while it is being worked out: what differs or breaks at one event, before its role is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.align.groups import Order
from divtrace.align.view import EventKey
from divtrace.invariants.base import Break
from divtrace.trace.model import Record
from divtrace.walk.compare import Difference

if TYPE_CHECKING:
    from divtrace.rules.base import RuleClass

World = int
ReplicaIndex = int


class CommunicatorKey(msgspec.Struct, frozen=True):
    """One operation of a communicator."""

    comm: str | None
    comm_ranks: tuple[int, ...]
    comm_seq: int | None


class Divergence(msgspec.Struct, eq=False):
    """One event at which ranks disagree or an invariant breaks."""

    world: World
    replica: ReplicaIndex
    key: EventKey
    step: int | None
    rule: str
    also: tuple[str, ...]
    rule_class: RuleClass
    ranks: tuple[int, ...]
    odd_ranks: tuple[int, ...]
    records: dict[int, Record | None]
    """By rank, those of `ranks` and of everybody whose value is shown; None on a rank that lacks a skipped event."""
    orders: dict[ReplicaIndex, Order]
    """Where the event stands in each replica that it belongs to; several only for collectives."""
    field: str | None = None
    index: int | None = None
    values: dict[int, Any] = msgspec.field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    breaks: tuple[Break, ...] = ()
    communicator: CommunicatorKey | None = None
    source_rank: int | None = None
    """The recorded source of the sync, where odd ranks were told by it."""
    passed: dict[int, int] = msgspec.field(default_factory=dict)
    """For a skipped event: on each rank that lacks it, the position of the later record that shows it."""
    cycle: tuple[int, ...] = ()
    outside: bool = False
    """Dumps or logs show it, and its records' positions are theirs: not comparable with those of a trace."""
    remark: str = ""
    """A further sentence on what the evidence shows."""

    @property
    def rules(self) -> frozenset[str]:
        """All rules broken at this event."""
        return frozenset((self.rule, *self.also))

    def position_on(self, rank: int) -> int | None:
        """Where the event stands in the rank's own order; for a rank that skipped it, the record that went past it."""
        record = self.records.get(rank)
        if record is not None:
            return record.pos
        return self.passed.get(rank)
