"""vLLM's V2 model runner (`vllm/v1/worker/gpu/model_runner.py`), the default where Triton works, so on GPUs.

Its request states live on the device and its methods are few: `finish_requests`, `prepare_inputs`, `prepare_attn`,
`sample`, `postprocess_sampled` and the speculator's `propose`. The target's tokens come from the rejection sampler's
`_verify`, which returns the logits as its kernel took them: masked by the grammar, with penalties and biases.
"""

from __future__ import annotations

from divtrace.record.deferred import record_later
from divtrace.record.hooks import Hook, attach
from divtrace.record.vllm.rows import Row, decided, decisions, layout_events, plan_rows
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
    hooks = V2Hooks(state, runner, layers)
    wanted = [
        ("execute_model", Hook("gpu.GPUModelRunner.execute_model", before=hooks.execute, failed=hooks.failed)),
        ("sample_tokens", Hook("gpu.GPUModelRunner.sample_tokens", failed=hooks.failed)),
        ("finish_requests", Hook("gpu.GPUModelRunner.finish_requests", before=hooks.finish)),
        ("prepare_inputs", Hook("gpu.GPUModelRunner.prepare_inputs", after=hooks.prepare_inputs)),
    ]
    if "stage" in layers:
        wanted += [
            ("prepare_attn", Hook("gpu.GPUModelRunner.prepare_attn", after=hooks.prepare_attn)),
            ("sample", Hook("gpu.GPUModelRunner.sample", before=hooks.before_sample, after=hooks.sample)),
            ("postprocess_sampled", Hook("gpu.GPUModelRunner.postprocess_sampled", after=hooks.commit)),
        ]
    return attach_all(runner, wanted)


