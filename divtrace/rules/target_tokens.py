"""The rule `target-tokens`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="target-tokens",
    rule_class="control",
    meaning=(
        "The target model names different tokens on ranks that verified the same round. On the greedy branch this "
        "decides how many drafts are accepted and which token comes next. Rows behind the first rejected draft do "
        "not count; differences there are drift."
    ),
    example="""\
request A, round 5, target_tokens, drafts equal
  rank 0: [11367, 20614, 19174, 25465]
  rank 1: [11367, 20614,  1507, 25465]""",
    causes=(
        (
            "A near tie between two logits, and a reduction that is not bit-identical on every rank: fused "
            "all-reduce on ROCm (sglang#31071), mixed GPUs, different graph paths."
        ),
        (
            "Nothing shares the greedy decision afterwards. SGLang broadcasts EAGLE's greedy result on HIP only "
            "(eagle_sample in srt/speculative/eagle_utils.py); in vLLM every TP rank samples by itself."
        ),
        "The inputs of the forward differ, but were not recorded: positions, KV contents, drafts.",
        "One rank computes other logits on replicated weights; cause open (TensorRT-LLM#13134).",
        "Logits divided by memory that nobody wrote: vLLM on CPU without Triton, temperature above 0 (vllm#55005).",
    ),
    look_next=(
        (
            "Look at `margin` of the deciding rows: close to zero speaks for a near tie, a wide margin for different "
            "inputs."
        ),
        (
            "With a wide margin, compare positions, kv_positions and drafts of the round, then the accepted path of "
            "the round before (wrong KV)."
        ),
        "DFlash: run with SGLANG_SPEC_TP_SYNC=all; the token is `dflash-accept-greedy` (number 15).",
        (
            "EAGLE: its broadcasts do not listen to SGLANG_SPEC_TP_SYNC. Run once without custom all-reduce and once "
            "with --disable-cuda-graph."
        ),
    ),
)
