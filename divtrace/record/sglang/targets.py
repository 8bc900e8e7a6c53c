"""Every function of SGLang that is hooked, by layer: the one list for registration, the doctor and the source test.

Paths are as SGLang's own registry takes them. The core of each layer is what issue 3 names in point 6.
"""

from __future__ import annotations

from divtrace.record.source import Target

MANAGERS = "sglang.srt.managers"
SPECULATIVE = "sglang.srt.speculative"
GROUP = "sglang.srt.distributed.parallel_state.GroupCoordinator"
COLLECTIVES = (
    "all_reduce",
    "quant_all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gatherv",
    "reduce_scatter",
    "reduce_scatter_along_dim",
    "reduce_scatter_tensor",
    "reduce_scatterv",
    "all_to_all_single",
    "gather",
    "broadcast",
    "barrier",
)
_PLAIN = ("all_reduce", "all_gather", "broadcast")


_PROCESSOR = f"{MANAGERS}.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor"

TARGETS: tuple[Target, ...] = (
    Target(
        "run_batch",
        "base",
        f"{MANAGERS}.scheduler.Scheduler.run_batch",
        ("self", "batch"),
        ("forward_ct", "forward_iter", "reqs", "forward_mode", "is_mixed", "is_idle", "is_extend", "decoding_reqs"),
        core=True,
    ),
    Target(
        "resolve",
        "base",
        f"{_PROCESSOR}._resolve_spec_v2_tokens",
        ("self", "result", "batch"),
        ("accept_lens", "cap_lens", "block_accept_lens", "num_non_draft_tokens_per_req", "kv_committed_len"),
        core=True,
    ),
    Target(
        "prefill",
        "base",
        f"{_PROCESSOR}.process_batch_result_prefill",
        ("self", "batch", "result"),
        ("inflight_middle_chunks", "output_ids", "origin_input_ids"),
        core=True,
    ),
    Target("decode", "base", f"{_PROCESSOR}.process_batch_result_decode", ("self", "batch", "result")),
    Target(
        "retract",
        "base",
        f"{MANAGERS}.schedule_batch.ScheduleBatch.retract_decode",
        ("self",),
        ("retraction_count",),
        core=True,
    ),
    Target(
        "finish",
        "base",
        f"{MANAGERS}.schedule_batch.Req.update_finish_state",
        ("self",),
        ("finished_reason",),
        core=True,
    ),
    Target(
        "allocate",
        "base",
        "sglang.srt.mem_cache.allocation.alloc_for_spec_decode",
        ("reqs",),
        ("kv_allocated_len", "rid"),
    ),
    Target(
        "confidence", "base", f"{MANAGERS}.overlap_utils.ConfidenceRelay.resolve", ("self", "batch"), ("spec_info",)
    ),
    Target(
        "verify",
        "stage",
        f"{MANAGERS}.tp_worker.TpModelWorker.forward_batch_generation",
        ("self", "batch", "forward_batch", "pp_proxy_tensors", "is_verify"),
        (
            "rids",
            "positions",
            "out_cache_loc",
            "input_ids",
            "draft_token_num",
            "topk",
            "tree_topk",
            "retrieve_next_token",
            "retrieve_next_sibling",
        ),
        core=True,
    ),
    Target(
        "eagle_sample",
        "stage",
        f"{SPECULATIVE}.eagle_utils.eagle_sample",
        ("verify_input", "batch", "logits_output", "grammar_mask"),
        ("next_token_logits", "sampling_info", "is_all_greedy", "draft_token_num"),
        core=True,
    ),
    Target(
        "eagle_draft",
        "stage",
        f"{SPECULATIVE}.eagle_worker_common.build_eagle_verify_input",
        ("batch", "draft_input", "parent_list", "top_scores_index", "draft_tokens"),
        ("draft_token", "retrieve_next_token", "retrieve_next_sibling", "spec_steps"),
        core=True,
    ),
    Target(
        "eagle_commit",
        "stage",
        f"{SPECULATIVE}.eagle_worker_common.run_eagle_verify",
        ("batch", "topk", "finalize_tree_path"),
        ("seq_lens", "accept_lens", "new_seq_lens", "next_token_ids", "speculative_num_draft_tokens"),
    ),
    Target(
        "publish",
        "stage",
        f"{MANAGERS}.overlap_utils.FutureMap.publish",
        ("self", "future_indices", "new_seq_lens"),
        ("is_decode",),
    ),
    Target(
        "dspark",
        "stage",
        f"{SPECULATIVE}.dspark_components.dspark_observability.DsparkStepObservers.observe_verify_step",
        (
            "forward_ct",
            "reqs",
            "bs",
            "proposal_folded",
            "verify_ids_2d",
            "layout",
            "prefix_lens",
            "correct_len",
            "cap_trim_lens",
            "bonus",
            "commit_lens",
            "verify_token_budget",
            "verify_tier_num_tokens",
        ),
        ("verify_lens",),
        core=True,
    ),
    Target(
        "dflash",
        "stage",
        f"{SPECULATIVE}.dflash_worker_v2.DFlashWorkerV2._accept_block",
        ("self", "candidates", "prefix_lens", "bs"),
        core=True,
    ),
    Target(
        "sync",
        "sync",
        f"{SPECULATIVE}.spec_tp_sync.SpecTpSync.sync",
        ("self", "site", "values"),
        ("_sites", "_tp_group"),
        core=True,
    ),
    *(Target(name, "sync", f"{GROUP}.{name}", core=name in _PLAIN) for name in COLLECTIVES),
)
