"""Operations of NCCL's own log, brought together by communicator and compared like those of dumps."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from divtrace.evidence.compare import Mismatch, compare
from divtrace.evidence.dump import build_dump
from divtrace.evidence.dump_schema import Entry, Group, RawDump
from divtrace.evidence.facts import Communicator, Fact, Operation
from divtrace.evidence.findings import mismatch_finding
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.logs.nccl_info import FORMAT
from divtrace.evidence.report import EvidenceFinding


def with_shared_names(operations: Iterable[Operation], facts: Iterable[Fact]) -> list[Operation]:
    """The operations, those of NCCL's log under the id that all ranks of their communicator share.

    A pointer whose initialisation was not logged keeps its own name, which no other process has.
    """
    made: dict[tuple[str, str], list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.format == FORMAT and fact.comm is not None:
            made[fact.place.file, fact.comm.name].append(fact)
    found = []
    for operation in operations:
        if operation.format == FORMAT and operation.comm is not None and made:
            # A pointer may be given to another communicator later: the last one set up before the operation counts.
            line = operation.place.line or 0
            before = [
                f for f in made.get((operation.place.file, operation.comm.name), ()) if (f.place.line or 0) < line
            ]
            if before:
                fact = max(before, key=lambda f: f.place.line or 0)
                shared = fact.details.get("id")
                name = shared if isinstance(shared, str) else operation.comm.name
                operation = msgspec.structs.replace(
                    operation, comm=Communicator(name, "", "nccl"), group_rank=fact.group_rank
                )
        found.append(operation)
    return found


@dataclass(frozen=True, slots=True)
class LoggedOperations:
    """What NCCL's logs show. They tell what was issued and not what was done, so that nobody is called waiting."""

    findings: tuple[EvidenceFinding, ...]
    notes: tuple[str, ...]


def logged_operations(operations: Iterable[Operation]) -> LoggedOperations:
    """The mismatches of NCCL's logs, how far each rank came, and what cannot be compared.

    Compared are ranks whose global number is known, in communicators with a shared id that no send or recv used:
    these count on the same counter, once for each rank that takes part.
    """
    by_comm: dict[str, dict[int, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    nameless = unplaced = 0
    for operation in operations:
        if operation.format != FORMAT or operation.comm is None:
            continue
        if " " in operation.comm.name:
            nameless += 1
        elif operation.rank is None:
            unplaced += 1
        else:
            by_comm[operation.comm.name][operation.rank].append(operation)
    notes = []
    if nameless:
        notes.append(
            f"{nameless} operations of NCCL's log belong to communicators whose initialisation (`Init COMPLETE` with a "
            "commId) is not in the file; they are listed and not compared."
        )
    if unplaced:
        notes.append(f"{unplaced} operations of NCCL's log tell no global rank; they are listed and not compared.")
    groups = []
    for name, by_rank in sorted(by_comm.items()):
        rows = [row for own in by_rank.values() for row in own]
        if len(by_rank) < 2 or any(row.op in ("send", "recv") for row in rows):
            continue
        if len(rows) > len(by_rank) and not any(row.number for row in rows):
            notes.append(
                f"NCCL's log does not count the operations of communicator {name} (2.27 and later do not on one node); "
                "they are not compared."
            )
            continue
        groups.append(_group(name, by_rank))
        notes.append(_extent(name, by_rank))
    found = [_finding(mismatch, by_comm[mismatch.comm.comm.name]) for mismatch in compare(groups).mismatches]
    return LoggedOperations(tuple(found), tuple(notes))


def _finding(mismatch: Mismatch, by_rank: dict[int, list[Operation]]) -> EvidenceFinding:
    """The finding, with the lines of the log for the positions among a rank's operations."""
    finding = mismatch_finding(mismatch)
    where: dict[int, tuple[str, int | None]] = {}
    for rank, (_, position) in finding.where.items():
        place = by_rank[rank][(position or 1) - 1].place
        where[rank] = (place.file, place.line)
    return dataclasses.replace(finding, where=where)


def _extent(name: str, by_rank: dict[int, list[Operation]]) -> str:
    ends: dict[int, list[int]] = defaultdict(list)
    for rank, rows in sorted(by_rank.items()):
        ends[max(row.number or 0 for row in rows)].append(rank)
    parts = [
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} to #{number}"
        for number, ranks in sorted(ends.items())
    ]
    return f"NCCL's log shows operations of communicator {name} issued by {'; '.join(parts)}; it tells none completed."


def _group(name: str, by_rank: dict[int, list[Operation]]) -> GroupLanes:
    comm = Communicator(name, f"communicator {name}", "nccl")
    lanes = {}
    for rank, rows in sorted(by_rank.items()):
        dump = build_dump(_as_dump(name, rows), rows[0].place.file, rank)
        lanes[rank] = (dump, next(iter(dump.lanes.values())))
    return GroupLanes(comm, comm.label, lanes, tuple(sorted(lanes)), True)


def _as_dump(name: str, rows: Sequence[Operation]) -> RawDump:
    entries = [
        Entry(
            record_id=position,
            profiling_name=f"nccl:{row.op}",
            process_group=(name, f"communicator {name}"),
            collective_seq_id=row.number,
            input_sizes=((row.numel_in or 0,),),
            output_sizes=((row.numel_out or 0,),),
            input_dtypes=(row.dtype,) if row.dtype else (),
            # What was issued may be done or not; nothing is said to be pending.
            state="completed",
            time_created_ns=position,
        )
        for position, row in enumerate(rows)
    ]
    return RawDump("", {name: Group(name, f"communicator {name}")}, {}, entries, 0, "")
