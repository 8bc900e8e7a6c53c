"""A vLLM plugin that makes one rank wrong on purpose; no part of divtrace.

`DIVTRACE_TEST_PERTURB=rank:step:row` exchanges the greatest and the second greatest logit of one row (a request of
that step, its first verified row) on one rank. Everything that follows is the engine's own doing.
"""

from __future__ import annotations

import os
from typing import Any


def load() -> None:
    wanted = os.environ.get("DIVTRACE_TEST_PERTURB")
    if not wanted:
        return
    rank, step, request = map(int, wanted.split(":"))
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    if hasattr(GPUModelRunner, "_perturbed"):
        return
    GPUModelRunner._perturbed = True
    original = GPUModelRunner._update_states

    def update_states(self: Any, scheduler_output: Any) -> Any:
        self._perturb_step = getattr(self, "_perturb_step", -1) + 1
        if self._perturb_step == 0:
            outermost(self)
        return original(self, scheduler_output)

    def outermost(self: Any) -> None:
        # Around whatever else wraps the sampler, so that all of it sees the same wrong logits.
        sample = self._sample

        def wrong(logits: Any, spec_decode_metadata: Any) -> Any:
            import torch

            if self._perturb_step == step and torch.distributed.get_rank() == rank:
                row = request
                if spec_decode_metadata is not None:
                    row = sum(number + 1 for number in spec_decode_metadata.num_draft_tokens[:request])
                first, second = logits[row].topk(2).indices.tolist()
                logits[row, [first, second]] = logits[row, [second, first]]
                print(f"PERTURBED step {step} request row {request}: {first} and {second}", flush=True)
            return sample(logits, spec_decode_metadata)

        self._sample = wrong

    GPUModelRunner._update_states = update_states
