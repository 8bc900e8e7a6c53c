"""One decode step of one rank: draft, verify, accept, commit."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from simulator.drafting import Acceptance, Draft, accept_greedy, accept_sampling, propose, verify
from simulator.forward import ForwardRank, Step
from simulator.network import Delivery, Operation
from simulator.recorder import Sequence
from simulator.tokens import mix

__all__ = ["DecodeRank", "Step"]

Program = Generator[Operation, Delivery, None]


@dataclass
class Commit:
    """A commit that is decided and not yet recorded."""

    seq: Sequence
    step: int
    round: int
    fields: dict[str, Any] = field(default_factory=dict)


class DecodeRank(ForwardRank):
    """Adds the rounds to a rank."""

    pending: list[Commit]

    def decode(self, step: Step) -> Program:
        for seq in step.batch:
            seq.round += 1
        if step.gate:
            yield from self._draft(step)
        yield from self._plan(step)
        self._lay_out(step)
        yield from self.launch(step, "verify", sum(step.rows.values()), payload=self._target_rows(step))
        results: dict[str, Any] = {}
        if self.topology.is_last_stage(self.rank):
            results = yield from self._accept(step)
        answer = yield from self.share_result(step, len(step.batch) * (self.algorithm.drafts + 1), results)
        for seq in step.batch:
            if seq.name in answer and not seq.finished:
                self._commit(step, seq, *answer[seq.name])
        if not self.scenario.overlap:
            self.write_commits()

    # Draft

    def _width(self, step: int) -> int:
        if not self.scenario.adaptive:
            return self.algorithm.drafts
        return int(self.decide("draft", "adaptive", "draft_steps", self.algorithm.drafts - step % 2, step))

    def _draft(self, step: Step) -> Program:
        if not self.topology.is_last_stage(self.rank):
            return
        width = self._width(step.number)
        if self.scenario.adaptive:
            self.emit("draft", "adaptive", step.number, decided={"draft_steps": width, "num_draft_tokens": width + 1})
        fresh = [seq for seq in step.batch if seq.early_draft is None]
        for seq in step.batch:
            if seq.early_draft is not None:
                step.drafts[seq.name], seq.early_draft = seq.early_draft, None
        yield from self._draft_forwards(step, fresh, step.number, width)

    def draft_early(self) -> Program:
        """The drafts of the next round, at the end of this step, under the number of the step that verifies them."""
        drafting = [seq for seq in self.running if not seq.finished]
        if not drafting or not self.topology.is_last_stage(self.rank):
            return
        ahead = Step(self.now, drafting, prefill=False)
        yield from self._draft_forwards(ahead, drafting, self.now + 1, self._width(self.now + 1), ahead=1)
        for seq in drafting:
            seq.early_draft = ahead.drafts[seq.name]

    def _draft_forwards(self, step: Step, batch: list[Sequence], number: int, width: int, ahead: int = 0) -> Program:
        if not batch:
            return
        proposals = {seq.name: propose(self.model, self.algorithm, seq.context, width) for seq in batch}
        if self.algorithm.local_drafts:
            for seq in batch:
                self._emit_draft(seq, number, self._local_proposal(seq, width), ahead, phase="local")
            given = yield from self.broadcast(step, self.algorithm.draft_site, [proposals[seq.name] for seq in batch])
            proposals = dict(zip([seq.name for seq in batch], given, strict=False))
        proposals = {seq.name: self._proposal(seq, number, proposals[seq.name], ahead) for seq in batch}
        per_forward = self.scenario.draft_per_forward
        for forward in range(width if per_forward else 1):
            if per_forward:
                comm, members = self.attention_group()
                size = len(batch) * self.hidden
                yield from self.collective(comm, members, "all_reduce", "draft", step.number, size)
            for seq in batch:
                self._emit_draft(seq, number, proposals[seq.name], ahead, forward=forward if per_forward else None)
        step.drafts.update(proposals)

    def _proposal(self, seq: Sequence, number: int, draft: Draft, ahead: int) -> Draft:
        """What this rank goes on with."""
        site = self.algorithm.draft_site
        tokens = self.decide("draft", site, "draft_tokens", list(draft.tokens), number, seq, round_=seq.round + ahead)
        parents = draft.parents
        if parents is not None:
            wanted = list(parents)
            parents = tuple(self.decide("draft", site, "draft_parents", wanted, number, seq, round_=seq.round + ahead))
        return Draft(tuple(tokens), parents)

    def _local_proposal(self, seq: Sequence, width: int) -> Draft:
        """What this rank's own corpus proposes; only the first rank of the sync group is heard."""
        draft = propose(self.model, self.algorithm, seq.context, width)
        group = self.topology.sync_group(self.rank)
        if draft.tokens and self.rank != group[0] and mix(seq.context, self.rank, 31) % 3 == 0:
            return Draft((*draft.tokens[:-1], (draft.tokens[-1] + 5) % self.model.vocabulary))
        return draft

    def _emit_draft(
        self,
        seq: Sequence,
        number: int,
        draft: Draft,
        ahead: int,
        phase: str = "used",
        forward: int | None = None,
    ) -> None:
        tokens = list(draft.tokens) if forward is None else list(draft.tokens[forward : forward + 1])
        first = forward in (None, 0)
        fields: dict[str, Any] = {}
        if phase == "used" and first:
            fields["draft_root"] = seq.root
            if not self.scenario.adaptive:
                fields |= {"draft_steps": self.algorithm.drafts, "num_draft_tokens": self.algorithm.drafts + 1}
        self.emit(
            "draft",
            self.algorithm.draft_site,
            number,
            seq,
            phase=phase,
            n=forward or 0,
            round_=seq.round + ahead,
            decided={
                "draft_tokens": tokens,
                "draft_parents": None if draft.parents is None else list(draft.parents),
            },
            **fields,
        )

    # Verify

    def _plan(self, step: Step) -> Program:
        algorithm = self.algorithm
        for seq in step.batch:
            drafts = step.drafts.get(seq.name, Draft(()))
            width = len(drafts.tokens) if self.topology.is_last_stage(self.rank) else algorithm.drafts
            step.rows[seq.name] = step.limits[seq.name] = width + 1
        if not algorithm.plans or not step.drafts:
            return
        site = "dspark-plan"
        synced = "plan" in algorithm.synced and len(self.topology.sync_group(self.rank)) > 1
        self.emit("verify", "budget", step.number, verify_budget=2 * len(step.batch))
        own = {seq.name: 2 + mix(seq.context, 37) % (step.rows[seq.name] - 1) for seq in step.batch}
        if synced and algorithm.phases:
            for seq in step.batch:
                own[seq.name] = self.decide("verify", site, "verify_len", own[seq.name], step.number, seq, "local")
                self.emit("verify", site, step.number, seq, phase="local", decided={"verify_len": own[seq.name]})
        performed = self.decide("verify", site, "performed", True, step.number)
        if synced and performed:
            given = yield from self.broadcast(step, site, [own[seq.name] for seq in step.batch])
            own = dict(zip(own, given, strict=False))
        for seq in step.batch if performed else []:
            if synced and algorithm.phases:
                length = self.decide("verify", site, "verify_len", own[seq.name], step.number, seq, "synced")
                own[seq.name] = length
                self.emit(
                    "verify",
                    site,
                    step.number,
                    seq,
                    phase="synced",
                    decided={"verify_len": length},
                    **self.sync_source(),
                )
            length = self.decide("verify", site, "verify_len", own[seq.name], step.number, seq)
            step.limits[seq.name] = length
            self.emit("verify", site, step.number, seq, decided={"verify_len": length})
            if not algorithm.caps:
                step.rows[seq.name] = length

    def _lay_out(self, step: Step) -> None:
        for row, seq in enumerate(step.batch):
            draft = step.drafts.get(seq.name, Draft(()))
            rows = step.rows[seq.name]
            if draft.parents is None:
                positions = [seq.seq_len + j for j in range(rows)]
                kv = self.place(seq, positions)
            else:
                positions = [seq.seq_len + draft.depth(node) for node in range(rows)]
                kv = {}
            self.emit(
                "verify",
                "layout",
                step.number,
                seq,
                row=row,
                seq_len=seq.seq_len,
                positions=positions,
                **kv,
                **self.layout_extras(seq, rows),
            )

    def _target_rows(self, step: Step) -> list[int]:
        """Target tokens of all rows of the batch, in row order."""
        flat: list[int] = []
        for seq in step.batch:
            draft = step.drafts.get(seq.name, Draft(()))
            rows = min(step.rows[seq.name], len(draft.tokens) + 1)
            flat += verify(self.model, draft, seq.context, rows)
        return flat

    # Accept

    def _accept(self, step: Step) -> Generator[Operation, Delivery, dict[str, Any]]:
        own: dict[str, Acceptance] = {}
        rows_left = list(step.targets)
        for seq in step.batch:
            draft = step.drafts.get(seq.name, Draft(()))
            rows = min(step.rows[seq.name], len(draft.tokens) + 1)
            targets, rows_left = rows_left[:rows], rows_left[rows:]
            # Ranks that launch unlike rows in equal sizes read each other's rows, or none.
            targets = targets or verify(self.model, draft, seq.context, rows)
            if self.algorithm.greedy:
                targets = self.decide("verify", "target", "target_tokens", targets, step.number, seq)
                margin = round(self._clock.random() * 4, 3)
                self.emit("verify", "target", step.number, seq, decided={"target_tokens": targets, "margin": margin})
                most = step.limits[seq.name] - 1 if self.algorithm.plans else None
                own[seq.name] = accept_greedy(draft, targets, most)
            else:
                own[seq.name] = accept_sampling(self.model, draft, seq.context, rows)
        synced = "accept" in self.algorithm.synced and len(self.topology.sync_group(self.rank)) > 1
        site = self.algorithm.accept_site
        if synced and self.algorithm.phases:
            own = {seq.name: self._emit_accept(step, seq, own[seq.name], "local") for seq in step.batch}
        if synced:
            given = yield from self.broadcast(step, site, [own[seq.name] for seq in step.batch])
            own = dict(zip(own, given, strict=False))
            if self.algorithm.phases:
                own = {seq.name: self._emit_accept(step, seq, own[seq.name], "synced") for seq in step.batch}
        results: dict[str, Any] = {}
        for seq in step.batch:
            accepted = self._emit_accept(step, seq, own[seq.name], "used")
            draft = step.drafts.get(seq.name, Draft(()))
            tokens = [draft.tokens[node - 1] for node in accepted.path[1:] if node <= len(draft.tokens)]
            results[seq.name] = (accepted.correct_len, [*tokens, accepted.bonus])
        return results

    def _emit_accept(self, step: Step, seq: Sequence, accepted: Acceptance, phase: str) -> Acceptance:
        site = self.algorithm.accept_site
        accepted = self.decide("accept", site, "acceptance", accepted, step.number, seq, phase)
        tree = self.algorithm.shape == "tree"
        fields: dict[str, Any] = {"branch": "greedy" if self.algorithm.greedy else "sampling"}
        decided = {
            "accept_path": list(accepted.path) if tree else None,
            "correct_len": accepted.correct_len,
            "bonus": accepted.bonus,
            "cap_trim_len": accepted.trimmed if self.algorithm.plans else None,
        }
        source = self.sync_source() if phase == "synced" else {}
        self.emit("accept", site, step.number, seq, phase=phase, decided=decided, **fields, **source)
        return accepted

    # Commit

    def _commit(self, step: Step, seq: Sequence, correct_len: int, tokens: list[int]) -> None:
        length = self.decide("commit", "commit", "commit_len", correct_len + 1, step.number, seq)
        tokens = self.decide("commit", "commit", "out_tokens", tokens, step.number, seq)
        new_length = self.decide("commit", "commit", "new_seq_len", seq.seq_len + length, step.number, seq)
        seq.generated += length
        finished = "length" if seq.generated >= seq.new_tokens else ""
        finished = self.decide("commit", "commit", "finished", finished, step.number, seq)
        fields = {
            "seq_len": seq.seq_len,
            "commit_len": length,
            "new_seq_len": new_length,
            "out_tokens": tokens,
            "finished": finished,
        }
        self.pending.append(Commit(seq, step.number, seq.round, fields))
        self.forget_rejected(seq, new_length)
        seq.seq_len, seq.root = new_length, tokens[-1]
        seq.context = self.model.extend(seq.context, tokens)

    def write_commits(self) -> None:
        """Records the decided commits; what finished leaves the batch."""
        for commit in self.pending:
            self.emit("commit", "commit", commit.step, commit.seq, round_=commit.round, decided=commit.fields)
            commit.seq.finished = commit.fields["finished"]
            if commit.seq.finished:
                self.release(commit.seq)
        self.pending.clear()
