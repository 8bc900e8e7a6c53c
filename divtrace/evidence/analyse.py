"""What the evidence of one input supports: mismatches, who waits for whom, who failed, and what cannot be told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from divtrace.evidence.batches import batch_findings
from divtrace.evidence.compare import compare
from divtrace.evidence.coordinates import Coordinates, global_rank
from divtrace.evidence.detail import detail_findings
from divtrace.evidence.dump import Dump
from divtrace.evidence.facts import Communicator, Fact, Operation
from divtrace.evidence.findings import crossing_finding, mismatch_finding
from divtrace.evidence.groups import GroupLanes, collect_groups, one_dump_per_rank
from divtrace.evidence.nccl_order import logged_operations, with_shared_names
from divtrace.evidence.progress import Pending, Standing, standing
from divtrace.evidence.ras_pairs import compare_snapshots, job_size
from divtrace.evidence.read import Evidence, read_evidence
from divtrace.evidence.report import EvidenceFinding, EvidenceReport, EvidenceTimeout, EvidenceVerdict
from divtrace.evidence.resolve import (
    Membership,
    PlaceRank,
    groups_of_ranks,
    joined_operations,
    member_list,
    with_own_rank,
    with_peer_ranks,
)
from divtrace.evidence.windows import LastNumbers, Window, last_numbers
from divtrace.waits.relation import Waits, who_waits

FAILURES = frozenset({"exception", "out-of-memory", "device-fault", "killed"})
CONSEQUENCES = frozenset({0, None, -6, -15})
"""Exit codes that tell of no failure of the process itself: none; aborted, which gloo does when sizes do not match; and
terminated, which launchers do to the others when one process has failed."""
ENGINE_WAITS = "vllm-rpc"
"""The engine's process waits for an answer of every worker."""


def analyse_evidence(
    files: Mapping[str, Path] | Iterable[Path],
    *,
    topology: Membership | None = None,
    place_rank: PlaceRank | None = None,
    replicas: Sequence[Sequence[int]] | None = None,
    known_ranks: Iterable[int] = (),
) -> EvidenceReport:
    """Read all evidence among `files` and say what it supports.

    Args:
        files: paths, or paths by the names that the report shall use. Order does not matter.
        topology: members of named communicators, where known.
        place_rank: global rank of engine coordinates; without it `TP` is the rank unless pipeline stages are in play.
        replicas: ranks that serve the same requests.
        known_ranks: ranks that other input shows to exist.
    """
    return conclude(
        read_evidence(files), topology=topology, place_rank=place_rank, replicas=replicas, known_ranks=known_ranks
    )


