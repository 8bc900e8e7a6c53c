"""One rank's dump in columns: what the comparison and the wait-for analysis ask of it, and nothing else."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from divtrace.evidence.dump_schema import Entry, RawDump, Sizes, Status
from divtrace.evidence.facts import Communicator, Operation, Place, State
from divtrace.evidence.naming import canonical_operation
from divtrace.evidence.unnamed import HelperLane, helper_lanes

ENQUEUED, STARTED, COMPLETED, TIMED_OUT = range(4)
STATES: tuple[State, ...] = ("enqueued", "started", "completed", "timeout")


@dataclass(frozen=True, slots=True)
class Signature:
    """What one operation does; the same in every rank of a collective except for what may differ."""

    op: str
    input_sizes: Sizes
    output_sizes: Sizes
    dtype: str
    peers: tuple[int, int] | None = None
    """(sender, receiver) of a send or recv, by their numbers inside the group."""


@dataclass(slots=True)
class Lane:
    """One communicator on one rank: the collectives of the window, by number."""

    numbers: dict[int, int] = field(default_factory=dict)
    """Number to signature; several operations of one number (coalesced) share one signature."""
    position: dict[int, int] = field(default_factory=dict)
    """Number to position in the dump."""
    last: int = -1
    pending: dict[int, int] = field(default_factory=dict)
    """Number to state, for operations that are not completed."""
    passed: int = -1
    """The highest number known to be completed."""
    passed_op: str = ""
    tail: int | None = None
    """gloo: a retired operation behind which its thread issued nothing; retired is completed or timed out."""
    pg_id: int | None = None
    point_to_point: bool = False
    sent: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """(send or recv, sender, receiver) to the number of such operations in the window."""
    pending_peers: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """The same, for those that are not completed."""


@dataclass(slots=True)
class Dump:
    """One dump, attributed to a rank or not."""

    path: str
    rank: int | None
    version: str
    lanes: dict[Communicator, Lane]
    signatures: list[Signature]
    status: dict[int, tuple[int, int, int]]
    """pg_id to (last enqueued, last started, last completed); -1 is none."""
    configured: dict[str, tuple[int, ...]]
    """Ranks of every process group that the dump lists, by name."""
    count: int
    first_record: int | None
    last_record: int | None
    last_created: int
    active_only: bool
    """No completed operation is in the dump although the ring has moved on: absent does not mean never issued."""
    columns: tuple[array[int], array[int], array[int], array[int], array[int], array[int]]
    """Per entry: record id, communicator, number, signature, state, time of creation in ns."""
    comms: list[Communicator]
    helpers: tuple[HelperLane, ...] = ()
    """What the wrapper of `TORCH_DISTRIBUTED_DEBUG=DETAIL` did before operations whose process group has no name."""
    helpers_complete: bool = False
    """Every operation has a helper group, so that these stand for all groups of the rank."""

    @property
    def from_start(self) -> bool:
        """Whether nothing can have been dropped before the first entry."""
        return self.first_record == 0 and not self.active_only

    def operations(self) -> Iterator[Operation]:
        """The entries as rows of the one table."""
        tails = [self.lanes[comm].tail if comm in self.lanes else None for comm in self.comms]
        for position, (_, comm, number, signature, state, created) in enumerate(zip(*self.columns, strict=True), 1):
            what = self.signatures[signature]
            yield Operation(
                source="flight-recorder",
                format="flight-recorder",
                place=Place(self.path, position),
                rank=self.rank,
                comm=self.comms[comm],
                number=number if number >= 0 else None,
                op=what.op,
                input_sizes=what.input_sizes,
                output_sizes=what.output_sizes,
                numel_in=elements(what.input_sizes),
                numel_out=elements(what.output_sizes),
                dtype=what.dtype or None,
                state="retired" if state == COMPLETED and tails[comm] == number else STATES[state],
                created_ns=created or None,
            )


def elements(sizes: Sizes) -> int:
    """Number of elements of all tensors; a tensor without dimensions has one."""
    total = 0
    for shape in sizes:
        product = 1
        for width in shape:
            product *= width
        total += product
    return total


def rank_list(text: str | list[int]) -> tuple[int, ...]:
    """The ranks in `"[0, 1]"`; empty if the text is no such list."""
    if isinstance(text, list):
        return tuple(text)
    inner = text.strip().removeprefix("[").removesuffix("]")
    parts = [part.strip() for part in inner.split(",")] if inner else []
    return tuple(int(part) for part in parts) if all(part.isdecimal() and len(part) < 8 for part in parts) else ()


def _count(value: int | str) -> int:
    try:
        return int(value)
    except ValueError:
        return -1


def _status(status: dict[str, Status]) -> dict[int, tuple[int, int, int]]:
    return {
        int(name): (
            _count(counts.last_enqueued_collective),
            _count(counts.last_started_collective),
            _count(counts.last_completed_collective),
        )
        for name, counts in status.items()
        if name.isdecimal() and len(name) < 10
    }


def _signature(entry: Entry) -> tuple[str, Signature]:
    backend, colon, rest = entry.profiling_name.rpartition(":")
    if not colon:
        backend, rest = "", entry.profiling_name
    words = rest.split(" ", 1)
    peers = None
    if len(words) == 2:
        left, arrow, right = words[1].partition("->") if "->" in words[1] else words[1].partition("<-")
        if left.isdecimal() and right.isdecimal() and len(left) < 8 and len(right) < 8:
            peers = (int(left), int(right)) if arrow == "->" else (int(right), int(left))
    types = sorted(set(entry.input_dtypes)) or sorted(set(entry.output_dtypes))
    return backend.rpartition(":")[2].lower(), Signature(
        canonical_operation(words[0]), entry.input_sizes, entry.output_sizes, ",".join(types), peers
    )


def build_dump(raw: RawDump, path: str, rank: int | None) -> Dump:
    """The columns of one dump. Entries without a collective number are point-to-point or nameless and join no lane."""
    configured = {group.name or name: rank_list(group.ranks) for name, group in raw.groups.items()}
    signatures: list[Signature] = []
    known: dict[tuple[object, ...], int] = {}
    backends: list[str] = []
    merged: dict[tuple[int, int], int] = {}
    comm_of: dict[tuple[tuple[str, str], str], int] = {}
    comms: list[Communicator] = []
    lanes: dict[Communicator, Lane] = {}
    lane_list: list[Lane] = []
    numbers: list[int] = []
    comm_column: list[int] = []
    signature_column: list[int] = []
    states: list[int] = []
    peer_to_peer: list[bool] = []
    threads: dict[object, tuple[Lane, int]] = {}

    # A ring that has wrapped may be written out of order.
    entries = raw.entries
    order = [entry.record_id for entry in entries]
    if order != sorted(order):
        entries = sorted(entries, key=lambda entry: entry.record_id)
        order.sort()
    records = array("q", order)
    created = array("q", [entry.time_created_ns or 0 for entry in entries])
    placed: dict[tuple[object, ...], tuple[int, int]] = {}
    for position, entry in enumerate(entries, 1):
        # One look-up for each entry: what it does, and in which group.
        key = (
            entry.process_group,
            entry.profiling_name,
            entry.input_sizes,
            entry.output_sizes,
            entry.input_dtypes,
            entry.output_dtypes,
        )
        known_place = placed.get(key)
        if known_place is None:
            sid = known.get(key[1:], -1)
            if sid < 0:
                backend, signature = _signature(entry)
                sid = known[key[1:]] = len(signatures)
                signatures.append(signature)
                backends.append(backend)
                peer_to_peer.append(signature.op in ("send", "recv"))
            found = comm_of.get((entry.process_group, backends[sid]))
            if found is None:
                name, desc = entry.process_group
                comm = Communicator(name, desc, backends[sid], configured.get(name, ()))
                found = comm_of[entry.process_group, backends[sid]] = len(comms)
                comms.append(comm)
                lane_list.append(lanes.setdefault(comm, Lane()))
            known_place = placed[key] = sid, found
        sid, cid = known_place
        backend = backends[sid]
        lane = lane_list[cid]
        if lane.pg_id is None:
            lane.pg_id = entry.pg_id
        number = -1 if entry.collective_seq_id is None else entry.collective_seq_id
        gloo = backend == "gloo"
        if gloo:
            state = COMPLETED if entry.retired else ENQUEUED
        elif entry.state == "completed":
            state = COMPLETED
        elif entry.retired:
            state = TIMED_OUT
        else:
            state = STARTED if entry.state == "started" else ENQUEUED
        comm_column.append(cid)
        numbers.append(number)
        signature_column.append(sid)
        states.append(state)
        if entry.is_p2p or peer_to_peer[sid]:
            lane.point_to_point = True
            peers = signatures[sid].peers
            if peers is not None:
                side = (signatures[sid].op, *peers)
                lane.sent[side] = lane.sent.get(side, 0) + 1
                if state != COMPLETED:
                    lane.pending_peers[side] = lane.pending_peers.get(side, 0) + 1
            threads.pop(entry.thread_id, None)
            continue
        if number < 0:
            continue
        before = lane.numbers.get(number)
        if before is None:
            lane.numbers[number] = sid
            lane.position[number] = position
        else:
            both = merged.get((before, sid))
            if both is None:
                both = merged[before, sid] = len(signatures)
                signatures.append(_coalesced(signatures[before], signatures[sid]))
                backends.append(backend)
                peer_to_peer.append(False)
            lane.numbers[number] = both
        if number > lane.last:
            lane.last = number
        if state != COMPLETED:
            lane.pending[number] = state
            threads.pop(entry.thread_id, None)
        elif gloo:
            threads[entry.thread_id] = (lane, number)
        elif number > lane.passed:
            lane.passed, lane.passed_op = number, signatures[sid].op
    for lane, number in threads.values():
        lane.tail = number if lane.tail is None else max(lane.tail, number)
    for comm, lane in lanes.items():
        if comm.backend == "gloo":
            _gloo_passed(lane, signatures)
    first = records[0] if records else None
    nameless = any(not comm.name and not comm.desc for comm in comms)
    helpers, complete = helper_lanes(entries) if nameless else ((), False)
    return Dump(
        path=path,
        rank=rank,
        version=raw.version,
        lanes=lanes,
        signatures=signatures,
        status=_status(raw.status),
        configured=configured,
        count=len(records),
        first_record=first,
        last_record=records[-1] if records else None,
        last_created=max(created, default=0),
        active_only=bool(records) and first != 0 and COMPLETED not in states,
        columns=(
            records,
            array("l", comm_column),
            array("q", numbers),
            array("l", signature_column),
            array("b", states),
            created,
        ),
        comms=comms,
        helpers=helpers,
        helpers_complete=complete and first == 0,
    )


def _coalesced(first: Signature, second: Signature) -> Signature:
    if first == second or len(first.input_sizes) > 256:
        return first
    ops = sorted({*first.op.split("+"), *second.op.split("+")} - {"coalesced"}) or ["coalesced"]
    types = ",".join(sorted(set(first.dtype.split(",")) | set(second.dtype.split(","))))
    return Signature(
        "+".join(ops), first.input_sizes + second.input_sizes, first.output_sizes + second.output_sizes, types
    )


def _gloo_passed(lane: Lane, signatures: list[Signature]) -> None:
    """gloo: what was retired before its thread went on has been completed."""
    for number in sorted(lane.numbers, reverse=True):
        if number not in lane.pending and number != lane.tail:
            lane.passed, lane.passed_op = number, signatures[lane.numbers[number]].op
            break
