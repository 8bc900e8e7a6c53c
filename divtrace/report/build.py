"""Builds the report from a walk. Everything a reporter shows is worked out here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import UNSET

from divtrace.explain import coverage as coverage_words
from divtrace.explain import verdict as verdict_words
from divtrace.report import evidence as evidence_report
from divtrace.report.coverage import coverage, ended_early, ends, request_summaries
from divtrace.report.findings import finding, finding_id, place
from divtrace.report.model import (
    Place,
    Progress,
    RankName,
    Replica,
    Report,
    SiteCount,
    Timeout,
    Tool,
    Wait,
)
from divtrace.version import __version__
from divtrace.walk.divergence import Divergence
from divtrace.walk.judge import ReplicaWalk, SiteNote
from divtrace.walk.precedence import precedence
from divtrace.walk.run import Walk
from divtrace.walk.verdict import absent_ranks, of_replica
from divtrace.walk.world import WorldWalk


class Names:
    """How ranks are written: by number, or with their world as soon as there are several."""

    def __init__(self, walk: Walk) -> None:
        """Count the worlds."""
        self.many = len(walk.worlds) > 1

    def key(self, world: int, rank: int) -> str:
        """A rank as the key of an object."""
        return f"{world}/{rank}" if self.many else str(rank)

    def name(self, world: int, rank: int) -> RankName:
        """A rank in a list."""
        return f"{world}/{rank}" if self.many else rank


def build(walk: Walk, *, max_findings: int = 1000) -> Report:
    """The report on a walk.

    Args:
        walk: what was found.
        max_findings: findings listed at most, 0 for all; origins and independent ones first, then in causal order.
    """
    names = Names(walk)
    first = walk.roles.first
    shown, left_out = _chosen(walk, max_findings)
    findings = [finding(one, walk.roles, recorded_stages(walk, one), names.key) for one in shown]
    before = precedence(first, walk.timeouts)
    early = ended_early(walk)
    missing = walk.missing_fields
    absent = [(world.world, rank) for world in walk.worlds for rank in absent_ranks(world)]
    return Report(
        tool=Tool(__version__),
        verdict=walk.outcome.verdict,
        summary=verdict_words.summary(walk.outcome, first, _extent(walk), early, names.many),
        first=next((one for one in findings if one.role == "origin"), None),
        findings=tuple(findings),
        findings_left_out=left_out,
        last_agreement=_last_agreement(walk, first),
        precedence=before,
        healed=_site_counts((replica, replica.healed) for replica in replicas_of(walk)),
        drift=_site_counts((replica, replica.drift) for replica in replicas_of(walk)),
        progress=_progress(walk, names),
        replicas=tuple(_replica(world, replica) for world in walk.worlds for replica in world.replicas),
        end={names.key(world, rank): end for (world, rank), end in ends(walk).items()},
        timeouts=_timeouts(walk, names),
        coverage=coverage(walk, names.name, missing),
        notes=tuple(_notes(walk)),
        next=tuple(_next(walk, first, absent, names.many)),
        evidence=UNSET
        if walk.evidence is None
        else evidence_report.section(walk.evidence, walk.evidence_world, names.key),
        requests=request_summaries(walk),
    )


def replicas_of(walk: Walk) -> list[ReplicaWalk]:
    """All replicas of all worlds, in the order of their numbers."""
    return [replica for world in walk.worlds for replica in world.replicas]


def _chosen(walk: Walk, most: int) -> tuple[list[Divergence], dict[str, int]]:
    """The findings to list, in causal order, and how many of each rule are left out."""
    ordered = walk.roles.ordered
    counted: Counter[str] = sum((Counter(replica.counted) for replica in replicas_of(walk)), Counter())
    if not most or len(ordered) + counted.total() <= most:
        return ordered, {}
    causes = walk.roles.causes
    heads = [one for one in ordered if id(one) not in causes]
    heads.sort(key=lambda one: one is not walk.roles.first)
    others = [one for one in ordered if id(one) in causes]
    kept = {id(one) for one in [*heads, *others][:most]}
    left_out = counted + Counter(one.rule for one in ordered if id(one) not in kept)
    return [one for one in ordered if id(one) in kept], dict(sorted(left_out.items()))


def recorded_stages(walk: Walk, divergence: Divergence) -> frozenset[str]:
    """The stages of which the finding's replica recorded anything."""
    replica = next(one for one in replicas_of(walk) if one.index == divergence.replica)
    return frozenset(site.stage for view in replica.views.values() for site in view.covered)


def _last_agreement(walk: Walk, first: Divergence | None) -> Place | None:
    if first is None:
        return None
    replica = next(one for one in replicas_of(walk) if one.index == first.replica)
    before = [group for group in replica.agreements if group.order < first.orders[first.replica]]
    return place(before[-1]) if before else None


