"""The rule `draft-tokens`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="draft-tokens",
    rule_class="control",
    meaning=(
        "Ranks of one replica drafted different candidates for the same round, or started from a different root "
        "token. Every rank verifies its own candidates, so accepts and committed tokens part even where the target "
        "agrees."
    ),
    example="""\
request c-7, round 2, draft_tokens
  ranks 0-1: [37895, 22955, 9092]
  ranks 2-3: [37895,  4711, 9092]""",
    causes=(
        (
            "The drafter's argmax or top-k falls differently on a near tie: not bit-identical kernels, or two types "
            "of GPU (sglang#40246: DFlash on sm_86 beside sm_89; sglang#34238: EAGLE on ROCm)."
        ),
        (
            "The algorithm never shares drafts. In SGLang, EAGLE, DFlash and NGRAM have no draft broadcast; DSpark "
            "has one per draft step, if it is switched on."
        ),
        "Random numbers drawn in each process: sampled drafts without a seed, DFlash's selector.",
        (
            "A drafter that lives in each process: the n-gram corpus takes back every committed run, so one wrong "
            "commit poisons later rounds (SGLang ngram_worker.py; vllm#31154 under the external launcher)."
        ),
        (
            "An argmax over the local shard of the vocabulary, or rows of another rank after a gather "
            "(TensorRT-LLM#16440)."
        ),
        "The root differs: then the round before committed different last tokens.",
    ),
    look_next=(
        (
            "Run once in eager mode (SGLang: --disable-cuda-graph, vLLM: --enforce-eager): if the drafts agree then, "
            "the graph path differs; if not, record the drafter's `margin`, which is near zero for a tie and wide "
            "for different inputs."
        ),
        (
            "DSpark: run with SGLANG_SPEC_TP_SYNC=all; the token is `dspark-draft` (number 17; the names "
            "dspark-draft-greedy, -sample and -multinomial are old). It is in none of the presets rng and init."
        ),
        "EAGLE, DFlash, NGRAM: no token of SGLANG_SPEC_TP_SYNC covers drafts.",
        "If `draft_root` differs, go to the commit or the prefill of the round before.",
        (
            "vLLM with synchronous scheduling uses the drafts of one rank only; there a difference need not have any "
            "effect."
        ),
    ),
)
