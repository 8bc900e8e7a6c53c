"""The rule `row-order`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="row-order",
    rule_class="logical-layout",
    meaning=(
        "Ranks run the same requests in a different row order. All sizes agree and nothing hangs, but an all-reduce "
        "adds activations of different requests."
    ),
    example="""\
step 59, batch
  rank 0: [u1, u2, u3]
  rank 1: [u2, u1, u3]""",
    causes=(
        (
            "Requests were admitted in a different order: readiness of grammars or transfers, arrival on several "
            "sockets."
        ),
        "A sort by priority or length with ties, or a walk over an unordered container.",
        (
            "A retracted request that came back at another place. SGLang keeps the order when it filters and appends "
            "when it merges (filter_batch, merge_batch in srt/managers/schedule_batch.py)."
        ),
    ),
    look_next=(
        (
            "Compare the order in which these requests were admitted on both ranks, in the steps in which they "
            "entered the batch."
        ),
        "Check that the scheduling policy has a total order: break ties by request id.",
        "Treat the outputs of these requests since this step as wrong.",
    ),
)
