"""The rule `forward-mode`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="forward-mode",
    rule_class="control",
    meaning=(
        "In the same step, ranks of one replica run different kinds of forward: extend, decode, verify or idle. Each "
        "kind has its own kernels, shapes and number of collectives."
    ),
    example="""\
step 52, forward_mode
  rank 0: extend
  rank 1: verify""",
    causes=(
        "The batch differs already, and the batch was not recorded.",
        "Chunked or mixed prefill decided from a rank's own free pages or queue.",
        "A step without scheduled tokens that returns early on one rank (vllm#43547).",
        "A pipeline stage that counts a request as finished or prefilled one step earlier than the others.",
    ),
    look_next=(
        (
            "Compare the batch and the schedule decisions of the same step; if they agree, run once without chunked "
            "prefill (SGLang: --chunked-prefill-size -1): if the finding goes, the chunk decision was local."
        ),
        "Check that the chunk and prefill limits are equal on all ranks.",
    ),
)