def _site_counts(notes: Iterable[tuple[ReplicaWalk, list[SiteNote]]]) -> tuple[SiteCount, ...]:
    """Harmless differences counted by site and field; of each replica only those before its first finding."""
    counts: Counter[tuple[str | None, str]] = Counter()
    for replica, found in notes:
        limit = min((one.orders[replica.index] for one in replica.divergences), default=None)
        counts.update((note.site, note.field) for note in found if limit is None or note.order < limit)
    ordered = sorted(counts.items(), key=lambda entry: (entry[0][0] or "", entry[0][1]))
    return tuple(SiteCount(site, name, count) for (site, name), count in ordered)


def _progress(walk: Walk, names: Names) -> Progress:
    behind = [names.name(world.world, rank) for world in walk.worlds if world.waits for rank in world.waits.behind]
    ahead = [names.name(world.world, rank) for world in walk.worlds if world.waits for rank in world.waits.ahead]
    cycles = [(world.world, cycle) for world in walk.worlds if world.waits for cycle in world.waits.cycles]
    cycle = [names.name(world, rank) for world, ranks in cycles[:1] for rank in ranks]
    waits = [
        Wait(
            names.name(world.world, edge.waiter[1]),
            names.name(world.world, edge.awaited[1]),
            edge.comm,
            edge.number if edge.number >= 0 else None,
        )
        for world in walk.worlds
        if world.waits
        for edge in world.waits.edges
    ]
    return Progress(tuple(behind), tuple(ahead), tuple(cycle), tuple(waits))


def _replica(world: WorldWalk, replica: ReplicaWalk) -> Replica:
    here = [one for one in world.divergences if replica.index in one.orders]
    head = min(here, key=lambda one: one.orders[replica.index], default=None)
    return Replica(
        id=replica.index,
        world=world.world,
        ranks=tuple(sorted(replica.replica.ranks)),
        attn_tp=replica.replica.attn_tp,
        verdict=of_replica(world, replica),
        requests=len(replica.requests),
        rounds=sum(replica.requests.values()),
        first=None if head is None else finding_id(head),
    )


def _timeouts(walk: Walk, names: Names) -> tuple[Timeout, ...]:
    found = []
    for timeout in walk.timeouts:
        text = timeout.text
        found.append(
            Timeout(
                ranks=tuple(names.name(timeout.world, rank) for rank in timeout.ranks),
                comm=timeout.comm,
                comm_seq=timeout.comm_seq,
                op=timeout.op,
                source=timeout.source,
                text=coverage_words.place(timeout.operations[0].last) if text is None else text,
            )
        )
    return tuple(found)


def _extent(walk: Walk) -> str:
    replicas = [replica for replica in replicas_of(walk) if replica.views]
    evidence = walk.evidence
    if evidence is not None and not replicas:
        held = {rank for group in evidence.groups if len(group.lanes) > 1 for rank in group.lanes}
        return verdict_words.extent_of_dumps(len(held), evidence.compared)
    ranks = sum(len(replica.views) for replica in replicas)
    rounds = sum(sum(replica.requests.values()) for replica in replicas)
    requests = sum(len(replica.requests) for replica in replicas)
    steps = [replica.agreed_step for replica in replicas if replica.agreed_step is not None]
    return verdict_words.extent_compared(ranks, len(replicas), rounds, requests, max(steps, default=None))


def _notes(walk: Walk) -> list[str]:
    replicas = replicas_of(walk)
    decisions = any(view.covered for replica in replicas for view in replica.views.values())
    told = verdict_words.notes(
        healed_without_after=sum(len(replica.unsettled) for replica in replicas),
        overridden=sum(len(replica.overridden) for replica in replicas),
        by_clock=walk.roles.by_clock,
        meta_conflict=any(world.meta_conflict for world in walk.worlds),
        no_decision=not decisions,
        tokens_apart=any(len(set(replica.token_keys.values())) > 1 for replica in replicas),
        by_evidence=walk.evidence is not None and not walk.traces.ranks,
    )
    grouped = [note for world in walk.worlds for note in world.topology.notes]
    outside = [] if walk.evidence is None else [*walk.notes, *evidence_report.notes(walk.evidence)]
    return [*walk.traces.notes, *grouped, *told, *outside]


def _next(walk: Walk, first: Divergence | None, absent: list[tuple[int, int]], many: bool) -> list[str]:
    """One check; without a finding, those that the evidence asks for."""
    asked = [] if walk.evidence is None or first is not None else evidence_report.next_checks(walk.evidence)
    if asked and not walk.traces.ranks:
        return asked
    told = verdict_words.next_check(walk.outcome, first, absent, walk.missing_fields, many)
    return told or asked
