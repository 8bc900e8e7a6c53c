"""What all forwards of one rank share: sizes, launches, collectives, pipeline stages, KV slots."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from simulator.drafting import Draft
from simulator.faults import NoFault
from simulator.network import Delivery, Operation
from simulator.recorder import Recorder, Sequence
from simulator.scenario import RequestPlan, Scenario
from simulator.slots import SlotPool
from simulator.tokens import mix

Program = Generator[Operation, Delivery, None]


@dataclass
class Step:
    """What one rank holds during one step."""

    number: int
    batch: list[Sequence]
    prefill: bool
    gate: bool = True
    padded: int = 0
    drafts: dict[str, Draft] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """Rows launched, by request."""
    limits: dict[str, int] = field(default_factory=dict)
    """`verify_len`, by request; unlike the rows only where a cap limits the accept."""
    targets: list[int] = field(default_factory=list)


class ForwardRank(Recorder):
    """A rank that can launch forwards and place rows into slots."""

    hidden = 64

    def __init__(self, scenario: Scenario, rank: int, fault: NoFault) -> None:
        super().__init__(scenario, rank, fault)
        self.algorithm = scenario.algorithm
        self.model = scenario.model
        self.pool = SlotPool(rank, scenario.seed)
        self.data_index = self.topology.coordinates(rank).data
        self.running: list[Sequence] = []
        self.plans: dict[str, RequestPlan] = {}
        self.pending: list[Any] = []
        self.shared_prefix: dict[int, int] = {}
        self.now = scenario.first_step

    # Groups

    def attention_group(self) -> tuple[str, tuple[int, ...]]:
        members = self.topology.attn_tp(self.rank)
        return ("tp" if members == self.topology.tp(self.rank) else "attn_tp"), members

    def sync_source(self) -> dict[str, Any]:
        members = self.topology.sync_group(self.rank)
        return {"comm_ranks": list(members), "src": members[0]}

    def broadcast(self, step: Step, site: str, values: list[Any]) -> Generator[Operation, Delivery, list[Any]]:
        """The values of the first rank of the sync group."""
        members = self.topology.sync_group(self.rank)
        comm = "attn_tp" if self.topology.data > 1 and members != self.topology.tp(self.rank) else "tp"
        given = yield from self.collective(
            comm, members, "broadcast", site, step.number, len(values), src=members[0], payload=values
        )
        return list(given[members[0]]) if members[0] in given else values

    # Sizes and launches

    def agree_on_size(self, step: Step) -> Program:
        """With several replicas, every step begins with the row counts of all of them."""
        width = self.algorithm.drafts + 1
        rows = sum(seq.prompt for seq in step.batch) if step.prefill else len(step.batch) * width
        if self.topology.data > 1:
            members = self.topology.tp(self.rank)
            dummy = not step.batch
            given = yield from self.collective(
                "tp", members, "all_gather", "mlp-sync", step.number, 11, payload=rows, dummy=dummy
            )
            heard = [given[r] for r in given if r == self.topology.attn_tp(r)[0]]
            rows = max(heard, default=rows)
        step.padded = -(-rows // 4) * 4

    def launch(self, step: Step, stage: str, rows: int, payload: list[int]) -> Program:
        """Records the launch, then runs the forward's collectives."""
        padded = step.padded if self.topology.data > 1 else -(-rows // 4) * 4
        padded = self.decide(stage, "launch", "padded_tokens", padded, step.number)
        extra = {"shape.pages": -(-rows // 16), "info.rank": self.rank} if self.scenario.extras else None
        self.emit(
            stage,
            "launch",
            step.number,
            num_tokens=self._share_of(rows) if stage == "prefill" else rows,
            batch_size=len(step.batch),
            shape=[padded, self.hidden],
            dtype="bfloat16",
            decided={
                "padded_tokens": padded,
                "graph": "eager" if stage == "prefill" else f"t{padded}",
                "dummy": None if step.batch else True,
            },
            extra=extra,
        )
        # With several replicas only the collectives that span them are padded to one size.
        size = (padded if stage == "verify" and self.topology.data == 1 else rows) * self.hidden
        yield from self._from_earlier_stage(step, size)
        group = self.attention_group()
        operations: list[tuple[str, tuple[int, ...], str, str, int]] = []
        if step.batch:
            operations.append((*group, "all_reduce", "attn-out", size))
            if self.topology.context > 1:
                operations.append(("attn_cp", self.topology.attn_cp(self.rank), "all_gather", "cp-gather", size))
        if self.topology.data > 1:
            operations.append(("tp", self.topology.tp(self.rank), "all_gather", "moe", step.padded * self.hidden))
        step.targets = payload
        for comm, members, op, site, numel in self.decide("collective", "forward", "order", operations, step.number):
            given = yield from self.collective(
                comm, members, op, site, step.number, numel, payload=payload, dummy=not step.batch
            )
            if site == "attn-out":
                step.targets = given.get(members[0], payload)
        yield from self._to_later_stage(step, size)

    def _share_of(self, rows: int) -> int:
        """Prefill rows are split between context-parallel peers; the first ones take the rest."""
        size = self.topology.context
        return rows // size + (self.topology.coordinates(self.rank).context < rows % size)

    def idle(self, step: Step) -> Program:
        """A dummy batch, so that the collectives that span replicas find all their members."""
        if self.topology.data > 1:
            yield from self.launch(step, "verify", 0, payload=[])

    # Pipeline stages

    def _from_earlier_stage(self, step: Step, numel: int) -> Program:
        if step.batch and self.topology.coordinates(self.rank).pipeline > 0:
            sender = self.rank - self.topology.tp_size
            pair = (sender, self.rank)
            yield from self.collective("pp", pair, "recv", "pp-hidden", step.number, numel, src=sender)

    def _to_later_stage(self, step: Step, numel: int) -> Program:
        if step.batch and not self.topology.is_last_stage(self.rank):
            pair = (self.rank, self.rank + self.topology.tp_size)
            yield from self.collective("pp", pair, "send", "pp-hidden", step.number, numel, src=self.rank)

    def share_result(
        self, step: Step, numel: int, result: dict[str, Any]
    ) -> Generator[Operation, Delivery, dict[str, Any]]:
        """The last stage decides; the stages before it learn the outcome."""
        lane = self.topology.lane(self.rank)
        if len(lane) == 1 or not step.batch:
            return result
        given = yield from self.collective(
            "pp-out", lane, "broadcast", "pp-tokens", step.number, numel, src=lane[-1], payload=result
        )
        answer: dict[str, Any] = given.get(lane[-1], result)
        return answer

    # KV slots

    def place(self, seq: Sequence, positions: list[int], with_prefix: bool = False) -> dict[str, Any]:
        """Slots for rows at `positions`, as far as this context-parallel peer owns them."""
        here = self.topology.coordinates(self.rank).context
        owned = [p for p in positions if p % self.topology.context == here]
        prefix = [p for p in range(seq.prefix) if p % self.topology.context == here] if with_prefix else []
        for position in prefix:
            if position not in self.shared_prefix:
                self.shared_prefix[position] = self.pool.take(1)[0]
        slots = [self.shared_prefix[position] for position in prefix] + self.pool.take(len(owned))
        seq.slots.update(zip(owned, slots[len(prefix) :], strict=True))
        return {"kv_positions": prefix + owned, "kv_slots": slots}

    def forget_rejected(self, seq: Sequence, length: int) -> None:
        """Rows at or past the confirmed length are dead after the commit."""
        dead = [position for position in seq.slots if position >= length]
        self.pool.give_back([seq.slots.pop(position) for position in dead])

    def release(self, seq: Sequence) -> None:
        """The request leaves this rank, and its slots come back."""
        self.running = [other for other in self.running if other is not seq]
        self.pool.give_back(list(seq.slots.values()))
        seq.slots.clear()

    def layout_extras(self, seq: Sequence, rows: int) -> dict[str, Any]:
        if not self.scenario.extras:
            return {}
        return {
            "extra": {
                "control.grammar": mix(seq.context, 41) % 3,
                "info.rank": self.rank,
                "layout.window": seq.seq_len // 16,
                "physical.pages": [slot // 16 for slot in seq.slots.values()][:2],
                "shape.block_table": [-(-(seq.seq_len + rows) // 16)],
            }
        }
