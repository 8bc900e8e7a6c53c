"""Runs a scenario and hands out what every rank recorded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from simulator.faults import NoFault
from simulator.network import Operation, run_programs
from simulator.rank import Rank
from simulator.recorder import Record
from simulator.scenario import Scenario

TIMEOUT = 300_000_000_000
"""How long a rank waits for its peers, in ns."""


@dataclass
class Run:
    """The traces of one run: meta and events of every rank, and the operations that never completed."""

    scenario: Scenario
    metas: dict[int, Record]
    records: dict[int, list[Record]]
    stuck: dict[int, Operation] = field(default_factory=dict)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.records))

    def find(self, rank: int, **wanted: object) -> list[Record]:
        """The events of a rank whose fields have these values; a missing field counts as None."""
        return [r for r in self.records[rank] if all(r.get(name) == value for name, value in wanted.items())]

    def events(self) -> Iterator[tuple[int, Record]]:
        for rank in self.ranks:
            for record in self.records[rank]:
                yield rank, record

    def copy(self) -> Run:
        return Run(self.scenario, copy.deepcopy(self.metas), copy.deepcopy(self.records), dict(self.stuck))

    def edited(self, edit: Callable[[int, Record], Record | None]) -> Run:
        """A copy in which every event went through `edit`; None takes the event away and leaves a gap in `seq`."""
        run = self.copy()
        for rank in run.ranks:
            edited = [edit(rank, record) for record in run.records[rank]]
            run.records[rank] = [record for record in edited if record is not None]
        return run


def simulate(scenario: Scenario, fault: NoFault | None = None) -> Run:
    """Runs all ranks of one world, to the end or until all of them wait."""
    ranks = {rank: Rank(scenario, rank, fault or NoFault()) for rank in scenario.topology.ranks}
    stuck = run_programs({rank: each.program() for rank, each in ranks.items()})
    if scenario.timeouts:
        for rank, operation in stuck.items():
            ranks[rank].time += TIMEOUT
            ranks[rank].emit_operation(operation, "timeout")
    return Run(
        scenario,
        {rank: each.meta() for rank, each in ranks.items()},
        {rank: each.records for rank, each in ranks.items()},
        stuck,
    )
