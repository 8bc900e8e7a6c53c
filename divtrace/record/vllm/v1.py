"""vLLM's V1 model runner (`vllm/v1/worker/gpu_model_runner.py`): the only one on CPUs, one of two on GPUs.

Order in a step: `_update_states`, `_prepare_inputs`, the forward, `_sample`, then `propose_draft_token_ids` and
`_bookkeeping_sync` in an order that depends on the drafter. A draft belongs to the next round and step.
"""

from __future__ import annotations

from divtrace.record.deferred import record_later
from divtrace.record.hooks import Hook
from divtrace.record.vllm.rows import accept_events, decisions, layout_events, plan_rows
from divtrace.record.vllm.runner import RunnerHooks, attach_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from divtrace.record.vllm.worker import WorkerState


def attach_runner(state: WorkerState, runner: Any, layers: Sequence[str]) -> int:
    """Hooks the methods of one runner for the layers that are on; returns how many were found."""
    if "base" not in layers:
        return 0
    hooks = V1Hooks(state, runner, layers)
    wanted = [
        ("_update_states", Hook("GPUModelRunner._update_states", before=hooks.update_states)),
        ("_prepare_inputs", Hook("GPUModelRunner._prepare_inputs", after=hooks.prepare_inputs)),
        ("_bookkeeping_sync", Hook("GPUModelRunner._bookkeeping_sync", before=hooks.before_commit, after=hooks.commit)),
        ("execute_model", Hook("GPUModelRunner.execute_model", failed=hooks.failed)),
        ("sample_tokens", Hook("GPUModelRunner.sample_tokens", failed=hooks.failed)),
    ]
    if "stage" in layers:
        wanted += [
            ("_sample", Hook("GPUModelRunner._sample", before=hooks.before_sample, after=hooks.sample)),
            (
                "propose_draft_token_ids",
                Hook("GPUModelRunner.propose_draft_token_ids", before=hooks.before_draft, after=hooks.draft),
            ),
        ]
    return attach_all(runner, wanted)


