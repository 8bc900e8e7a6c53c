"""What was read and compared, and what was not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from divtrace.align.view import RankView
from divtrace.explain.coverage import no_trace, reasons
from divtrace.report.model import Coverage, Damage, End, NotCompared, RankName, RequestSummary
from divtrace.trace.model import Record
from divtrace.walk.run import Walk
from divtrace.walk.skips import Unseen
from divtrace.walk.verdict import absent_ranks

if TYPE_CHECKING:
    from divtrace.evidence.report import EvidenceReport

WorldRank = tuple[int, int]

_MOST_DAMAGE = 1000
"""Damaged records named in the report; all are counted, and `divtrace validate` names every one."""


def last_record(view: RankView) -> Record:
    """The last event of a rank that is no host record; the last record if there is no other."""
    return next((record for record in reversed(view.records) if record.event.stage != "host"), view.records[-1])


def ends(walk: Walk) -> dict[WorldRank, End]:
    """The last event of every rank."""
    found = {}
    for world in walk.worlds:
        for rank, view in world.views.items():
            event = last_record(view).event
            found[world.world, rank] = End(
                seq=event.seq,
                step=event.step,
                stage=event.stage,
                site=event.site,
                req=event.req,
                round=event.round,
                clean=view.closed,
            )
    return found


def ended_early(walk: Walk) -> list[tuple[WorldRank, Record]]:
    """Ranks whose peers go on behind their last event."""
    return [
        ((world.world, rank), last_record(view))
        for world in walk.worlds
        for replica in world.replicas
        for rank, view in replica.views.items()
        if replica.unseen[rank].after_last
    ]


def coverage(walk: Walk, rank_name: Callable[[int, int], RankName], missing: tuple[str, ...]) -> Coverage:
    """The coverage section of the report."""
    traces = walk.traces
    not_compared = []
    for world in walk.worlds:
        seen: dict[int, tuple[RankView, Unseen]] = {
            rank: (view, replica.unseen[rank]) for replica in world.replicas for rank, view in replica.views.items()
        }
        absent = set(absent_ranks(world))
        for rank in sorted({*absent, *seen}):
            if rank in absent:
                not_compared.append(NotCompared(rank_name(world.world, rank), no_trace()))
                continue
            view, unseen = seen[rank]
            whys = reasons(view, unseen, last_record(view))
            if whys:
                not_compared.append(NotCompared(rank_name(world.world, rank), "; ".join(whys)))
    evidence = walk.evidence
    if evidence is not None:
        not_compared = _with_evidence(not_compared, evidence, walk.evidence_world, rank_name)
    damage = tuple(Damage(one.file, one.line, one.what) for one in traces.damage[:_MOST_DAMAGE])
    return Coverage(
        files=len(traces.files) + (0 if evidence is None else len(evidence.files)),
        ignored_files=traces.ignored_files,
        events=sum(view.length for world in walk.worlds for view in world.views.values()),
        ranks=len(_ranks(walk)),
        bad_lines=traces.bad_lines,
        unknown_fields=traces.unknown_fields,
        duplicates=traces.duplicates,
        lost_events=sum(max(trace.lost, trace.dropped) for trace in traces.ranks.values()),
        not_compared=tuple(not_compared),
        missing_fields=missing,
        damage=damage,
    )


def _with_evidence(
    known: list[NotCompared], evidence: EvidenceReport, world: int, rank_name: Callable[[int, int], RankName]
) -> list[NotCompared]:
    """The list with what dumps do not show, one entry for each rank."""
    whys = {entry.rank: entry.why for entry in known}
    for rank, why in evidence.not_compared:
        name = rank_name(world, rank)
        whys[name] = f"{whys[name]}; {why}" if name in whys else why
    return [NotCompared(rank, why) for rank, why in sorted(whys.items(), key=lambda entry: _by_number(entry[0]))]


def _by_number(rank: RankName) -> tuple[int, int]:
    world, _, number = str(rank).rpartition("/")
    return int(world or 0), int(number)


def _ranks(walk: Walk) -> set[WorldRank]:
    """Ranks of which anything was read: a trace, a dump, or a line of a log."""
    found = set(walk.traces.ranks)
    evidence = walk.evidence
    if evidence is not None:
        told = {dump.rank for dump in evidence.dumps} | {fact.rank for fact in evidence.facts}
        told |= {operation.rank for operation in evidence.log_operations}
        found |= {(walk.evidence_world, rank) for rank in told if rank is not None}
    return found


def request_summaries(walk: Walk) -> tuple[RequestSummary, ...]:
    """Every request of every replica, and whether all of it was compared."""
    found = []
    for world in walk.worlds:
        absent = set(absent_ranks(world))
        for replica in world.replicas:
            gone = sorted(absent & set(replica.replica.ranks))
            for req in sorted(replica.requests):
                rank = gone[0] if gone else replica.partial.get(req)
                why = None
                if rank is not None:
                    view = replica.views.get(rank)
                    why = (
                        no_trace()
                        if view is None
                        else "; ".join(reasons(view, replica.unseen[rank], last_record(view)))
                    )
                    why = f"rank {rank}: {why}"
                found.append(
                    RequestSummary(
                        world=world.world,
                        replica=replica.index,
                        req=req,
                        rounds=replica.requests[req],
                        compared="full" if why is None else "part",
                        why=why,
                    )
                )
    return tuple(found)
