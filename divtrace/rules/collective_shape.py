"""The rule `collective-shape`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="collective-shape",
    rule_class="shape",
    meaning=(
        "Members issued the same operation with different sizes or types. gloo aborts with a size message, NCCL and "
        "HCCL mostly wait until the timeout or mix up the data."
    ),
    example="""\
communicator pp, operation 77, broadcast, numel
  ranks 0-2: 15
  rank 3: 3""",
    causes=(
        "The rows differ because of an earlier decision; then this is a consequence (sglang#25887: 4 against 8).",
        "One side sends one token per request, the others expect the whole verify width.",
        "Idle ranks bring dummy rows, busy ranks real ones: LM head TP across DP (vllm-ascend#15079).",
        "The accepted length sets the size of the next draft batch: vLLM's EAGLE with disable_padded_drafter_batch.",
    ),
    look_next=(
        (
            "Compare the rows launched and the batch of every member in that step, idle ranks included; if they were "
            "not recorded, record them first, for this is only where it surfaced."
        ),
        "In a group of two, a size mismatch does not tell which side is right.",
    ),
)
