"""The sieve over one replica as a task: everything it needs and yields can be sent to another process or machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from divtrace.align.steps import packed
from divtrace.events import Meta
from divtrace.sieve.cursor import Cursor, NotSievableError
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.listing import EVERYTHING, Listing
from divtrace.sieve.lockstep import Lockstep
from divtrace.sieve.operations import OperationTable
from divtrace.sieve.survey import RankFiles
from divtrace.timing import Clock, Cost
from divtrace.topology import ReplicaGroup, Topology
from divtrace.walk.settings import setting, token_key


class ReplicaTask(msgspec.Struct, frozen=True):
    """One replica to be sieved."""

    world: int
    replica: ReplicaGroup
    topology: Topology
    files: Mapping[int, RankFiles]
    """By rank, of those that have a trace."""
    present: frozenset[int]
    """All ranks of the world that have a trace."""
    listing: Listing = EVERYTHING

    @property
    def name(self) -> str:
        """World, unless it is 0, and number, as people see it."""
        number = self.topology.replicas.index(self.replica)
        return f"world {self.world}, replica {number}" if self.world else f"replica {number}"

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(source.size or 0 for one in self.files.values() for source in one.sources)


class ReplicaResult(msgspec.Struct, frozen=True):
    """What the sieve found in one replica."""

    facts: ReplicaFacts
    operations: OperationTable
    """With the operations that other replicas have to issue too."""
    cost: Cost
    """What it took; no part of the answer."""


def sieve_replica(task: ReplicaTask, progress: Callable[[int], None] | None = None) -> ReplicaResult:
    """Sieve one replica.

    Args:
        task: the replica.
        progress: called with the bytes read so far.

    Raises:
        NotSievableError: its traces have to be loaded as a whole.
    """
    clock = Clock()
    ranks = sorted(task.files)
    table = OperationTable(task.world, task.topology, task.present)
    metas = [meta for rank in ranks for meta in task.files[rank].metas]
    tokens = {rank: token_key(task.files[rank].metas) for rank in ranks}
    if len(set(tokens.values())) > 1:
        raise NotSievableError("ranks recorded token ids in different ways")
    if any(task.files[rank].parquet for rank in ranks):
        from divtrace.sieve.columnar.task import sieve_columns

        facts = sieve_columns(task, table, setting(metas, "algorithm"), progress)
    else:
        cursors = [Cursor(task.world, rank, task.files[rank].sources) for rank in ranks]
        algorithm = setting(metas, "algorithm")
        lockstep = Lockstep(cursors, task.replica, task.topology, table, algorithm, progress, task.listing)
        facts = lockstep.run()
    if facts.stepless:
        raise NotSievableError("something without a step needs judging")
    for rank in ranks:
        _check_metas(task.files[rank].metas, facts.ranks[rank].reading.metas)
    for one in facts.ranks.values():
        # Nothing is added from here on, so that they need be no dictionaries any more.
        one.first_of_step, one.last_of_step = packed(one.first_of_step, one.last_of_step)  # type: ignore[assignment]
    cost = clock.cost(sum(one.events for one in facts.ranks.values()))
    return ReplicaResult(facts, table, cost)


def _check_metas(before: list[Meta], read: list[Meta]) -> None:
    """The groups were taken from the metas in front of the records; others must not have more to say."""
    for name in ("parallel", "groups", "algorithm"):
        if setting(before, name) != setting(read, name):
            raise NotSievableError(f"a later meta record tells {name}")
