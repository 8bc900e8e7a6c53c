"""What the evidence alone supports: plain frozen data, from which the report is filled."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from divtrace.evidence.dump import Dump
from divtrace.evidence.facts import Communicator, EvidenceFile, Fact, Operation, Unreadable
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.progress import Pending
from divtrace.evidence.windows import Window
from divtrace.waits.pairing import Shift
from divtrace.waits.relation import Waits

EvidenceVerdict = Literal["divergence", "rank_failed", "rank_silent", "uniform_stall", "insufficient", "clean"]


@dataclass(frozen=True, slots=True)
class EvidenceFinding:
    """Ranks that recorded different operations under one number, or that wait for each other crosswise."""

    rule: Literal["collective-order", "collective-shape", "batch-membership"]
    comm: str | None
    comm_ranks: tuple[int, ...] | None
    number: int | None
    op: str | None
    ranks: tuple[int, ...]
    field: str
    values: Mapping[int, Hashable]
    fields: tuple[tuple[str, Mapping[int, Hashable]], ...]
    odd_ranks: tuple[int, ...]
    attribution: str
    where: Mapping[int, tuple[str, int | None]]
    """File, and entry or line from 1, per rank."""
    following: int = 0
    shifts: tuple[tuple[int, Shift], ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceTimeout:
    """One operation that timed out, or that is pending past its end, on some ranks."""

    ranks: tuple[int, ...]
    comm: str | None
    number: int | None
    op: str | None
    source: Literal["flight-recorder", "log"]
    text: str
    communicator: Communicator | None = None


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    """Everything that the dumps and logs of one input support."""

    verdict: EvidenceVerdict
    findings: tuple[EvidenceFinding, ...]
    behind: tuple[int, ...]
    ahead: tuple[int, ...]
    cycle: tuple[int, ...]
    """The ranks of the first crossed order."""
    failed: tuple[int, ...]
    """Ranks that raised, died or were killed before issuing what others wait for."""
    failing: tuple[int, ...]
    """Ranks that raised, died or were killed by themselves, whether or not the evidence shows who waits for them."""
    waits: Waits
    timeouts: tuple[EvidenceTimeout, ...]
    not_compared: tuple[tuple[int, str], ...]
    windows: Mapping[int, Window]
    counts: Mapping[str, Mapping[int, int]]
    """Last number of every rank in every communicator."""
    compared: int
    files: tuple[EvidenceFile, ...]
    ignored: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]
    not_understood: Mapping[str, int]
    ranks: tuple[int, ...]
    notes: tuple[str, ...]
    next: tuple[str, ...]
    facts: tuple[Fact, ...]
    log_operations: tuple[Operation, ...]
    dumps: tuple[Dump, ...] = field(repr=False)
    groups: tuple[GroupLanes, ...] = field(repr=False)
    pending: tuple[Pending, ...] = ()
    undecided: bool = False
    """An operation is pending of which a member is not observed or not known."""
    operation_count: int = 0

    def operations(self) -> Iterator[Operation]:
        """The one table: all operations of all sources, dumps by rank first, then logs in file order."""
        for dump in self.dumps:
            yield from dump.operations()
        yield from self.log_operations
