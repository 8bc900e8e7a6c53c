"""The evidence section of the report, and what evidence adds to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from divtrace.explain.wording import counted, listed
from divtrace.report.model import Evidence, EvidenceFile, LastOperation, Window

if TYPE_CHECKING:
    # Only what is asked of an input with evidence costs its import.
    from divtrace.evidence.dump import Dump
    from divtrace.evidence.report import EvidenceReport

WorldRank = tuple[int, int]
MOST_FAILURES = 4
"""Failures told as notes."""


def section(report: EvidenceReport, world: int, rank_key: Callable[[int, int], str]) -> Evidence:
    """The files that told something, and what each rank's dump shows."""
    dumps = {dump.rank: dump for dump in report.dumps if dump.rank is not None}
    labels = {(rank, group.comm.name, group.comm.desc): group.label for group in report.groups for rank in group.lanes}
    return Evidence(
        files=tuple(
            EvidenceFile(path=file.path, kind=file.kind, rank=file.rank, operations=file.operations, facts=file.facts)
            for file in report.files
        ),
        operations=report.operation_count,
        not_understood=dict(report.not_understood),
        windows={
            rank_key(world, rank): Window(
                file=window.file,
                first_record=window.first_record,
                last_record=window.last_record,
                from_start=window.from_start,
                active_only=window.active_only,
                horizon=window.horizon,
                last=_last(dumps[rank], labels) if rank in dumps else None,
            )
            for rank, window in sorted(report.windows.items())
        },
    )


def _last(dump: Dump, labels: dict[tuple[int, str, str], str]) -> LastOperation | None:
    from divtrace.evidence.dump import STATES

    if not dump.count:
        return None
    _, comms, numbers, signatures, states, _ = (column[-1] for column in dump.columns)
    comm = dump.comms[comms]
    label = labels.get((dump.rank if dump.rank is not None else -1, comm.name, comm.desc), comm.label)
    number = numbers if numbers >= 0 else None
    tail = dump.lanes[comm].tail if comm in dump.lanes else None
    # gloo retires an operation whether it was completed or given up.
    state = "retired" if tail is not None and tail == number else STATES[states]
    return LastOperation(label, number, dump.signatures[signatures].op, state)


def notes(report: EvidenceReport) -> list[str]:
    """What a reader should know of the evidence: who failed and how, and how far it reaches."""
    found = []
    failures = [
        fact
        for fact in report.facts
        if fact.rank in report.failing
        and fact.kind in ("exception", "out-of-memory", "device-fault", "killed", "exited")
    ]
    own = [fact for fact in failures if fact.details.get("symptom") is not True]
    for fact in own[:MOST_FAILURES]:
        at = fact.place.file if fact.place.line is None else f"{fact.place.file}:{fact.place.line}"
        found.append(f"Rank {fact.rank} failed: {fact.text} ({at}).")
    if len(own) > MOST_FAILURES:
        found.append(f"{counted(len(own) - MOST_FAILURES, 'further failure')} in the logs.")
    found += report.notes
    if report.not_understood:
        parts = [f"{counted(number, 'line')} like {name}" for name, number in report.not_understood.items()]
        found.append(f"Looked like a known format and not understood: {listed(parts)}.")
    return found


def next_checks(report: EvidenceReport) -> list[str]:
    """What would tell more, in sentences."""
    return [f"{text[:1].upper()}{text[1:]}." for text in report.next]
