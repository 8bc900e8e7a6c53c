"""The one table of collectives, from traces, dumps and logs, and each rank's last ones side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from divtrace.align.view import RankView
from divtrace.evidence.facts import Operation as Logged
from divtrace.evidence.report import EvidenceReport
from divtrace.trace.model import Record, Traces
from divtrace.walk.collectives import Operation, operations_of
from divtrace.walk.settings import GroupFlags, world_topology

COLLECTIVES_FORMAT = "divtrace.collectives/1"
Source = Literal["trace", "flight-recorder", "inspector", "ras", "log"]


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one rank, as one source recorded it; null is not recorded."""

    source: Source
    world: int
    rank: int | None
    comm: str | None
    comm_ranks: tuple[int, ...] | None
    """Global ranks; null where the source does not tell them."""
    comm_seq: int | None
    """The communicator's own counter on this rank: `comm_seq`, `collective_seq_id`, SeqNum, opCount."""
    op: str | None
    numel: int | None
    """Elements, of the input where there are two."""
    shape: tuple[int, ...] | None
    dtype: str | None
    state: str | None
    step: int | None
    ts: int | None
    """Unix ns on the rank's clock, for display only."""
    file: str
    line: int | None
    """Line, row or entry, from 1."""
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which operations to list; None takes all."""

    comms: Collection[str] | None = None
    ranks: Collection[int] | None = None
    numbers: Sequence[tuple[int, int]] | None = None
    """First and last number of each range."""

    def takes(self, one: Collective) -> bool:
        """Whether an operation is asked for."""
        if self.comms is not None and one.comm not in self.comms:
            return False
        if self.ranks is not None and one.rank not in self.ranks:
            return False
        number = one.comm_seq
        return self.numbers is None or (number is not None and any(a <= number <= b for a, b in self.numbers))


def of_traces(traces: Traces, flags: GroupFlags) -> Iterator[Collective]:
    """The operations of the traces, by rank, in the order in which each rank issued them."""
    for world in sorted({world for world, _ in traces.ranks}):
        here = {rank: trace for (w, rank), trace in traces.ranks.items() if w == world}
        topology = world_topology(sorted(here), {rank: tuple(trace.metas) for rank, trace in here.items()}, flags)
        for rank, trace in sorted(here.items()):
            known = operations_of(RankView(trace), topology, world)
            rows = {operation.issue.pos: _of_operation(operation) for operation in known}
            placed = {operation.communicator.name for operation in known}
            for record in trace.records:
                if record.event.stage == "collective" and record.event.comm not in placed:
                    rows[record.pos] = _of_record(record, world, rank)
            yield from (row for _, row in sorted(rows.items()))


def _of_operation(operation: Operation) -> Collective:
    values: dict[str, Any] = operation.values
    return Collective(
        source="trace",
        world=operation.communicator.world,
        rank=operation.rank,
        comm=operation.communicator.name,
        comm_ranks=operation.communicator.ranks,
        comm_seq=operation.number if operation.counted else None,
        op=values.get("op"),
        numel=values.get("numel"),
        shape=None if values.get("shape") is None else tuple(values["shape"]),
        dtype=values.get("dtype"),
        state=operation.state,
        step=values.get("step"),
        ts=operation.issue.event.ts,
        file=operation.issue.file,
        line=operation.issue.line,
    )


def _of_record(record: Record, world: int, rank: int) -> Collective:
    """A record of a communicator whose members nothing tells: its states stay apart."""
    event = record.event
    return Collective(
        source="trace",
        world=world,
        rank=rank,
        comm=event.comm,
        comm_ranks=None,
        comm_seq=event.comm_seq,
        op=event.op,
        numel=event.numel,
        shape=None if event.shape is None else tuple(event.shape),
        dtype=event.dtype,
        state=event.state,
        step=event.step,
        ts=event.ts,
        file=record.file,
        line=record.line,
    )


def of_evidence(report: EvidenceReport, world: int) -> Iterator[Collective]:
    """The operations of dumps by rank, then those of logs in the order of their files."""
    labels = {
        (rank, group.comm.name, group.comm.desc): (group.label, None if group.open else group.members)
        for group in report.groups
        for rank in group.lanes
    }
    for one in report.operations():
        yield _of_logged(one, world, labels)


def _of_logged(
    one: Logged, world: int, labels: dict[tuple[int, str, str], tuple[str, tuple[int, ...] | None]]
) -> Collective:
    comm = one.comm
    label, members = (None, None) if comm is None else (comm.label, comm.members or None)
    if comm is not None and one.rank is not None:
        label, members = labels.get((one.rank, comm.name, comm.desc), (label, members))
    sizes = one.input_sizes or one.output_sizes
    return Collective(
        source=one.source,
        world=world,
        rank=one.rank,
        comm=label,
        comm_ranks=members,
        comm_seq=one.number,
        op=one.op,
        numel=one.numel_in if one.numel_in is not None else one.numel_out,
        shape=sizes[0] if sizes is not None and len(sizes) == 1 else None,
        dtype=one.dtype,
        state=one.state,
        step=None,
        ts=one.created_ns,
        file=one.place.file,
        line=one.place.line,
        text=one.text or None,
    )


@dataclass(frozen=True, slots=True)
class Timeline:
    """The last operations of one source, a column each, and what each rank has of them."""

    source: Source
    columns: tuple[tuple[str, int], ...]
    """Communicator and number, in an order that no two ranks contradict unless their own orders cross."""
    rows: tuple[tuple[tuple[int, int], tuple[str | None, ...]], ...]
    """(world, rank), and for each column its state, `missing`, or None where nothing is recorded."""


def timelines(rows: Iterable[Collective], length: int = 12) -> list[Timeline]:
    """The last operations of every rank, aligned, one timeline for each source."""
    by_source: dict[Source, dict[tuple[int, int], list[Collective]]] = {}
    for one in rows:
        if one.rank is not None and one.comm is not None and one.comm_seq is not None:
            by_source.setdefault(one.source, {}).setdefault((one.world, one.rank), []).append(one)
    return [_timeline(source, ranks, length) for source, ranks in by_source.items()]


def _timeline(source: Source, ranks: dict[tuple[int, int], list[Collective]], length: int) -> Timeline:
    states: dict[tuple[int, int], dict[tuple[str, int], str | None]] = {}
    columns: list[tuple[str, int]] = []
    known: set[tuple[str, int]] = set()
    for rank, own in sorted(ranks.items()):
        states[rank] = {(one.comm or "", one.comm_seq or 0): one.state for one in own}
        after = -1
        for key in list(states[rank])[-length:]:
            if key in known:
                after = columns.index(key)
            else:
                after += 1
                columns.insert(after, key)
                known.add(key)
    columns = columns[-length:]
    last: dict[tuple[tuple[int, int], str], int] = {}
    for rank, own_states in states.items():
        for comm, number in own_states:
            last[rank, comm] = max(number, last.get((rank, comm), -1))
    rows = []
    for rank, own_states in sorted(states.items()):
        cells: list[str | None] = []
        for comm, number in columns:
            if (comm, number) in own_states:
                cells.append(own_states[comm, number] or "recorded")
            else:
                cells.append("missing" if last.get((rank, comm), number) < number else None)
        rows.append((rank, tuple(cells)))
    return Timeline(source, tuple(columns), tuple(rows))
