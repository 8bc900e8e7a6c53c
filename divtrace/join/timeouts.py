"""Timeouts of dumps and logs, tied to the traces' operations where these have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from divtrace.evidence.report import EvidenceReport, EvidenceTimeout
from divtrace.join.operations import GroupJoin, TraceOperations, fits
from divtrace.walk.collectives import Operation
from divtrace.walk.precedence import TimedOut


@dataclass(frozen=True, slots=True)
class JoinedTimeouts:
    """The timeouts of dumps and logs, and how far the traces account for them."""

    timeouts: tuple[TimedOut, ...]
    notes: tuple[str, ...]
    """On those that were joined by order or not at all."""
    unplaced: bool
    """Of some timeout the traces do not have the operation on all its members: nothing there tells who did not come."""
    unplaced_ranks: frozenset[int]
    """Ranks that gave up waiting in such an operation."""


IN_GRAPHS = "broadcasts inside a CUDA graph do not count in SeqNum"


def joined_timeouts(
    report: EvidenceReport,
    world: int,
    traces: TraceOperations,
    joins: Mapping[str, GroupJoin],
    *,
    complete: bool = False,
) -> JoinedTimeouts:
    """The timeouts, joined to the traces' operations by number or order.

    Args:
        report: what the evidence shows.
        world: the world that it belongs to.
        traces: the operations of that world's traces.
        joins: the communicators of the dumps in the traces.
        complete: every rank of every world has a trace.
    """
    found, notes = [], []
    unplaced: list[tuple[int, ...]] = []
    floors = _Floors(report, joins)
    for timeout in report.timeouts:
        located: dict[int, Operation] = {}
        if not timeout.ranks and timeout.communicator is None and complete:
            # Somebody gave up waiting, and all ranks are seen: whoever it was is stuck in the trace.
            stuck = traces.all_stuck()
            if len({(one.communicator, one.number) for one in stuck}) == 1:
                located = {one.rank: one for one in stuck}
                notes.append(
                    f"A timeout in the log names no rank; it is taken for {stuck[0].communicator.name} "
                    f"#{stuck[0].number}, the only operation that a rank is stuck in."
                )
        for rank in timeout.ranks:
            operation, by_order = _locate(timeout, rank, traces, joins)
            if operation is not None:
                located[rank] = operation
                if by_order and timeout.number is not None:
                    notes.append(
                        f"{timeout.comm} #{timeout.number} of rank {rank} is operation {operation.number} of "
                        f"{operation.communicator.name} in the trace by order, not by number: {IN_GRAPHS}."
                    )
        if timeout.comm is not None and timeout.ranks and not located and floors.in_traces(timeout, traces):
            notes.append(
                f"{timeout.comm} #{timeout.number} matches no operation of the traces, neither by number nor by order: "
                f"{IN_GRAPHS}."
            )
        found.append(_timed_out(timeout, world, located, floors))
        members = {rank for operation in located.values() for rank in operation.communicator.ranks}
        if not located or not set(timeout.ranks) <= set(located) or not members <= traces.ranks:
            unplaced.append(timeout.ranks)
    return JoinedTimeouts(
        tuple(found),
        tuple(dict.fromkeys(notes)),
        bool(unplaced),
        frozenset(rank for ranks in unplaced for rank in ranks),
    )


def _locate(
    timeout: EvidenceTimeout, rank: int, traces: TraceOperations, joins: Mapping[str, GroupJoin]
) -> tuple[Operation | None, bool]:
    """The trace's operation on one rank, and whether it was found by order."""
    if timeout.source == "flight-recorder":
        join = joins.get(timeout.comm or "")
        operation = None if join is None or timeout.number is None else join.operation(rank, timeout.number)
        return operation, join is not None and join.by == "order"
    if timeout.communicator is None:
        return traces.stuck(rank), False
    communicator = traces.communicator(timeout.communicator, rank)
    if communicator is None:
        return None, False
    if timeout.number is not None:
        operation = traces.at(rank, communicator, timeout.number)
        if operation is not None and fits(timeout.op, operation):
            return operation, False
    operation = traces.stuck(rank, communicator)
    return (operation, True) if operation is not None and fits(timeout.op, operation) else (None, False)


class _Floors:
    """By rank, the operations of its dump that the trace has, to bound an operation that it has not."""

    def __init__(self, report: EvidenceReport, joins: Mapping[str, GroupJoin]) -> None:
        self._groups = {group.label: group for group in report.groups}
        self._joins = joins

    def in_traces(self, timeout: EvidenceTimeout, traces: TraceOperations) -> bool:
        """Whether the traces have the communicator at all."""
        comm = timeout.communicator
        return comm is not None and any(traces.communicator(comm, rank) for rank in timeout.ranks)

    def entry(self, timeout: EvidenceTimeout, rank: int) -> int | None:
        """The position of the operation in the rank's dump."""
        group = self._groups.get(timeout.comm or "")
        if group is None or rank not in group.lanes or timeout.number is None:
            return None
        return group.lanes[rank][1].position.get(timeout.number) or None

    def position(self, rank: int, entry: int) -> int | None:
        """The position in the trace before which the rank had not issued the operation at this place of its dump."""
        before = [
            operation.issue.pos
            for label, join in self._joins.items()
            if (lane := self._groups[label].lanes.get(rank)) is not None
            for number, operation in join.operations.get(rank, {}).items()
            if 0 < lane[1].position.get(number, 0) < entry
        ]
        return max(before) + 1 if before else None


def _timed_out(timeout: EvidenceTimeout, world: int, located: Mapping[int, Operation], floors: _Floors) -> TimedOut:
    entries = {rank: entry for rank in timeout.ranks if (entry := floors.entry(timeout, rank)) is not None}
    positions = {rank: operation.issue.pos for rank, operation in located.items()}
    for rank, entry in entries.items():
        bound = floors.position(rank, entry) if rank not in positions else None
        if bound is not None:
            positions[rank] = bound
    same = {(one.communicator.name, one.number) for one in located.values()}
    comm, number = same.pop() if len(same) == 1 else (timeout.comm, timeout.number)
    ops = [op for _, one in sorted(located.items()) if (op := one.values.get("op")) is not None]
    return TimedOut(
        world=world,
        ranks=timeout.ranks or tuple(sorted(located)),
        comm=comm,
        comm_seq=number,
        op=timeout.op or next(iter(ops), None),
        source=timeout.source,
        text=timeout.text,
        positions=positions,
        entries=entries,
    )


def by_source(timeouts: Iterable[TimedOut]) -> list[TimedOut]:
    """Those of traces first, then of dumps, then of logs; inside a source in the order in which they were found."""
    order = ("trace", "flight-recorder", "log")
    return sorted(timeouts, key=lambda timeout: order.index(timeout.source))