class V1Hooks(RunnerHooks):
    """The hooks of one runner."""

    # Schedule ------------------------------------------------------------------------------------------------------

    def update_states(self, scheduler_output: Any) -> None:
        """A step begins: what the scheduler says of finished and preempted requests."""
        self._state.begin_step()
        self._leave(scheduler_output.finished_req_ids, scheduler_output.preempted_req_ids)

    # Verify --------------------------------------------------------------------------------------------------------

    def prepare_inputs(self, _token: None, _result: Any, scheduler_output: Any, num_scheduled_tokens: Any) -> None:
        """The batch in row order, and the layout of every request."""
        state, runner = self._state, self._runner
        batch = runner.input_batch
        step = state.step
        counts = [int(count) for count in num_scheduled_tokens]
        requests = list(batch.req_ids[: len(counts)])
        drafts = scheduler_output.scheduled_spec_decode_tokens
        state.recorder.event("schedule", "batch", step=step, batch=requests, about_to_block=True)
        partial = [bool(flag) for flag in runner.discard_request_mask.np[: len(requests)]]
        self._rows = plan_rows(state.rounds, requests, counts, [len(drafts.get(req, ())) for req in requests], partial)
        total = sum(counts)
        prefill = any(row.prefill for row in self._rows)
        state.recorder.event(
            "prefill" if all(row.prefill for row in self._rows) else "verify",
            "launch",
            step=step,
            num_tokens=total,
            batch_size=len(requests),
            extra={"control.has_prefill": prefill, "shape.logits": sum(row.drafts + 1 for row in self._rows)},
        )
        if not self._stage_layer:
            self._record_plans(step)
            return
        tensors = [runner.input_ids.gpu[:total], runner.positions[:total], *self._slot_mappings(total)]
        rows = self._rows
        starts = [*(row.start for row in rows), total]
        events = sum(1 if row.prefill else 3 for row in rows)
        record_later(
            state.recorder, state.device, tensors, events, lambda *values: layout_events(rows, step, starts, *values)
        )

    def _record_plans(self, step: int | None) -> None:
        for row in self._rows:
            if not row.prefill:
                event = row.key("verify", "plan", step)
                self._state.recorder.event(**event, num_draft_tokens=row.rows, verify_len=row.rows)

    def _slot_mappings(self, total: int) -> list[Any]:
        try:
            table = self._runner.input_batch.block_table[0]
            return [table.slot_mapping.gpu[:total]]
        except (AttributeError, IndexError, TypeError):
            return []

    # Accept --------------------------------------------------------------------------------------------------------

    def before_sample(self, logits: Any, *_args: Any) -> dict[str, Any] | None:
        """The target's tokens, before the sampler changes the logits in place."""
        self._state.site = "sampling"
        if logits is None or self._state.device.capturing():
            return None
        token: dict[str, Any] = {"rows": logits.shape[0], "tensors": []}
        if self._deciding_is_argmax():
            token["tensors"] = decisions(logits)
        return token

    def _deciding_is_argmax(self) -> bool:
        """Whether the sampler takes the greatest logit as it stands: greedy, and nothing shifts the logits."""
        sampling = self._runner.input_batch.sampling_metadata
        processors = getattr(getattr(sampling, "logitsprocs", None), "non_argmax_invariant", ())
        thinking = getattr(sampling, "thinking_budget_state_holder", None)
        return (
            bool(sampling.all_greedy)
            and bool(sampling.no_penalties)
            and sampling.allowed_token_ids_mask is None
            and not sampling.bad_words_token_ids
            and not any(_at_work(processor) for processor in processors)
            and (thinking is None or not thinking.has_tracked_requests())
        )

    def sample(self, token: Any, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """The tokens that the sampler took: accepted drafts, then the target's own."""
        state = self._state
        state.site = "draft-forward"
        sampled = result.sampled_token_ids
        rows = self._yielding()
        if sampled.shape[0] != len(self._rows):
            return
        everybody = self._rows
        branches = [self._branch(row.req) for row in everybody]
        targets = list(token["tensors"]) if token else []
        if targets and token["rows"] != sum(row.drafts + 1 for row in everybody):
            targets = []
        count = sum(1 if row.prefill else 1 + bool(targets) for _, row in rows)
        step = state.step
        record_later(
            state.recorder,
            state.device,
            [sampled, *targets],
            count,
            lambda *values: accept_events(everybody, rows, branches, step, *values),
        )

    def _branch(self, req: str) -> str:
        # Made-up acceptance rates, for benchmarks: the accept does not follow from drafts and target.
        if getattr(getattr(self._runner, "rejection_sampler", None), "synthetic_mode", False):
            return "synthetic"
        return "greedy" if req in self._runner.input_batch.greedy_reqs else "sampling"

    # Commit --------------------------------------------------------------------------------------------------------

    def before_commit(self, *_args: Any, **_kwargs: Any) -> list[int]:
        """The token counts before; the last token of each has no KV yet."""
        return [int(count) for count in self._runner.input_batch.num_tokens_no_spec[: len(self._rows)]]

    def commit(self, before: list[int] | None, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """What the worker writes into its own request states; under async scheduling only placeholders, so nothing."""
        state = self._state
        tokens = result[3]
        if before is None or not tokens:
            return
        after = self._runner.input_batch.num_tokens_no_spec
        for index, row in enumerate(self._rows):
            if row.partial or index >= len(tokens) or not tokens[index]:
                continue
            committed = [int(token) for token in tokens[index]]
            fields: dict[str, Any] = {"out_tokens": committed, "new_seq_len": int(after[index]) - 1}
            if not row.prefill:
                fields.update(seq_len=before[index] - 1, commit_len=len(committed))
            state.recorder.event(**row.key("commit", "commit", state.step), **fields)


def _at_work(processor: Any) -> bool:
    """Whether a logits processor changes anything now; of an unknown one we have to assume it."""
    for name in ("biases", "min_toks"):
        if hasattr(processor, name):
            return bool(getattr(processor, name))
    return True