class V2Hooks(RunnerHooks):
    """The hooks of one runner."""

    def __init__(self, state: WorkerState, runner: Any, layers: Sequence[str]) -> None:
        super().__init__(state, runner, layers)
        self._by_state: dict[int, Row] = {}
        """The same by the index of the request's state, for calls that see a part of the batch."""
        self._seen: set[str] = set()

    def execute(self, scheduler_output: Any, *_args: Any, dummy_run: bool = False, **_kwargs: Any) -> None:
        """A step begins. Dummy runs of idle ranks and of the warm-up have no requests."""
        if dummy_run:
            return
        state = self._state
        step = state.begin_step()
        state.recorder.event(
            "schedule",
            "enter",
            step=step,
            num_tokens=int(scheduler_output.total_num_scheduled_tokens),
            about_to_block=True,
        )
        if self._stage_layer:
            self._attach_late(
                "speculator", "propose", Hook("gpu.Speculator.propose", before=self.before_draft, after=self.draft)
            )
            self._attach_late("rejection_sampler", "_verify", Hook("gpu.RejectionSampler._verify", after=self.verify))

    def _attach_late(self, name: str, method: str, hook: Hook) -> None:
        # The runner has these only once the model is loaded.
        holder = getattr(self._runner, name, None)
        if holder is not None and name not in self._seen:
            self._seen.add(name)
            attach(holder, method, hook)

    def finish(self, scheduler_output: Any) -> None:
        """What the scheduler says of finished and preempted requests."""
        self._leave(scheduler_output.finished_req_ids, scheduler_output.preempted_req_ids)

    def prepare_inputs(self, _token: None, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """The batch in row order and its sizes."""
        state = self._state
        requests = list(batch.req_ids)
        counts = [int(count) for count in batch.num_scheduled_tokens]
        drafts = batch.num_draft_tokens_per_req
        computed, needed = batch.num_computed_prefill_tokens_np, batch.prefill_len_np
        partial = [int(computed[i]) + counts[i] < int(needed[i]) for i in range(len(requests))]
        numbers = [0] * len(requests) if drafts is None else [int(number) for number in drafts]
        self._rows = plan_rows(state.rounds, requests, counts, numbers, partial)
        self._by_state = {int(index): row for index, row in zip(batch.idx_mapping_np, self._rows, strict=False)}
        state.recorder.event("schedule", "batch", step=state.step, batch=requests, about_to_block=True)
        state.recorder.event(
            "prefill" if all(row.prefill for row in self._rows) else "verify",
            "launch",
            step=state.step,
            num_tokens=int(batch.num_tokens),
            padded_tokens=int(batch.num_tokens_after_padding),
            batch_size=len(requests),
        )

    def prepare_attn(self, _token: None, result: Any, batch: Any) -> None:
        """The layout of every request; the input buffers are filled by now and used again by the next step."""
        rows, step, total = self._rows, self._state.step, int(batch.num_tokens)
        if [row.req for row in rows] != list(batch.req_ids):
            return
        slots = result[1]
        tensors = [batch.query_start_loc[: len(rows) + 1], batch.input_ids[:total], batch.positions[:total]]
        if hasattr(slots, "shape") and len(slots.shape) == 2:
            tensors.append(slots[0][:total])
        count = sum(1 if row.prefill else 3 for row in rows)
        record_later(
            self._state.recorder, self._state.device, tensors, count, lambda *values: layout_events(rows, step, *values)
        )

    def before_sample(self, *_args: Any, **_kwargs: Any) -> None:
        """Logits are gathered in here."""
        self._state.site = "sampling"

    def verify(
        self,
        _token: None,
        result: Any,
        _logits: Any,
        _draft_logits: Any,
        draft_sampled: Any,
        _pos: Any,
        cu_num_logits: Any,
        _idx_mapping: Any,
        idx_mapping_np: Any,
        *args: Any,
        verify_draft_sampled: Any = None,
        **_kwargs: Any,
    ) -> None:
        """The target's tokens of the greedy requests of a part of the batch: of a chunk, or of this rank's share."""
        state = self._state
        sampler = self._runner.rejection_sampler
        if state.device.capturing() or sampler.synthetic_conditional_rates is not None:
            return
        temperature = sampler.sampler.sampling_states.temperature.np
        # A grammar that forbids drafts decides the accepted length together with the target: no greedy accept then.
        verified = args[-1] if args else verify_draft_sampled
        plain = verified is None or verified.data_ptr() == draft_sampled.data_ptr()
        rows = []
        for position, index in enumerate(int(index) for index in idx_mapping_np):
            row = self._by_state.get(index)
            if row is not None and not row.prefill and float(temperature[index]) == 0.0:
                rows.append(
                    (position, row.key("verify", "target", state.step) | ({"branch": "greedy"} if plain else {}))
                )
        if rows:
            tensors = [cu_num_logits, *decisions(result[0])]
            record_later(state.recorder, state.device, tensors, len(rows), lambda *values: _targets(rows, *values))

    def sample(self, _token: None, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """The tokens that the sampler took and their number, 0 for parts of a prefill."""
        state, step = self._state, self._state.step
        state.site = "draft-forward"
        # A warm-up that comes later must not meet these.
        self._by_state = {}
        output, num_sampled, _ = result
        sampled = output.sampled_token_ids
        rows = [(index, row) for index, row in enumerate(self._rows) if not row.partial]
        if sampled.shape[0] != len(self._rows):
            return
        record_later(
            state.recorder,
            state.device,
            [sampled, num_sampled],
            len(rows),
            lambda tokens, numbers: _accepts(rows, step, tokens, numbers),
        )

    def commit(
        self, _token: None, _result: Any, idx_mapping: Any, sampled_tokens: Any, num_sampled: Any, *_a: Any, **_k: Any
    ) -> None:
        """The request states after the step, on the device."""
        state, step = self._state, self._state.step
        rows = [(index, row) for index, row in enumerate(self._rows) if not row.partial]
        if num_sampled.shape[0] != len(self._rows) or state.device.capturing():
            return
        computed = self._runner.req_states.num_computed_tokens.gpu[idx_mapping]
        record_later(
            state.recorder,
            state.device,
            [sampled_tokens, num_sampled, computed],
            len(rows),
            lambda *values: _commits(rows, step, *values),
        )


def _targets(
    rows: list[tuple[int, dict[str, Any]]], starts: list[int], tokens: list[int], margins: list[float]
) -> list[dict[str, Any]]:
    # The device may have taken drafts away since the host counted them, so its own row starts count.
    return [
        {**key, **decided(tokens, margins, slice(starts[position], starts[position + 1]))} for position, key in rows
    ]


def _accepts(
    rows: list[tuple[int, Row]], step: int | None, sampled: list[list[int]], numbers: list[int]
) -> list[dict[str, Any]]:
    events = []
    for index, row in rows:
        tokens = sampled[index][: numbers[index]]
        bonus = tokens[-1] if tokens else None
        if row.prefill:
            events.append({**row.key("prefill", "target", step), "bonus": bonus})
        else:
            accept = row.key("accept", "rejection-sampler", step)
            events.append({**accept, "correct_len": len(tokens) - 1, "bonus": bonus})
    return events


def _commits(
    rows: list[tuple[int, Row]], step: int | None, sampled: list[list[int]], numbers: list[int], computed: list[int]
) -> list[dict[str, Any]]:
    events = []
    for index, row in rows:
        tokens = sampled[index][: numbers[index]]
        event = {**row.key("commit", "commit", step), "out_tokens": tokens, "new_seq_len": computed[index]}
        if not row.prefill:
            event.update(commit_len=len(tokens), seq_len=computed[index] - len(tokens))
        events.append(event)
    return events
