"""Drives the hooks on vLLM's V2 model runner with small tensors on a CPU.

    python vllm_v2_drive.py DIRECTORY

The runner needs Triton on a GPU to run. Here its module is imported, an object of its class is made without a model,
and its methods are replaced by ones that take only what the real signatures take and return what the real ones return:
vLLM's own `InputBatch` and `SamplerOutput`.
"""

from __future__ import annotations

import inspect
import sys
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.sample.output import SamplerOutput
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from divtrace.record import Recorder
from divtrace.record.device import CpuDevice
from divtrace.record.vllm.v2 import attach_runner
from divtrace.record.vllm.worker import WorkerState

METHODS = ("execute_model", "finish_requests", "prepare_inputs", "prepare_attn", "sample", "postprocess_sampled")


def array(values: list[int]) -> Any:
    return torch.tensor(values, dtype=torch.int32).numpy()


def input_batch(requests: list[str], counts: list[int], drafts: list[int], computed: list[int], prompts: list[int],
                ids: list[int]) -> InputBatch:  # fmt: skip
    """A batch as `prepare_inputs` returns it."""
    starts = array([0, *accumulate(counts)])
    positions = [first + offset for first, count in zip(computed, counts, strict=True) for offset in range(count)]
    values: dict[str, Any] = dict.fromkeys(InputBatch.__dataclass_fields__)
    prefill = array([min(pair) for pair in zip(computed, prompts, strict=True)])
    values.update(
        req_ids=requests,
        num_reqs=len(requests),
        num_scheduled_tokens=array(counts),
        num_tokens=sum(counts),
        num_tokens_after_padding=16,
        num_draft_tokens=sum(drafts),
        num_draft_tokens_per_req=array(drafts) if any(drafts) else None,
        query_start_loc=torch.from_numpy(starts),
        query_start_loc_np=starts,
        num_computed_prefill_tokens_np=prefill,
        prefill_len_np=array(prompts),
        idx_mapping=torch.arange(len(requests)),
        idx_mapping_np=torch.arange(len(requests)).numpy(),
        input_ids=torch.tensor(ids + [0] * (16 - len(ids))),
        positions=torch.tensor(positions + [0] * (16 - len(positions))),
    )
    return InputBatch(**values)


def answers(holder: Any, owner: type, name: str) -> list[Any]:
    """Replaces a method by one that gives prepared answers and refuses what the real one would not take."""
    signature = inspect.signature(getattr(owner, name))
    prepared: list[Any] = []

    def method(*args: Any, **kwargs: Any) -> Any:
        signature.bind(holder, *args, **kwargs)
        return prepared.pop(0)

    setattr(holder, name, method)
    return prepared


def main(directory: str) -> None:
    runner = object.__new__(GPUModelRunner)
    runner.speculator = SimpleNamespace()
    # Request 0 is greedy, request 1 samples.
    states = SimpleNamespace(temperature=SimpleNamespace(np=torch.tensor([0.0, 0.7]).numpy()))
    runner.rejection_sampler = SimpleNamespace(
        sampler=SimpleNamespace(sampling_states=states), synthetic_conditional_rates=None
    )
    runner.req_states = SimpleNamespace(num_computed_tokens=SimpleNamespace(gpu=torch.zeros(4, dtype=torch.int64)))
    prepared = {name: answers(runner, GPUModelRunner, name) for name in METHODS}
    drafted = answers(runner.speculator, BaseSpeculator, "propose")
    verified = answers(runner.rejection_sampler, RejectionSampler, "_verify")
    with Recorder(directory, rank=0, parallel={"tp_size": 1}, engine="vllm") as recorder:
        state = WorkerState(recorder, CpuDevice(), "eagle")
        assert attach_runner(state, runner, ("base", "stage", "sync")) == 7

        def verify(batch: InputBatch, sampled: list[list[int]]) -> None:
            """One request at a time, as vLLM does when the logits of all would be too many."""
            drafts = batch.num_draft_tokens_per_req
            assert drafts is not None
            for index, row in enumerate(sampled):
                rows = int(drafts[index]) + 1
                # The target's own token where the sampler's is -1, and one behind a mask that leaves no other.
                logits = torch.nn.functional.one_hot(torch.tensor([max(token, 9) for token in row[:rows]]), 40).float()
                drafted = torch.zeros(rows, dtype=torch.int64)
                # A grammar that forbids drafts makes vLLM verify a copy of them.
                checked = drafted.clone() if len(sampled) == 1 else drafted
                verified.append((logits, None, None))
                runner.rejection_sampler._verify(
                    logits, None, drafted, None, torch.tensor([0, rows]), None, batch.idx_mapping_np[index : index + 1],
                    None, None, None, checked,
                )  # fmt: skip

        def step(
            batch: InputBatch,
            sampled: list[list[int]],
            computed: list[int],
            drafts: list[list[int]],
            finished: set[str],
        ) -> None:
            # Rows of fewer tokens are filled up with -1.
            numbers = [sum(token >= 0 for token in row) for row in sampled]
            scheduled = SimpleNamespace(
                total_num_scheduled_tokens=batch.num_tokens, finished_req_ids=finished, preempted_req_ids=None
            )
            for name in ("execute_model", "finish_requests", "postprocess_sampled"):
                prepared[name].append(None)
            prepared["prepare_inputs"].append(batch)
            # One slot per request and position, as a pool would give.
            owners = [100 * ord(name) for name, count in zip(batch.req_ids, batch.num_scheduled_tokens, strict=True)
                      for _ in range(count)]  # fmt: skip
            slots = batch.positions.clone().reshape(1, -1)
            slots[0, : batch.num_tokens] += torch.tensor(owners)
            prepared["prepare_attn"].append(((), slots))
            tokens, number = torch.tensor(sampled), torch.tensor(numbers)
            output = SamplerOutput(tokens, None, None, number, torch.zeros_like(number))
            prepared["sample"].append((output, number, output.num_rejected))
            drafted.append(torch.tensor(drafts))
            runner.execute_model(scheduled)
            runner.finish_requests(scheduled)
            runner.prepare_inputs(scheduled, None, None, 0)
            runner.prepare_attn(batch)
            if batch.num_draft_tokens:
                verify(batch, sampled)
            # vLLM uses its buffers again; the hooks must have copied by now.
            batch.input_ids.zero_()
            runner.sample(None, batch, None)
            runner.req_states.num_computed_tokens.gpu[: len(computed)] = torch.tensor(computed)
            runner.postprocess_sampled(batch.idx_mapping, tokens, number, output.num_rejected, batch.query_start_loc)
            runner.speculator.propose(batch, None, None, None, None, number, None, None, None, None, None)

        # A whole prefill and a part of one; then a verify of the first and the rest of the second.
        batch = input_batch(["A", "B"], [3, 2], [0, 0], [0, 0], [3, 4], [11, 12, 13, 21, 22])
        step(batch, [[14], [-1]], [3, 2], [[15, 16], [0, 0]], set())
        batch = input_batch(["A", "B"], [3, 2], [2, 0], [3, 2], [3, 4], [14, 15, 16, 23, 24])
        step(batch, [[15, 30, -1], [25, -1, -1]], [5, 4], [[31, 32], [26, 27]], set())
        batch = input_batch(["B"], [3], [2], [4], [4], [25, 26, 27])
        step(batch, [[26, 27, 28]], [7], [[1, 2]], {"A"})


if __name__ == "__main__":
    main(sys.argv[1])