def conclude(
    evidence: Evidence,
    *,
    topology: Membership | None = None,
    place_rank: PlaceRank | None = None,
    replicas: Sequence[Sequence[int]] | None = None,
    known_ranks: Iterable[int] = (),
) -> EvidenceReport:
    """What the rows that were read support; see `analyse_evidence`."""
    placing = place_rank or _tensor_parallel_rank
    ranks_of_files = evidence.file_ranks
    operations = joined_operations(
        with_own_rank(o, ranks_of_files.get(o.place.file), placing)
        for o in with_shared_names(evidence.operations, evidence.facts)
    )
    facts = [with_own_rank(f, ranks_of_files.get(f.place.file), placing) for f in evidence.facts]

    placed = one_dump_per_rank(evidence.dumps)
    named = {o.rank for o in operations if o.rank is not None} | {f.rank for f in facts if f.rank is not None}
    polled = range(job_size(facts))
    groups, world = collect_groups(placed.by_rank, {*known_ranks, *named, *ranks_of_files.values(), *polled})
    facts = with_peer_ranks(facts, groups, topology, world, groups_of_ranks(placed.by_rank, groups, world))
    failing = _failing(facts)
    numbers = last_numbers(groups, placed.by_rank, ended=failing)
    state = standing(groups, numbers, operations, facts, topology)
    snapshots = compare_snapshots(facts, world)
    waits = who_waits((*state.progresses, *snapshots.progresses), state.loose)
    comparison = compare(groups)
    logged = logged_operations(operations)

    findings = [mismatch_finding(mismatch) for mismatch in comparison.mismatches]
    findings += [f for f in detail_findings(facts) if f.rule not in {g.rule for g in findings}]
    findings += [f for f in logged.findings if f.rule not in {g.rule for g in findings}]
    for crossing in waits.crossings:
        crossed = crossing_finding(crossing, groups, findings)
        if crossed is not None:
            findings.append(crossed)
    findings += batch_findings(facts, replicas)

    behind = tuple(rank for _, rank in waits.behind)
    pending_ranks = {p.rank for p in state.pending}
    late = [
        (o.rank, member_list(o.comm, o.rank, groups, topology))
        for o in operations
        if o.state == "timeout" and o.rank is not None
    ]
    failed = tuple(
        sorted(rank for rank in failing if rank not in pending_ranks and _awaited(rank, behind, facts, late))
    )
    windows = _windows(world, placed.by_rank, numbers, any_dump=bool(evidence.dumps))
    verdict = _verdict(findings, failed, behind, state, waits, world, placed.by_rank, comparison.compared)
    return EvidenceReport(
        verdict=verdict,
        findings=tuple(findings),
        behind=behind,
        ahead=tuple(rank for _, rank in waits.ahead),
        cycle=tuple(rank for _, rank in waits.crossings[0].ranks) if waits.crossings else (),
        failed=failed,
        failing=tuple(sorted(failing)),
        waits=waits,
        timeouts=_timeouts(state, groups, operations, facts),
        not_compared=_not_compared(windows, placed.by_rank, bool(evidence.dumps)),
        windows=windows,
        counts={label: dict(sorted(last.items())) for label, last in numbers.last.items()},
        compared=comparison.compared,
        files=tuple(evidence.files),
        ignored=tuple(evidence.ignored),
        unreadable=tuple(sorted(evidence.unreadable, key=lambda item: (item.path, item.line or 0, item.what))),
        not_understood=dict(sorted(evidence.not_understood.items())),
        ranks=world,
        notes=tuple(
            _notes(
                evidence,
                [*placed.notes, *logged.notes, *snapshots.notes],
                placed.by_rank,
                groups,
                numbers,
                facts,
                waits,
            )
        ),
        next=tuple(_next(windows, waits, numbers, failed)),
        facts=tuple(facts),
        log_operations=tuple(operations),
        dumps=tuple(dump for _, dump in sorted(placed.by_rank.items())),
        groups=tuple(groups),
        pending=state.pending,
        undecided=_undecided(waits, state),
        operation_count=sum(dump.count for dump in placed.by_rank.values()) + len(operations),
    )


def _tensor_parallel_rank(place: Coordinates) -> int | None:
    return global_rank(place, tp=None)


def _failing(facts: Iterable[Fact]) -> set[int]:
    """Ranks that failed by themselves; a timeout, a lost peer or an abort after a mismatch is no such failure."""
    return {
        fact.rank
        for fact in facts
        if fact.rank is not None
        and (
            (fact.kind in FAILURES and fact.details.get("symptom") is not True)
            or (fact.kind == "exited" and fact.details.get("exit_code") not in CONSEQUENCES)
        )
    }


def _awaited(
    rank: int, behind: Sequence[int], facts: Iterable[Fact], late: Iterable[tuple[int, tuple[int, ...]]]
) -> bool:
    """Whether others wait for a rank: by the relation, or because another rank timed out or lost its peer.

    Args:
        rank: a rank that failed.
        behind: the ranks that others are seen to wait for.
        facts: what logs tell.
        late: for each operation that logs say timed out, the rank and the members of its communicator, empty if not
            known.
    """
    if rank in behind:
        return True
    if any(other != rank and (not members or rank in members) for other, members in late):
        return True
    return any(
        fact.kind in ("timeout", "lost-peer", "waiting")
        and (fact.rank not in (None, rank) or fact.format == ENGINE_WAITS)
        for fact in facts
    )


