"""The rule `sequence-continuity`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="sequence-continuity",
    rule_class="logical-layout",
    meaning=(
        "On one rank, a round does not start at the length at which the round before ended, and neither a retraction "
        "nor an extend explains it."
    ),
    example="""\
rank 1, request A
  round 7: new_seq_len 1003
  round 8: seq_len 1004""",
    causes=(
        (
            "The relay between rounds delivered an old or a foreign value (SGLang's FutureMap, "
            "srt/managers/overlap_utils.py)."
        ),
        "A retraction, or a decode tail in a mixed prefill batch, that was not recorded.",
        "Books kept twice and corrected once: on a PP stage, or on the host beside the device (vllm#44697).",
        "Rounds numbered differently from the commits, by an engine that runs ahead.",
    ),
    look_next=(
        (
            "Look for a retraction or an extend between the two rounds that the trace lacks; if there was none, "
            "compare `kv_positions` with both lengths to see which of them was used."
        ),
        "Check whether this round ran before the commit of the round before was read (overlap).",
    ),
)
