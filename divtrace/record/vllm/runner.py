"""What the hooks of both model runners share."""

from __future__ import annotations

from divtrace.record.deferred import record_later
from divtrace.record.hooks import Hook, attach, why_unresolved
from divtrace.record.layers import layers_off
from divtrace.record.report import warn_once
from divtrace.record.vllm.rows import Row, next_draft
from divtrace.record.vllm.targets import WORKER, layers_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from divtrace.record.source import Target
    from divtrace.record.vllm.worker import WorkerState


def usable_layers(runner: Any, targets: Sequence[Target], layers: Sequence[str]) -> tuple[str, ...]:
    """The layers that can be on with this runner, whose own functions are `targets`; one line for each that cannot."""

    def why_missing(target: Target) -> str | None:
        if target not in targets:
            reason = why_unresolved(target.path)
            return None if reason is None else f"{target.path} does not resolve ({reason})"
        # A platform may have a runner of its own, derived from vLLM's: what it has counts.
        found = callable(getattr(runner, target.name, None))
        return None if found else f"{type(runner).__name__}.{target.name} is not there"

    wanted = layers_of(layers)
    off = layers_off((*WORKER, *targets), wanted, why_missing)
    for layer, reason in off.items():
        warn_once(f"layer {layer} is off: {reason}")
    return tuple(layer for layer in wanted if layer not in off)


def attach_all(runner: Any, hooks: Sequence[tuple[str, Hook]]) -> int:
    """Hooks the methods of one runner; returns how many were found."""
    return sum(attach(runner, name, hook) for name, hook in hooks)


class RunnerHooks:
    """The hooks of one runner. Host values are read at once, device values through `record_later`."""

    def __init__(self, state: WorkerState, runner: Any, layers: Sequence[str]) -> None:
        self._state = state
        self._runner = runner
        self._rows: list[Row] = []
        """The requests of the current step, in batch order."""
        self._stage_layer = "stage" in layers

    def _yielding(self) -> list[tuple[int, Row]]:
        """The rows that yield tokens in this step, with their places in the batch."""
        return [(index, row) for index, row in enumerate(self._rows) if not row.partial]

    def _leave(self, finished: Iterable[str], preempted: Iterable[str] | None) -> None:
        """What the scheduler says of requests that this worker has; it hears of them one step later."""
        state = self._state
        for req in sorted(preempted or ()):
            attempt = state.rounds.of(req).attempt
            state.recorder.event("schedule", "preempt", req=req, step=state.step, attempt=attempt, decision="retract")
            state.rounds.retracted(req)
        for req in sorted(finished):
            if (last := state.rounds.finished(req)) is not None:
                state.recorder.event(
                    "schedule", "finished", req=req, step=state.step, attempt=last.attempt, finished="finished"
                )

    def before_draft(self, *_args: Any, **_kwargs: Any) -> None:
        """Collectives from here on belong to the draft."""
        self._state.site = "draft-forward"

    def _drafts(self, drafts: Any) -> None:
        """The drafts of the next round, which the next step verifies: a tensor, or a list where the host drafts."""
        state = self._state
        step = None if state.step is None else state.step + 1
        site = f"{state.method.replace('_', '-')}-propose"
        rows = self._yielding()
        if isinstance(drafts, list):
            for index, row in rows:
                if index < len(drafts):
                    state.recorder.event(**next_draft(row, site, step), draft_tokens=[int(t) for t in drafts[index]])
        elif hasattr(drafts, "shape") and drafts.shape[0] >= len(self._rows):
            record_later(
                state.recorder,
                state.device,
                [drafts],
                len(rows),
                lambda values: [{**next_draft(row, site, step), "draft_tokens": values[index]} for index, row in rows],
            )

    def draft(self, _token: None, result: Any, *_args: Any, **_kwargs: Any) -> None:
        """The drafter is done."""
        self._state.site = "after-draft"
        self._drafts(result)

    def failed(self, _token: None, error: BaseException, *_args: Any, **_kwargs: Any) -> None:
        """An exception of this rank: vLLM drops those of all ranks but one."""
        self._state.recorder.error(error, step=self._state.step)
