"""One rank's recorder: numbers and times the events, and asks the fault about every recorded value."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from simulator.faults import At, NoFault
from simulator.network import Delivery, Operation
from simulator.scenario import Scenario

EPOCH = 1_767_225_600_000_000_000
HALF_RACK_SKEW = 2_400_000_000
"""The second host's clock is ahead, in ns."""
Record = dict[str, Any]


@dataclass
class Sequence:
    """One request as one rank sees it."""

    name: str
    context: int
    prompt: int
    new_tokens: int
    chunks: int = 1
    prefix: int = 0
    attempt: int = 0
    round: int = 0
    seq_len: int = 0
    root: int = -1
    generated: int = 0
    chunk: int = 0
    finished: str = ""
    slots: dict[int, int] = field(default_factory=dict)
    early_draft: Any = None


class Recorder:
    """Records of one rank, and its own counters for the communicators."""

    def __init__(self, scenario: Scenario, rank: int, fault: NoFault) -> None:
        self.scenario = scenario
        self.topology = scenario.topology
        self.rank = rank
        self.fault = fault
        self.records: list[Record] = []
        self._count = 0
        self._clock = random.Random(scenario.seed * 7919 + rank)
        second_host = rank >= len(self.topology.ranks) / 2
        self.time = EPOCH + (HALF_RACK_SKEW if second_host else 0)
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}

    def meta(self) -> Record:
        scenario = self.scenario
        meta: Record = {
            "kind": "meta",
            "format": "divtrace.trace/1",
            "run": scenario.run,
            "world": scenario.world,
            "rank": self.rank,
            "host": "node-a" if self.rank < len(self.topology.ranks) / 2 else "node-b",
            "pid": 4000 + 7 * self.rank,
            "engine": {"name": "sglang", "version": "0.5.23"},
            "algorithm": scenario.algorithm.name,
            "device": "cuda",
            "backend": "nccl",
            "parallel": self.topology.parallel(),
            "sync": "all" if scenario.algorithm.synced else "",
            "dropped": 0,
        }
        return {name: value for name, value in meta.items() if value is not None}

    def decide(
        self,
        stage: str,
        site: str,
        name: str,
        value: Any,
        step: int | None,
        seq: Sequence | None = None,
        phase: str = "used",
        n: int = 0,
        round_: int | None = None,
    ) -> Any:
        """The value that this rank decides for, after the fault had its say."""
        at = At(
            rank=self.rank,
            stage=stage,
            site=site,
            field=name,
            step=step,
            req=seq.name if seq else None,
            attempt=seq.attempt if seq else None,
            round=round_ if round_ is not None else seq.round if seq else None,
            phase=phase,
            n=n,
        )
        return self.fault.decide(at, value)

    def emit(
        self,
        stage: str,
        site: str,
        step: int | None,
        seq: Sequence | None = None,
        *,
        phase: str = "used",
        n: int = 0,
        round_: int | None = None,
        without_round: bool = False,
        decided: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Records one event. The fault is asked about `fields`, not about those already `decided`."""
        if not self.decide(stage, site, "recorded", True, step, seq, phase, n, round_):
            return
        self.time += self._clock.randrange(30_000, 200_000)
        record: Record = {"seq": self._count, "ts": self.time, "step": step, "stage": stage, "site": site}
        self._count += 1
        if seq is not None:
            record["req"] = seq.name
            if seq.attempt:
                record["attempt"] = seq.attempt
            if not without_round:
                record["round"] = seq.round if round_ is None else round_
        if phase != "used":
            record["phase"] = phase
        if n:
            record["n"] = n
        for name, value in fields.items():
            record[name] = self.decide(stage, site, name, value, step, seq, phase, n, round_)
        record.update(decided or {})
        self.records.append({name: value for name, value in record.items() if value is not None})

    def collective(
        self,
        comm: str,
        members: tuple[int, ...],
        op: str,
        site: str,
        step: int,
        numel: int,
        *,
        src: int | None = None,
        payload: Any = None,
        dummy: bool = False,
    ) -> Generator[Operation, Delivery, dict[int, Any]]:
        """Issues one operation and waits for it. Returns what every member put in."""
        if len(members) == 1:
            return {self.rank: payload}
        if not self.decide("collective", site, "issued", True, step):
            return {self.rank: payload}
        operation = Operation(
            comm=comm,
            comm_ranks=members,
            op=self.decide("collective", site, "op", op, step),
            site=self.decide("collective", site, "site", site, step),
            step=step,
            numel=self.decide("collective", site, "numel", numel, step),
            src=self.decide("collective", site, "src", src, step),
            payload=payload,
            dummy=dummy,
        )
        key = (comm, members)
        operation.number = self._numbers.get(key, self.scenario.first_number)
        self._numbers[key] = operation.number + 1
        self.emit_operation(operation, "enqueued")
        operation.time = self.time
        delivery = yield operation
        self.time = max(self.time, delivery.time + (self.time - operation.time)) + 5_000
        if self.scenario.completions:
            self.emit_operation(operation, "completed")
        return delivery.values

    def emit_operation(self, operation: Operation, state: str) -> None:
        self.emit(
            "collective",
            operation.site,
            operation.step,
            decided={
                "comm": operation.comm,
                "comm_ranks": list(operation.comm_ranks),
                "comm_seq": operation.number if self.scenario.numbered else None,
                "op": operation.op,
                "src": operation.src,
                "numel": operation.numel,
                "dummy": True if operation.dummy else None,
                "state": state,
            },
        )