def _verdict(
    findings: Sequence[EvidenceFinding],
    failed: Sequence[int],
    behind: Sequence[int],
    state: Standing,
    waits: Waits,
    world: Sequence[int],
    by_rank: Mapping[int, Dump],
    compared: int,
) -> EvidenceVerdict:
    if findings:
        return "divergence"
    if failed:
        return "rank_failed"
    if behind:
        return "rank_silent"
    stuck = {p.rank for p in state.pending}
    if len(world) > 1 and set(world) == set(by_rank) and stuck == set(world) and not waits.unobserved and compared:
        return "uniform_stall"
    return "insufficient" if not compared or _undecided(waits, state) else "clean"


def _undecided(waits: Waits, state: Standing) -> bool:
    return bool(waits.unobserved) or any(p.open and p.pending for p in state.progresses)


def _windows(
    world: Sequence[int], by_rank: Mapping[int, Dump], numbers: LastNumbers, *, any_dump: bool
) -> dict[int, Window]:
    if not any_dump:
        return {}
    windows = {}
    for rank in world:
        dump = by_rank.get(rank)
        windows[rank] = (
            Window(rank, None)
            if dump is None
            else Window(
                rank,
                dump.path,
                dump.first_record,
                dump.last_record,
                dump.from_start,
                dump.active_only,
                numbers.horizons.get(rank),
            )
        )
    return windows


def _not_compared(
    windows: Mapping[int, Window], by_rank: Mapping[int, Dump], any_dump: bool
) -> tuple[tuple[int, str], ...]:
    found = []
    for rank, window in windows.items():
        if window.file is None:
            found.append((rank, "left no flight-recorder dump"))
        elif window.horizon is not None:
            found.append((rank, f"past rank {rank}'s horizon: {window.horizon}"))
        elif any_dump and by_rank[rank].count and not any(comm.name or comm.desc for comm in by_rank[rank].comms):
            found.append(
                (rank, "its dump names no process group, so that nothing tells which operations belong together")
            )
    return tuple(found)


def _timeouts(
    state: Standing, groups: Sequence[GroupLanes], operations: Iterable[Operation], facts: Iterable[Fact]
) -> tuple[EvidenceTimeout, ...]:
    by_label = {group.label: group for group in groups}
    merged: dict[tuple[str, int], list[Pending]] = {}
    for pending in state.pending:
        if pending.comm in by_label and pending.timed_out:
            merged.setdefault((pending.comm, pending.number), []).append(pending)
    found = []
    for (comm, number), rows in sorted(merged.items()):
        ranks = tuple(sorted(row.rank for row in rows))
        op = None
        for rank in ranks:
            if rank in by_label[comm].lanes:
                dump, lane = by_label[comm].lanes[rank]
                sid = lane.numbers.get(number)
                op = dump.signatures[sid].op if sid is not None else op
        text = f"{op or 'operation'} #{number} of {comm} was given up or never completed"
        found.append(EvidenceTimeout(ranks, comm, number, op, "flight-recorder", text, by_label[comm].comm))
    logged: dict[tuple[str, int | None, str | None, str], set[int]] = {}
    named: dict[str, Communicator] = {}
    for operation in operations:
        if operation.state == "timeout":
            label = _named(operation.comm, named)
            key = (label, operation.number, operation.op, operation.text)
            logged.setdefault(key, set()).update(() if operation.rank is None else (operation.rank,))
    for fact in facts:
        if fact.kind == "timeout":
            label = _named(fact.comm, named)
            stated = fact.details.get("op")
            key = (label, fact.number, stated if isinstance(stated, str) else None, fact.text)
            logged.setdefault(key, set()).update(() if fact.rank is None else (fact.rank,))
    for (label, number_or_none, op, text), on in sorted(logged.items(), key=lambda item: (sorted(item[1]), item[0][3])):
        ranks = tuple(sorted(on))
        found.append(EvidenceTimeout(ranks, label or None, number_or_none, op, "log", text, named.get(label)))
    return tuple(found)


def _named(comm: Communicator | None, named: dict[str, Communicator]) -> str:
    if comm is None:
        return ""
    named.setdefault(comm.label, comm)
    return comm.label


