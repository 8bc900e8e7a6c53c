"""The base layer: what the scheduler knows on the host. No device copy, no wait.

It yields batches in row order, prefills, committed tokens and lengths, finishes and retractions: enough for the first
committed divergence, one round late at worst.
"""

from __future__ import annotations

from divtrace.record.hooks import Hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from divtrace.record.sglang.process import ProcessState


def base_hooks(state: ProcessState) -> dict[str, Hook]:
    """The hooks by the name of their target."""
    base = BaseHooks(state)
    return {
        "run_batch": Hook("Scheduler.run_batch", before=base.run_batch, after=base.ran, failed=base.failed),
        "resolve": Hook("_resolve_spec_v2_tokens", before=base.before_resolve, after=base.resolve),
        "prefill": Hook("process_batch_result_prefill", before=base.before_prefill, after=base.prefill),
        "decode": Hook("process_batch_result_decode", before=base.before_decode),
        "retract": Hook("ScheduleBatch.retract_decode", after=base.retract),
        "finish": Hook("Req.update_finish_state", after=base.finish),
        "allocate": Hook("alloc_for_spec_decode", after=base.allocate),
        "confidence": Hook("ConfidenceRelay.resolve", after=base.confidence),
    }


class BaseHooks:
    """Host values only."""

    def __init__(self, state: ProcessState) -> None:
        self._state = state

    def run_batch(self, scheduler: Any, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """A forward begins: its number, its requests in row order, and where each of them stands."""
        state = self._state
        # `run_batch` adds one before anything else.
        step = int(scheduler.forward_ct) + 1
        state.step = step
        state.site = "forward"
        requests = list(batch.reqs or ())
        state.requests = [str(request.rid) for request in requests]
        mode = batch.forward_mode
        state.decoding = bool(mode.is_decode())
        extends = bool(mode.is_extend())
        decoding = {id(request) for request in (batch.decoding_reqs or ())} if mode.is_mixed() else set()
        placed = {}
        for request in requests:
            placed[str(request.rid)] = self._place(request, extends and id(request) not in decoding)
        state.remember(step, placed)
        fields: dict[str, Any] = {
            "batch": state.requests,
            "batch_size": len(requests),
            "forward_mode": "idle" if mode.is_idle() else "extend" if extends else "decode",
        }
        if mode.is_idle():
            fields["dummy"] = True
        tokens = getattr(batch, "global_num_tokens", None)
        extra: dict[str, Any] = {}
        if isinstance(tokens, list):
            extra["layout.global_num_tokens"] = [int(token) for token in tokens]
        if getattr(batch, "is_extend_in_batch", None) is not None:
            extra["control.is_extend_in_batch"] = bool(batch.is_extend_in_batch)
        if getattr(batch, "can_run_decode_cuda_graph", None) is not None:
            extra["shape.can_run_decode_cuda_graph"] = bool(batch.can_run_decode_cuda_graph)
        if extra:
            fields["extra"] = extra
        state.recorder.event("schedule", "batch", step=step, about_to_block=True, **fields)
        if extends:
            self._record_extends(batch, requests, decoding)

    def _place(self, request: Any, prefill: bool) -> tuple[int, int, int]:
        state = self._state
        name, attempt = str(request.rid), int(request.retraction_count)
        last_attempt, last_round, chunk = state.rounds.get(name, (attempt, 0, -1))
        if last_attempt != attempt:
            last_round, chunk = 0, -1
        place = (attempt, 0, chunk + 1) if prefill and last_round == 0 else (attempt, last_round + 1, 0)
        state.rounds[name] = place
        return place

    def _record_extends(self, batch: Any, requests: list[Any], decoding: set[int]) -> None:
        state = self._state
        prefixes, extends = getattr(batch, "prefix_lens", None), getattr(batch, "extend_lens", None)
        if prefixes is None or extends is None or len(prefixes) != len(requests):
            return
        for row, request in enumerate(requests):
            if id(request) in decoding:
                continue
            start, count = int(prefixes[row]), int(extends[row])
            event = state.key("prefill", "layout", str(request.rid))
            state.recorder.event(**event, row=row, seq_len=start, prefix_hit=start, num_tokens=count)

    def ran(self, _token: None, _result: Any, *_args: Any, **_kwargs: Any) -> None:
        """What comes between two forwards belongs to the scheduler."""
        self._state.site = "scheduler"

    def failed(self, _token: None, error: BaseException, *_args: Any, **_kwargs: Any) -> None:
        """An exception of this rank, before it reaches the engine."""
        self._state.recorder.error(error, step=self._state.step)

    # Commit --------------------------------------------------------------------------------------------------------

    def before_decode(self, _processor: Any, batch: Any, *_args: Any, **_kwargs: Any) -> None:
        """The results of which forward are processed."""
        self._state.settling = _iteration(batch)

    def before_resolve(self, _processor: Any, _result: Any, batch: Any) -> list[int | None]:
        """The committed lengths before; None for rows that the engine will skip."""
        self._state.settling = _iteration(batch)
        return [
            None if request.is_retracted or request.finished() else int(request.kv.kv_committed_len)
            for request in batch.reqs
        ]

    def resolve(self, before: list[int | None] | None, tokens: Any, _processor: Any, result: Any, batch: Any) -> None:
        """What a verify round committed; everything is on the host by now."""
        state = self._state
        if before is None:
            return
        step = _iteration(batch)
        accepted = result.accept_lens.tolist()
        caps = _host_list(getattr(result, "cap_lens", None))
        blocks = _host_list(getattr(result, "block_accept_lens", None))
        own = int(getattr(result, "num_non_draft_tokens_per_req", 1))
        for row, (request, old) in enumerate(zip(batch.reqs, before, strict=True)):
            if old is None:
                continue
            committed = [int(token) for token in tokens[row]]
            event = state.key("commit", "settle", str(request.rid), step)
            event.update(
                out_tokens=committed,
                commit_len=len(committed),
                seq_len=old,
                new_seq_len=int(request.kv.kv_committed_len),
            )
            # A grammar may keep fewer tokens than were accepted.
            if len(committed) == accepted[row] and own == 1:
                event["correct_len"] = accepted[row] - own
            extra = {}
            if caps is not None:
                event["verify_len"] = caps[row]
            if blocks is not None:
                extra["control.block_accept_len"] = blocks[row]
            if extra:
                event["extra"] = extra
            state.recorder.event(**event)

    def before_prefill(self, _processor: Any, batch: Any, *_args: Any, **_kwargs: Any) -> list[int]:
        """How many tokens each request had put out."""
        self._state.settling = _iteration(batch)
        return [len(request.output_ids) for request in batch.reqs]

    def prefill(
        self, before: list[int] | None, _result: Any, _processor: Any, batch: Any, *_args: Any, **_k: Any
    ) -> None:
        """The first token of each request; parts of a prefill yield none."""
        state = self._state
        if before is None:
            return
        step = _iteration(batch)
        for request, count in zip(batch.reqs, before, strict=True):
            if len(request.output_ids) <= count:
                continue
            token = int(request.output_ids[count])
            event = state.key("commit", "prefill", str(request.rid), step)
            prompt = len(request.origin_input_ids) + count
            state.recorder.event(**event, bonus=token, out_tokens=[token], new_seq_len=prompt)

    # Schedule ------------------------------------------------------------------------------------------------------

    def retract(self, _token: None, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """Requests that lose their cache; the attempt is the one that ends."""
        state = self._state
        for request in result[0]:
            name = str(request.rid)
            attempt = state.rounds.get(name, (0, 0, 0))[0]
            step = None if state.step is None else state.step + 1
            state.recorder.event("schedule", "retract", req=name, step=step, attempt=attempt, decision="retract")

    def finish(self, _token: None, _result: Any, request: Any, *_args: Any, **_kwargs: Any) -> None:
        """Whether the request goes on; the reason by its class, since the match may be text."""
        state = self._state
        reason = request.finished_reason
        event = state.key("commit", "finish", str(request.rid), state.settling)
        state.recorder.event(**event, finished="" if reason is None else type(reason).__name__)
        if reason is not None:
            state.rounds.pop(str(request.rid), None)

    def allocate(self, _token: None, _result: Any, *_args: Any, reqs: Any = (), **_kwargs: Any) -> None:
        """How far each request's KV slots reach for the verify of the next forward; the host's own numbers."""
        state = self._state
        state.recorder.event(
            "schedule",
            "allocate",
            step=None if state.step is None else state.step + 1,
            batch=[str(request.rid) for request in reqs],
            extra={"layout.kv_allocated_len": [int(request.kv.kv_allocated_len) for request in reqs]},
        )

    def confidence(self, _token: None, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """Whether last round's confidence has arrived: a test of this rank's own timing, which chooses the plan."""
        state = self._state
        step = None if state.step is None else state.step
        state.recorder.event("schedule", "confidence-relay", step=step, gate=result is not None)


def _iteration(batch: Any) -> int | None:
    iteration = getattr(batch, "forward_iter", None)
    return None if iteration is None else int(iteration)


def _host_list(tensor: Any) -> list[int] | None:
    if tensor is None or not getattr(tensor, "is_cpu", False):
        return None
    return [int(value) for value in tensor.tolist()]
