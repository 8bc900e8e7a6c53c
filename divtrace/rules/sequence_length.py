"""The rule `sequence-length`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="sequence-length",
    rule_class="logical-layout",
    meaning="Ranks hold different confirmed lengths for the same request, before or after the round.",
    example="""\
request A, round 8, seq_len
  rank 0: 1004
  rank 1: 1003""",
    causes=(
        "A commit that differed in a round before, and was not recorded.",
        (
            "A pipeline stage or a worker that keeps its own books: vllm#44697; in vLLM with synchronous scheduling "
            "a wrong accept survives as a token count that is too small."
        ),
        (
            "A length relayed to the next round from a stale buffer (SGLang's overlap relay, "
            "srt/managers/overlap_utils.py)."
        ),
        "A retraction or a new prefill that one rank missed.",
    ),
    look_next=(
        (
            "Find the last round in which the lengths agree: the distance equals the difference of one `commit_len` "
            "since then."
        ),
        "Look for `sequence-continuity` in the same event: it names the rank that jumped by itself.",
        "Compare the retractions of the request on both ranks; rounds begin anew with each attempt.",
    ),
)