def _notes(
    evidence: Evidence,
    notes: Sequence[str],
    by_rank: Mapping[int, Dump],
    groups: Sequence[GroupLanes],
    numbers: LastNumbers,
    facts: Iterable[Fact],
    waits: Waits,
) -> Iterable[str]:
    yield from notes
    nameless = sorted(rank for rank, dump in by_rank.items() if any(not c.name and not c.desc for c in dump.comms))
    if nameless:
        yield (
            f"Operations without a process-group name on ranks {_list(nameless)} are not compared "
            "(TORCH_DISTRIBUTED_DEBUG=DETAIL hides the names): pg_id counts each process's own groups."
        )
    active = sorted(rank for rank, dump in by_rank.items() if dump.active_only)
    if active:
        yield f"Dumps of ranks {_list(active)} hold active operations only: absent does not mean never issued."
    inferred = sorted(group.label for group in groups if group.comm.backend == "gloo" and not group.open)
    if inferred:
        yield f"gloo records no members; those of {', '.join(inferred)} are inferred from the operations."
    if any(comm.backend == "gloo" for dump in by_rank.values() for comm in dump.comms):
        yield "gloo records neither send and recv nor barriers: a rank that is stuck in one looks finished in its dump."
    unknown = sorted(group.label for group in groups if group.open)
    if unknown:
        yield f"The members of {', '.join(unknown)} are not known in full."
    for rank, why in numbers.horizons.items():
        yield f"Rank {rank}: {why}; nothing behind that is called missing."
    if len(waits.stalls) > 1:
        stalls = "; ".join(_ranks([rank for _, rank in stall.awaited]) for stall in waits.stalls)
        yield f"{len(waits.stalls)} independent stalls: {stalls}."
    for fact in facts:
        if fact.format == "vllm-scheduler":
            blank = ", draft tokens are placeholders" if fact.details["placeholders"] is True else ""
            yield f"{fact.place.file}:{fact.place.line}: the step that failed had {fact.text}{blank} ({fact.process})."
        if fact.kind == "mismatch" and "received_bytes" in fact.details:
            own = "a rank" if fact.rank is None else f"rank {fact.rank}"
            yield (
                f"{fact.place.file}:{fact.place.line}: {own} received {fact.details['received_bytes']} bytes where it "
                f"expected {fact.details['expected_bytes']}: an operation differs in size between it and a peer. The "
                "text names neither."
            )
        if fact.details.get("by_every_group") is True:
            yield (
                f"{fact.place.file}:{fact.place.line} names ranks {_list(fact.group_ranks)} of a process group that it "
                f"does not name; taken for {_ranks(fact.ranks)}, which has that number in every group that rank "
                f"{fact.rank} used."
            )
        if fact.kind in ("missing", "waiting") and fact.group_ranks and not fact.ranks:
            yield (
                f"{fact.place.file}:{fact.place.line} names ranks {_list(fact.group_ranks)} of a process group whose "
                "members are not known."
            )
    for literal, count in sorted(evidence.left_out.items()):
        yield f"{count} further log lines with {literal!r} were counted and not read."
    if evidence.duplicates:
        yield f"{evidence.duplicates} repeated log statements were counted once."


def _next(windows: Mapping[int, Window], waits: Waits, numbers: LastNumbers, failed: Sequence[int]) -> Iterable[str]:
    wanted = {wait.awaited[1] for wait in waits.unobserved}
    absent = [rank for rank, window in windows.items() if window.file is None]
    for rank in sorted(absent, key=lambda rank: (rank not in wanted, rank)):
        yield f"rank {rank} left no dump: its log or exit status would tell whether it was late, dead or elsewhere"
    for rank in sorted(numbers.horizons):
        yield f"a later dump of rank {rank}: the one at hand ends before its peers' last completed operation"
    for _, rank in waits.behind:
        if rank not in failed:
            yield f"what rank {rank} did after its last operation: its log and a stack dump (py-spy)"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {_list(ranks)}"


def _list(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))
