"""Turns divergences into the findings of the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

from msgspec import UNSET

from divtrace.align.groups import Group
from divtrace.explain.finding import attribution
from divtrace.report.model import FieldDifference, Finding, Lag, Place, Role, Where
from divtrace.trace.model import Record
from divtrace.walk.divergence import Divergence
from divtrace.walk.roles import Cause, Roles

RankKey = Callable[[int, int], str]
"""(world, rank) to the key under which the report lists values of that rank."""


def finding_id(divergence: Divergence) -> str:
    """An id that follows from the finding's key alone, so that it is the same in every run over the same trace."""
    import hashlib  # not wanted where nothing was found

    key = divergence.key
    parts: list[object] = [
        divergence.world,
        divergence.replica,
        key.req,
        key.attempt,
        key.round,
        divergence.step,
        key.stage,
        key.site,
    ]
    parts += [key.phase, key.n]
    if divergence.communicator is not None:
        communicator = divergence.communicator
        parts += [communicator.comm, list(communicator.comm_ranks), communicator.comm_seq, divergence.field == "comm"]
    text = json.dumps(parts, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def where(record: Record) -> Where:
    """Where a record stands."""
    return Where(record.file, row=record.line) if record.is_row else Where(record.file, line=record.line or None)


def lag(cause: Divergence, effect: Divergence) -> Lag:
    """The distance between two findings, on the lowest rank that recorded both."""
    same_request = cause.key.req is not None and (cause.key.req, cause.key.attempt) == (
        effect.key.req,
        effect.key.attempt,
    )
    rounds = None
    if same_request and cause.key.round is not None and effect.key.round is not None:
        rounds = effect.key.round - cause.key.round
    steps = None if cause.step is None or effect.step is None else effect.step - cause.step
    events = ns = None
    for rank in sorted(cause.records.keys() & effect.records.keys()):
        before, after = cause.records[rank], effect.records[rank]
        if before is not None and after is not None:
            # Positions in a trace and in a dump are no distance; nor are those in different files of evidence.
            if cause.outside == effect.outside and (not cause.outside or before.file == after.file):
                events = after.pos - before.pos
            if before.event.ts is not None and after.event.ts is not None:
                ns = after.event.ts - before.event.ts
            break
    return Lag(rounds, steps, events, ns)


def place(group: Group) -> Place:
    """The key of an event as the report writes it."""
    key = group.key
    return Place(
        req=key.req,
        attempt=None if key.req is None else key.attempt,
        round=key.round,
        step=group.step,
        stage=key.stage,
        site=key.site,
        phase=key.phase,
        n=key.n,
    )


def finding(divergence: Divergence, roles: Roles, recorded_stages: Collection[str], rank_key: RankKey) -> Finding:
    """One finding of the report."""
    key, world = divergence.key, divergence.world
    cause = roles.causes.get(id(divergence))
    derived_from = cause.of if cause is not None and cause.link == "derived" else None
    communicator = divergence.communicator
    decided_on = {
        rank_key(world, rank): record.event.decided_on
        for rank, record in divergence.records.items()
        if record is not None and record.event.decided_on is not None
    }
    return Finding(
        id=finding_id(divergence),
        rule=divergence.rule,
        also=divergence.also,
        rule_class=divergence.rule_class,
        role=_role(divergence, roles, cause),
        world=world,
        ranks=divergence.ranks,
        replica=divergence.replica,
        req=key.req,
        attempt=None if key.req is None else key.attempt,
        round=key.round,
        step=divergence.step,
        stage=key.stage,
        site=key.site,
        phase=key.phase,
        n=key.n,
        comm=UNSET if communicator is None else communicator.comm,
        comm_ranks=UNSET if communicator is None else communicator.comm_ranks or None,
        comm_seq=UNSET if communicator is None else communicator.comm_seq,
        field=divergence.field,
        index=divergence.index,
        values=_by_rank(divergence.values, world, rank_key),
        fields=tuple(
            FieldDifference(one.name, one.index, _by_rank(one.values, world, rank_key))
            for one in divergence.differences
        ),
        odd_ranks=divergence.odd_ranks,
        attribution=attribution(divergence, derived_from, recorded_stages),
        where={
            rank_key(world, rank): where(record)
            for rank, record in sorted(divergence.records.items())
            if record is not None
        },
        decided_on=decided_on or UNSET,
        caused_by=UNSET if cause is None else finding_id(cause.of),
        link=UNSET if cause is None else cause.link,
        lag=UNSET if cause is None else lag(cause.root, divergence),
    )


def _role(divergence: Divergence, roles: Roles, cause: Cause | None) -> Role:
    if divergence is roles.first:
        return "origin"
    return "independent" if cause is None else "consequence"


def _by_rank(values: Mapping[int, object], world: int, rank_key: RankKey) -> dict[str, object]:
    return {rank_key(world, rank): value for rank, value in sorted(values.items())}
