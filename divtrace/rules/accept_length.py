"""The rule `accept-length`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="accept-length",
    rule_class="control",
    meaning=(
        "Ranks accepted a different number of drafts for the same request in the same round. Commit length, sequence "
        "length, positions and the next batch follow by arithmetic, so most crashes seen later begin here or just "
        "before."
    ),
    example="""\
eight ranks, round 3, correct_len
  ranks 0,2-3,5,7: 1
  ranks 1,4,6: 3""",
    causes=(
        (
            "The target tokens or the drafts differed, and were not recorded; see `target-tokens` and `draft-tokens` "
            "(sglang#31071, #34238)."
        ),
        "Sampling coins drawn on every rank and not broadcast: the accept site is missing in SGLANG_SPEC_TP_SYNC.",
        (
            "An accept length forced after the sync: SGLANG_SIMULATE_ACC_LEN draws in each process (comment in "
            "sglang#33614). With `synced` recorded this shows as `sync-overridden`."
        ),
        "Ranks outside the sync group: with attention DP, context-parallel peers decide for themselves in SGLang.",
        "A rejection count that is one off near the context limit (vllm#49027).",
    ),
    look_next=(
        (
            "Compare draft and target tokens of this round on all ranks (record them if they are missing): where "
            "they agree, the accept step or its sync made the difference; where not, they are the origin."
        ),
        (
            "Run once with SGLANG_SPEC_TP_SYNC=all. The exact tokens: `dspark-accept-greedy` (8), "
            "`dspark-accept-sample` (9), `dspark-accept-graph` (10), `dflash-selector` (13), `dflash-accept-sample` "
            "(14), `dflash-accept-greedy` (15)."
        ),
        (
            "On a test system, take one site out (all,-dspark-accept-greedy): every rank keeps its own value and the "
            "input that drifts becomes visible. Not in production."
        ),
        "EAGLE and NGRAM do not use SGLANG_SPEC_TP_SYNC; their greedy accept is broadcast on HIP only.",
    ),
)
