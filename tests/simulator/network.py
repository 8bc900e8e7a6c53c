"""Collectives between simulated ranks: they pair by communicator and number, and wedge when they do not fit."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Operation:
    """One operation as one rank issues it."""

    comm: str
    comm_ranks: tuple[int, ...]
    op: str
    site: str
    step: int
    numel: int
    src: int | None = None
    payload: Any = None
    dummy: bool = False
    number: int = -1
    """`comm_seq`, given by the issuing rank's own counter."""
    time: int = 0

    def fits(self, other: Operation) -> bool:
        """Whether the transport would pair the two: same place in the same communicator, same kind, same size."""
        kinds = {self.op, other.op}
        mine = (self.comm, self.comm_ranks, self.number, self.site, self.src, self.numel)
        theirs = (other.comm, other.comm_ranks, other.number, other.site, other.src, other.numel)
        return mine == theirs and (len(kinds) == 1 or kinds == {"send", "recv"})


@dataclass(frozen=True, slots=True)
class Delivery:
    """What every member put in, by rank, and when the last one came."""

    values: dict[int, Any]
    time: int


RankProgram = Generator[Operation, Delivery, None]


def run_programs(programs: dict[int, RankProgram]) -> dict[int, Operation]:
    """Runs the ranks until all are done or all wait. Returns, by rank, the operations that never completed."""
    waiting: dict[int, Operation] = {}

    def resume(rank: int, delivery: Delivery | None) -> None:
        program = programs[rank]
        try:
            waiting[rank] = next(program) if delivery is None else program.send(delivery)
        except StopIteration:
            return

    for rank in sorted(programs):
        resume(rank, None)
    progress = True
    while progress:
        progress = False
        for rank in sorted(waiting):
            if rank not in waiting:
                continue
            operation = waiting[rank]
            members = [waiting[member] for member in operation.comm_ranks if member in waiting]
            if len(members) < len(operation.comm_ranks) or not all(operation.fits(member) for member in members):
                continue
            values = {member: waiting.pop(member).payload for member in operation.comm_ranks}
            delivery = Delivery(values, max(member.time for member in members))
            for member in operation.comm_ranks:
                resume(member, delivery)
            progress = True
    return waiting
