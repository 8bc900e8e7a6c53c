"""The serving loop of one rank: schedule, prefill, and the hand-over to the decode round."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from simulator.decode import DecodeRank, Step
from simulator.faults import RankRaisedError, RankStoppedError
from simulator.network import Delivery, Operation
from simulator.recorder import Sequence
from simulator.scenario import RequestPlan
from simulator.tokens import mix, text_seed

Program = Generator[Operation, Delivery, None]


class Rank(DecodeRank):
    """One rank, from its first to its last event."""

    def program(self) -> Program:
        try:
            yield from self._serve()
        except RankRaisedError as error:
            self.emit("host", "error", self.now, decided={"error": str(error), "error_type": "RuntimeError"})
        except RankStoppedError:
            return

    def _serve(self) -> Program:
        scenario = self.scenario
        self.emit("init", "spec-config", None, num_draft_tokens=scenario.algorithm.drafts + 1)
        self.emit("init", "share-embed", None, gate=True, decided={"pool_free": len(self.pool.free)})
        self.arriving: list[RequestPlan] = list(scenario.requests[self.data_index])
        self.waiting: list[Sequence] = []
        self.returning: list[Sequence] = []
        for offset in range(scenario.steps):
            self.now = scenario.first_step + offset
            yield from self._step(offset)
        self.write_commits()
        self.emit("host", "end", self.now)

    def _step(self, offset: int) -> Program:
        self._admit(offset)
        self._watch(offset)
        batch, mode = self._choose()
        mode = self.decide("schedule", "batch", "forward_mode", mode, self.now)
        dummy = None if batch else True
        free = {"pool_free": len(self.pool.free), "dummy": dummy}
        names = [seq.name for seq in batch]
        self.emit("schedule", "batch", self.now, decided={"forward_mode": mode, "batch": names, **free})
        gate = bool(self.decide("schedule", "spec-gate", "gate", True, self.now))
        if mode == "decode":
            self.emit("schedule", "spec-gate", self.now, decided={"gate": gate})
        self.write_commits()
        step = Step(self.now, batch, prefill=mode == "extend", gate=gate)
        yield from self.agree_on_size(step)
        if step.prefill:
            yield from self._prefill(step)
        elif batch:
            yield from self.decode(step)
        else:
            yield from self.idle(step)
        if self.scenario.drafts_early:
            yield from self.draft_early()

    def _admit(self, offset: int) -> None:
        self.waiting += self.returning
        self.returning = []
        for plan in [plan for plan in self.arriving if plan.arrives <= offset]:
            self.arriving.remove(plan)
            seed = mix(text_seed(plan.name), self.data_index, self.scenario.seed, self.scenario.world or 0)
            seq = Sequence(plan.name, seed, plan.prompt, plan.new_tokens, plan.chunks, plan.prefix)
            self.plans[seq.name] = plan
            age = round(0.5 + self._clock.random() * 20, 3)
            decision = self.decide("schedule", "queue", "decision", "admit", self.now, seq)
            self.emit(
                "schedule",
                "queue",
                self.now,
                seq,
                without_round=True,
                decided={"decision": decision, "decided_on": age},
            )
            if decision == "admit":
                self.waiting.append(seq)

    def _watch(self, offset: int) -> None:
        """Aborts, retractions, and the check of every running request's age by this rank's own clock."""
        if any(offset in (self.plans[s.name].aborted_at, self.plans[s.name].retracted_at) for s in self.running):
            self.write_commits()
        for seq in list(self.running):
            plan = self.plans[seq.name]
            if plan.retracted_at == offset and seq.attempt == 0:
                self._retract(seq)
                continue
            wanted = "abort" if plan.aborted_at == offset else "keep"
            if not (self.scenario.time_limit or wanted == "abort"):
                continue
            decision = self.decide("schedule", "running-timeout", "decision", wanted, self.now, seq)
            age = round(1_000.0 * offset + self._clock.random() * 20, 3)
            self.emit(
                "schedule",
                "running-timeout",
                self.now,
                seq,
                without_round=True,
                decided={"decision": decision, "reason": "age", "decided_on": age},
            )
            if decision == "abort":
                self.release(seq)

    def _retract(self, seq: Sequence) -> None:
        self.emit("schedule", "memory", self.now, seq, without_round=True, decision="retract", reason="pages")
        self.release(seq)
        again = Sequence(seq.name, seq.context, seq.seq_len + 1, seq.new_tokens, attempt=seq.attempt + 1)
        again.generated = seq.generated
        self.returning.append(again)

    def _choose(self) -> tuple[list[Sequence], str]:
        candidates = self.waiting or self.running
        mode = "extend" if self.waiting else "decode" if self.running else "idle"
        names = self.decide("schedule", "batch", "batch", [seq.name for seq in candidates], self.now)
        by_name = {seq.name: seq for seq in candidates}
        for name in by_name.keys() - set(names):
            if by_name[name] in self.running:
                self.release(by_name[name])
        return [by_name[name] for name in names if name in by_name], mode

    def _prefill(self, step: Step) -> Program:
        rows: dict[str, int] = {}
        for row, seq in enumerate(step.batch):
            if seq.chunk == 0:
                seq.prefix = self.decide("prefill", "prefix", "prefix_hit", seq.prefix, step.number, seq)
                self.emit("prefill", "prefix", step.number, seq, decided={"prefix_hit": seq.prefix})
            begin, end = self._chunk(seq)
            rows[seq.name] = end - begin
            positions = list(range(begin, end))
            self.emit(
                "prefill",
                "layout",
                step.number,
                seq,
                n=seq.chunk,
                row=row,
                seq_len=begin,
                positions=positions,
                **self.place(seq, positions, with_prefix=True),
            )
        total = sum(rows.values())
        yield from self.launch(step, "prefill", total, payload=[self.model.target(seq.context) for seq in step.batch])
        last = [seq for seq in step.batch if self._chunk(seq)[1] == seq.prompt]
        first_tokens: dict[str, int] = {}
        if self.topology.is_last_stage(self.rank):
            for seq, token in zip(step.batch, step.targets, strict=False):
                if seq in last:
                    bonus = self.decide("prefill", "target", "bonus", token, step.number, seq)
                    first_tokens[seq.name] = bonus
                    self.emit("prefill", "target", step.number, seq, bonus=bonus, new_seq_len=seq.prompt)
        answer: dict[str, Any] = yield from self.share_result(step, len(step.batch), first_tokens)
        for seq in step.batch:
            seq.chunk += 1
            if seq in last:
                self._begin(seq, answer.get(seq.name, 0))

    def _chunk(self, seq: Sequence) -> tuple[int, int]:
        fresh = max(seq.prompt - seq.prefix, 0)
        size = -(-fresh // seq.chunks)
        begin = seq.prefix + seq.chunk * size
        return begin, min(begin + size, seq.prompt)

    def _begin(self, seq: Sequence, bonus: int) -> None:
        seq.seq_len, seq.root, seq.generated = seq.prompt, bonus, seq.generated + 1
        seq.context = mix(seq.context, bonus)
        self.waiting.remove(seq)
        self.running.append(seq)
