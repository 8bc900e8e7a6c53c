"""Every function of vLLM that is hooked, by layer; one list for each model runner, and one for both."""

from __future__ import annotations

from divtrace.record.source import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_V1 = "vllm.v1.worker.gpu_model_runner.GPUModelRunner"
_V2 = "vllm.v1.worker.gpu.model_runner.GPUModelRunner"
_COMMUNICATOR = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"

WORKER: tuple[Target, ...] = (
    Target(
        "init_device",
        "base",
        "vllm.v1.worker.worker_base.WorkerWrapperBase.init_device",
        ("self",),
        ("worker", "model_runner", "vllm_config", "tensor_parallel_size", "pipeline_parallel_size"),
        core=True,
    ),
    *(
        Target(name, "sync", f"{_COMMUNICATOR}.{name}", ("self", "input_"), core=name in ("all_reduce", "all_gather"))
        for name in ("all_reduce", "all_gather", "reduce_scatter", "gather")
    ),
    Target(
        "groups",
        "sync",
        "vllm.distributed.parallel_state.get_tp_group",
        (),
        ("device_communicator", "unique_name"),
        core=True,
    ),
)

V1: tuple[Target, ...] = (
    Target(
        "_update_states",
        "base",
        f"{_V1}._update_states",
        ("self", "scheduler_output"),
        ("finished_req_ids", "preempted_req_ids"),
        core=True,
    ),
    Target(
        "_prepare_inputs",
        "base",
        f"{_V1}._prepare_inputs",
        ("self", "scheduler_output", "num_scheduled_tokens"),
        ("input_batch", "req_ids", "scheduled_spec_decode_tokens", "discard_request_mask", "positions", "slot_mapping"),
        core=True,
    ),
    Target(
        "_bookkeeping_sync",
        "base",
        f"{_V1}._bookkeeping_sync",
        ("self", "scheduler_output", "sampler_output"),
        ("num_tokens_no_spec",),
        core=True,
    ),
    Target("execute_model", "base", f"{_V1}.execute_model", ("self", "scheduler_output")),
    Target("sample_tokens", "base", f"{_V1}.sample_tokens", ("self",)),
    Target(
        "_sample",
        "stage",
        f"{_V1}._sample",
        ("self", "logits", "spec_decode_metadata"),
        (
            "sampled_token_ids",
            "all_greedy",
            "greedy_reqs",
            "no_penalties",
            "allowed_token_ids_mask",
            "logitsprocs",
            "synthetic_mode",
        ),
        core=True,
    ),
    Target(
        "propose_draft_token_ids", "stage", f"{_V1}.propose_draft_token_ids", ("self", "sampled_token_ids"), core=True
    ),
)

V2: tuple[Target, ...] = (
    Target("execute_model", "base", f"{_V2}.execute_model", ("self", "scheduler_output", "dummy_run"), core=True),
    Target("sample_tokens", "base", f"{_V2}.sample_tokens", ("self",)),
    Target(
        "finish_requests",
        "base",
        f"{_V2}.finish_requests",
        ("self", "scheduler_output"),
        ("preempted_req_ids",),
        core=True,
    ),
    Target(
        "prepare_inputs",
        "base",
        f"{_V2}.prepare_inputs",
        ("self", "scheduler_output"),
        ("num_draft_tokens_per_req", "num_computed_prefill_tokens_np", "prefill_len_np", "num_tokens_after_padding"),
        core=True,
    ),
    Target("prepare_attn", "stage", f"{_V2}.prepare_attn", ("self", "input_batch"), ("query_start_loc",), core=True),
    Target(
        "sample", "stage", f"{_V2}.sample", ("self", "hidden_states", "input_batch"), ("sampled_token_ids",), core=True
    ),
    Target(
        "_verify",
        "stage",
        "vllm.v1.worker.gpu.spec_decode.rejection_sampler.RejectionSampler._verify",
        (
            "self",
            "logits",
            "draft_logits",
            "draft_sampled",
            "pos",
            "cu_num_logits",
            "idx_mapping",
            "idx_mapping_np",
            "verify_draft_sampled",
        ),
        ("rejection_sampler", "synthetic_conditional_rates", "sampling_states", "temperature", "idx_mapping_np"),
    ),
    Target(
        "postprocess_sampled",
        "stage",
        f"{_V2}.postprocess_sampled",
        ("self", "idx_mapping", "sampled_tokens", "num_sampled"),
        ("req_states", "num_computed_tokens"),
        core=True,
    ),
    Target(
        "propose",
        "stage",
        "vllm.v1.worker.gpu.spec_decode.speculator.BaseSpeculator.propose",
        ("self", "input_batch"),
        ("speculator",),
    ),
)


def layers_of(layers: Sequence[str]) -> tuple[str, ...]:
    """The layers to record where these are asked for: base always, whose hooks place every event."""
    return ("base", *(layer for layer in layers if layer != "base"))
