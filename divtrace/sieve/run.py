"""From paths to a walk without holding the traces: sieve every replica, load the suspects, walk them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from divtrace.align.view import Scope, Summary
from divtrace.events import Meta
from divtrace.sieve.facts import RankFacts, ReplicaFacts
from divtrace.sieve.listing import EVERYTHING, Listing
from divtrace.sieve.operations import OperationTable
from divtrace.sieve.parted import give_back_unconfirmed
from divtrace.sieve.pool import run_tasks
from divtrace.sieve.select import Wanted, load_wanted
from divtrace.sieve.surroundings import first_steps, wants_more
from divtrace.sieve.survey import RankFiles, survey
from divtrace.sieve.task import ReplicaTask
from divtrace.timing import stage
from divtrace.topology import RankGroup
from divtrace.trace.discover import Discovery
from divtrace.trace.model import Damage, RankId, RankTrace, Record, Traces
from divtrace.walk.run import Walk, walk
from divtrace.walk.settings import GroupFlags, world_topology
from divtrace.walk.world import Sieved

if TYPE_CHECKING:
    from divtrace.sieve.cluster import Cluster

_MOST_PASSES = 6
Progress = Callable[[int], None]
Beside = Callable[[Walk], Walk]
"""Adds to a walk what dumps and logs beside the traces tell."""


class SievedWorld(msgspec.Struct):
    """One world after the sieve."""

    operations: OperationTable
    replicas: dict[RankGroup, ReplicaFacts] = msgspec.field(default_factory=dict)
    wanted_steps: dict[RankGroup, set[int]] = msgspec.field(default_factory=dict)
    """By replica: steps to load as a whole."""


def sieve(
    found: Discovery,
    run: str | None,
    flags: GroupFlags,
    jobs: int | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
    listing: Listing = EVERYTHING,
    beside: Beside | None = None,
) -> Walk:
    """Walk an input of files that are in order.

    Args:
        found: the input.
        run: which run to read, where there are several.
        flags: sizes and groups from the command line.
        jobs: processes to use at most; None for the number of cores.
        progress: called with the bytes read so far.
        cluster: whose workers read all files but for their beginnings; None for this machine.
        listing: findings that it leaves out may be counted only.
        beside: adds to a walk what other evidence tells. It is held against all collectives.

    Raises:
        DivtraceError: a replica's workers died.
        NotSievableError: the input has to be loaded as a whole.
        TopologyError: sizes do not divide.
    """
    with stage("survey"):
        files = survey(found.sources, run)
        worlds_found = sorted({world for world, _ in files})
        tasks = [task for world in worlds_found for task in _tasks(world, files, flags, listing)]
    with stage("sieve") as sieving:
        if cluster is None:
            results = run_tasks(tasks, jobs, progress)
        else:
            from divtrace.sieve.cluster import run_on

            results = run_on(cluster, tasks, progress)
        for task, result in zip(tasks, results, strict=True):
            sieving.part(task.name, result.cost)
    is_clean = not any(result.facts.suspects or result.facts.irregular for result in results)
    worlds: dict[int, SievedWorld] = {}
    for task, result in zip(tasks, results, strict=True):
        one = worlds.get(task.world)
        if one is None:
            one = worlds[task.world] = SievedWorld(OperationTable(task.world, task.topology, task.present))
        one.operations.merge(result.operations)
        for req in listing.whole & result.facts.requests.keys():
            result.facts.suspects.setdefault(req, None)
        one.replicas[task.replica.ranks] = result.facts
        one.wanted_steps[task.replica.ranks] = first_steps(result.facts, is_clean=is_clean)
    return _walk(found, files, worlds, flags, cluster, listing, beside)


def _tasks(
    world: int, files: Mapping[RankId, RankFiles], flags: GroupFlags, listing: Listing = EVERYTHING
) -> list[ReplicaTask]:
    here = {rank: one for (w, rank), one in files.items() if w == world}
    groups = world_topology(sorted(here), {rank: tuple(one.metas) for rank, one in here.items()}, flags)
    tasks = []
    for replica in groups.replicas:
        inside = {rank: here[rank] for rank in sorted(replica.ranks) if rank in here}
        if inside:
            tasks.append(ReplicaTask(world, replica, groups, inside, frozenset(here), listing))
    return tasks


def _walk(
    found: Discovery,
    files: Mapping[RankId, RankFiles],
    worlds: dict[int, SievedWorld],
    flags: GroupFlags,
    cluster: Cluster | None,
    listing: Listing,
    beside: Beside | None,
) -> Walk:
    """Load what is wanted and walk it; load more as long as the walk needs it."""
    loaded: dict[RankId, tuple[Wanted, RankTrace]] = {}
    for _ in range(_MOST_PASSES):
        with stage("load") as loading:
            todo: dict[RankId, tuple[RankFacts, Wanted]] = {}
            for world, sieved in worlds.items():
                for replica, facts in sieved.replicas.items():
                    for rank, one in facts.ranks.items():
                        wanted = _wanted(sieved, replica, facts, one, collectives=beside is not None)
                        before = loaded.get((world, rank))
                        if before is None or before[0] != wanted:
                            todo[world, rank] = (one, wanted)
            for rank_id, records in _load(todo, cluster):
                one, wanted = todo[rank_id]
                loaded[rank_id] = (wanted, _trace(rank_id, one, records))
                loading.events += len(records)
        traces = _traces(found, files, worlds, {rank: trace for rank, (_, trace) in sorted(loaded.items())})
        with stage("walk"):
            result = walk(traces, flags, {world: _sieved(one) for world, one in worlds.items()}, _missing(worlds))
        if beside is not None:
            result = beside(result)
        if not (_unconfirmed(result, worlds, listing) or wants_more(result, worlds)):
            break
    return result


def _wanted(
    sieved: SievedWorld, replica: RankGroup, facts: ReplicaFacts, one: RankFacts, *, collectives: bool
) -> Wanted:
    suspects = sieved.operations.suspects
    mine = frozenset((comm.name, number) for comm, number in suspects if one.rank in comm.ranks)
    return Wanted(
        frozenset(facts.suspects.keys() - facts.parted.keys()),
        frozenset(sieved.wanted_steps[replica]),
        frozenset(one.keep),
        mine,
        frozenset(facts.parted),
        facts.parted_steps,
        collectives,
    )


def _load(
    todo: Mapping[RankId, tuple[RankFacts, Wanted]], cluster: Cluster | None
) -> Iterator[tuple[RankId, list[Record]]]:
    if cluster is None:
        yield from ((rank, load_wanted(facts, wanted)) for rank, (facts, wanted) in todo.items())
    else:
        from divtrace.sieve.cluster import load_on

        yield from load_on(cluster, todo)


def _trace(rank: RankId, facts: RankFacts, records: list[Record]) -> RankTrace:
    reading = facts.reading
    metas = reading.metas
    return RankTrace(
        id=rank,
        metas=metas,
        records=records,
        gaps=reading.gaps,
        lost=reading.lost,
        starts_at_zero=reading.first_seq == 0,
        has_seq=True,
        dropped=max((meta.dropped for meta in metas if meta.dropped is not None), default=0),
        files=reading.files,
    )


def _traces(
    found: Discovery,
    files: Mapping[RankId, RankFiles],
    worlds: Mapping[int, SievedWorld],
    ranks: dict[RankId, RankTrace],
) -> Traces:
    readings = [
        one.reading for world in worlds.values() for facts in world.replicas.values() for one in facts.ranks.values()
    ]
    unknown: dict[str, int] = {}
    for reading in readings:
        for name, count in reading.unknown.items():
            unknown[name] = unknown.get(name, 0) + count
    facts = [fact for one in files.values() for fact in one.facts]
    for fact in facts:
        for name, count in fact.unknown_fields.items():
            unknown[name] = unknown.get(name, 0) + count
    converted = {source.path for one in files.values() if one.facts for source in one.sources}
    names = {source.name for source in found.sources if source.path not in converted}
    metas: list[Meta] = [meta for one in files.values() for meta in one.metas]
    bad = [damage for reading in readings for damage in reading.bad]
    damage = [*found.damage, *bad, *(one for reading in readings for one in reading.damage)]
    damage += [Damage(one.file, one.line, one.what) for fact in facts for one in fact.damage]
    return Traces(
        ranks=ranks,
        files=tuple(sorted(names.union(*(fact.files for fact in facts)))),
        ignored_files=found.ignored_files + sum(fact.ignored_files for fact in facts),
        damage=sorted(damage, key=lambda one: (one.file, one.line or 0, one.what)),
        bad_lines=len(bad) + sum(fact.bad_lines for fact in facts),
        unknown_fields=dict(sorted(unknown.items())),
        duplicates=sum(fact.duplicates for fact in facts),
        notes=[note for fact in facts for note in fact.notes],
        runs=tuple(sorted({meta.run for meta in metas if meta.run is not None})),
        shared_metas=[meta for fact in facts for meta in fact.shared_metas],
    )


def _sieved(world: SievedWorld) -> Sieved:
    facts = {rank: one for replica in world.replicas.values() for rank, one in replica.ranks.items()}
    return Sieved(
        summaries={
            rank: Summary(
                events=one.events,
                covered=frozenset(one.covered),
                first_of_step=one.first_of_step,
                last_of_step=one.last_of_step,
                overlapped=one.overlapped,
                closed=one.closed,
                last_model=one.last_model,
            )
            for rank, one in facts.items()
        },
        scopes={
            ranks: Scope(
                frozenset(one.suspects.keys() - one.parted.keys()),
                frozenset(world.wanted_steps[ranks]),
                frozenset(one.parted),
                one.parted_steps,
            )
            for ranks, one in world.replicas.items()
        },
        requests={ranks: one.requests for ranks, one in world.replicas.items()},
        partial={ranks: one.partial for ranks, one in world.replicas.items()},
        counted={
            ranks: dict(sum((Counter(counted.behind) for counted in one.parted.values()), Counter()))
            for ranks, one in world.replicas.items()
        },
        agreed_steps={ranks: one.agreed_step for ranks, one in world.replicas.items()},
        agreed=frozenset(ranks for ranks, one in world.replicas.items() if one.agreed),
        last_numbers={
            (communicator, rank): number
            for rank, one in facts.items()
            for communicator, number in one.last_numbers.items()
        },
        matched=frozenset(world.operations.matched),
    )


def _missing(worlds: Mapping[int, SievedWorld]) -> tuple[str, ...]:
    lists: Sequence[tuple[str, ...]] = [one.missing for world in worlds.values() for one in world.replicas.values()]
    everywhere = set(lists[0]).intersection(*lists[1:]) if lists else set()
    return tuple(name for name in (lists[0] if lists else ()) if name in everywhere)


def _unconfirmed(result: Walk, worlds: dict[int, SievedWorld], listing: Listing) -> bool:
    """Give requests back to the walk that it does not count like the sieve; True if there are any."""
    found = False
    for world in result.worlds:
        replicas = worlds[world.world].replicas
        for replica in world.replicas:
            facts = replicas.get(replica.replica.ranks)
            if facts is not None and give_back_unconfirmed(facts, replica, listing):
                found = True
    return found
