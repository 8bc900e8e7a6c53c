"""The rule `accept-derivation`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="accept-derivation",
    rule_class="control",
    meaning=(
        "On one rank, the recorded accept does not follow from that rank's own drafts and target tokens: a greedy "
        "chain accepts the leading drafts that equal the target's tokens, and the bonus is the target's next one."
    ),
    example="""\
rank 1, round 3
  draft_tokens [311, 42, 9], target_tokens [311, 42, 15, 60]
  correct_len 3 (its own tokens give 2, bonus 15)""",
    causes=(
        "The accept was received from another rank, whose tokens differ: look at `draft-tokens` and `target-tokens`.",
        "A forced accept length (SGLANG_SIMULATE_ACC_LEN).",
        "Drafts in the record that are not those that were verified: rebuilt after the verify, or another round's.",
        "The accept kernel itself, or a cap that was applied without a recorded `verify_len`.",
    ),
    look_next=(
        (
            "Compare this rank's accept with that of the sync source: if they are equal it was received, and drafts "
            "or target tokens differ; if not, the accept step itself contradicts its inputs."
        ),
        (
            "Look at the `local` accept, if recorded: it must follow from the rank's own tokens; if it does, the "
            "sync changed it."
        ),
        "Without any sync, reproduce the accept with this round's tokens.",
    ),
)
