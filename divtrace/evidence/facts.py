"""The one table that all evidence goes into: operations, and what else the files tell about ranks."""

from __future__ import annotations

from typing import Literal

import msgspec

from divtrace.evidence.coordinates import Coordinates

Source = Literal["flight-recorder", "ras", "inspector", "log"]
State = Literal["enqueued", "started", "completed", "timeout", "retired"]
"""retired: gloo is done with it, and does not tell whether it was completed or given up."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a piece of evidence stands: the file, and its line (logs) or entry (dumps), both from 1."""

    file: str
    line: int | None = None


class Communicator(msgspec.Struct, frozen=True, gc=False, order=True):
    """A communicator as its source names it. What the source does not tell is empty."""

    name: str = ""
    """The process group's own name: an integer as text, or a hash. The GUID of watchdog lines is this name."""
    desc: str = ""
    """The user's description, such as `attention_tp:device` or `default_pg`."""
    backend: str = ""
    members: tuple[int, ...] = ()
    """Global ranks in group order; empty if not known."""

    @property
    def label(self) -> str:
        """How a report names it."""
        if self.desc and self.desc != "undefined":
            return self.desc
        return f"process group {self.name}" if self.name else "unnamed communicator"


class Statement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one line or entry says, and of whom. None is "not recorded", never zero."""

    format: str
    """The reader that understood it: `flight-recorder`, `nccl-watchdog`, `gloo-detail` and so on."""
    place: Place
    rank: int | None = None
    """Global rank."""
    group_rank: int | None = None
    """Rank inside the communicator, which differs from the global rank in sub-groups."""
    coordinates: Coordinates | None = None
    comm: Communicator | None = None
    number: int | None = None
    """The communicator's own counter: `collective_seq_id`, SeqNum, opCount."""
    process: str | None = None
    """The process as the log names it, such as `Worker_TP1 pid=28502`."""
    time: str | None = None
    """As the log prints it: local time, often without a year; never used to order ranks."""
    text: str = ""


class Operation(Statement, frozen=True, gc=False, kw_only=True):
    """One operation of one rank, as one source recorded it."""

    source: Source
    op: str | None = None
    input_sizes: tuple[tuple[int, ...], ...] | None = None
    output_sizes: tuple[tuple[int, ...], ...] | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    dtype: str | None = None
    state: State | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None
    created_ns: int | None = None


FactKind = Literal[
    "timeout",
    "mismatch",
    "missing",
    "waiting",
    "aborted",
    "lost-peer",
    "exception",
    "out-of-memory",
    "device-fault",
    "killed",
    "exited",
    "watchdog",
    "batch",
    "stack",
    "divergence-reported",
    "communicator",
    "snapshot",
    "note",
]


class Fact(Statement, frozen=True, gc=False, kw_only=True):
    """One thing a file tells about a rank that is no operation.

    - timeout: the rank gave up waiting, and the line names no operation
    - mismatch: the rank saw another operation, size or type at its peer (`details` holds both sides)
    - missing: other ranks are named as not having arrived (`ranks`, `group_ranks`)
    - waiting: the rank waits for the named ranks
    - aborted: the process ended itself; lost-peer: its connection to another rank broke
    - exception, out-of-memory, device-fault, killed, exited: how a rank failed
    - watchdog: an engine's watchdog fired; batch: the batch it printed (`details["rids"]`, `details["batch_size"]`)
    - stack: the frames of a process, innermost first (`details["frames"]`)
    - divergence-reported: the engine itself reports that ranks differ
    - communicator, snapshot: what a RAS report says about a communicator
    """

    kind: FactKind
    ranks: tuple[int, ...] = ()
    """Other ranks that the line names, as global ranks."""
    group_ranks: tuple[int, ...] = ()
    """Other ranks that the line names by their number inside the communicator."""
    details: dict[str, object] = {}


Finding = Operation | Fact
"""What a reader may return."""


class EvidenceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was read as evidence."""

    path: str
    kind: Literal["flight-recorder", "ras", "inspector", "log"]
    rank: int | None = None
    """The rank of the whole file, if the file belongs to one."""
    operations: int = 0
    facts: int = 0


class Unreadable(msgspec.Struct, frozen=True):
    """A file that is evidence by its head and could not be read, or not to its end."""

    path: str
    what: str
    line: int | None = None
