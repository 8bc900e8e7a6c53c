"""The rule `verify-plan`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="verify-plan",
    rule_class="control",
    meaning=(
        "Ranks of one replica planned a different number of rows for the verify: another budget for the batch, or "
        "another share for one request. Equal totals do not help: one row more here and one less there moves every "
        "row behind it."
    ),
    example="""\
round 4, verify_len of request p1 (p2 has one row less on rank 2)
  ranks 0-1,3: 4
  rank 2: 5""",
    causes=(
        (
            "The plan is computed from confidences, floats that each rank has for itself (DSpark, "
            "srt/speculative/dspark_components/dspark_planner.py)."
        ),
        "The site `dspark-plan` is switched off in SGLANG_SPEC_TP_SYNC; the presets `rng` and `init` leave it out.",
        (
            "One rank had no budget, because the copy of its confidences was not ready, and took the uniform plan "
            "(srt/managers/overlap_utils.py; a suspicion from reading the source)."
        ),
        "Only the total was agreed on: the boundary between two requests is a second decision (vllm#56831).",
    ),
    look_next=(
        (
            "Run once with SGLANG_SPEC_TP_SYNC=all; the exact token of the plan is `dspark-plan` (number 7). If the "
            "finding goes, the site was switched off; if it stays, compare `verify_budget`, -1 (none) included."
        ),
        "The broadcast covers the lengths, not the budget.",
        "Run once with SGLANG_RAGGED_VERIFY_MODE=static, which plans nothing.",
        (
            "SGLANG_DSPARK_DEBUG_CONFIDENCE_PREFIX_SCHEDULER prints budget and lengths on every rank, after the "
            "broadcast."
        ),
    ),
)
