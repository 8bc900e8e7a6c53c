"""The rule `plan-bound`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="plan-bound",
    rule_class="control",
    meaning=(
        "On one rank, the plan or the accept leaves its bounds: fewer than one row, more rows than the verify width, "
        "or more accepted drafts than were drafted or verified."
    ),
    example="""\
rank 0, round 5
  num_draft_tokens 4, verify_len 5 (at most 4)""",
    causes=(
        "A plan of another step, or of another request, used for this row.",
        "The verify width changed in between: adaptive steps.",
        "Accept computed over rows past the planned length, which hold zeros or left-overs.",
        "An accept taken over from a rank that drafted or planned more.",
    ),
    look_next=(
        (
            "Compare `draft_steps`, `num_draft_tokens` and `verify_len` of this round with the one before: a stale "
            "plan fits the earlier one."
        ),
        "If the accept came from a sync, compare it with the plan of the source.",
        "SGLANG_INVARIANT_CHECK makes SGLang check its own budget bound while it runs.",
    ),
)
