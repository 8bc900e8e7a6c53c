"""The rule `position-arithmetic`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="position-arithmetic",
    rule_class="logical-layout",
    meaning=(
        "On one rank, the positions of a verify do not start at the confirmed length, or do not rise as the chain or "
        "the tree demands; in a prefill they are not consecutive."
    ),
    example="""\
rank 2, round 1, seq_len 48
  positions [64, 65, 66, 67] (must be [48, 49, 50, 51])""",
    causes=(
        "A length used for the positions that is not the recorded one: an optimistic or a stale copy.",
        "A restored prefix that was counted twice.",
        "Tree depths replaced by node numbers.",
        "Padding rows recorded as real ones (give `num_tokens` or `verify_len`).",
    ),
    look_next=(
        (
            "Compare the distance between `positions[0]` and `seq_len` with earlier commits, the page size and the "
            "prefix length: it tells whose value was used."
        ),
        "Look at `prefix_hit` and restores of the request.",
        "If all ranks agree in the wrong positions, the text is wrong everywhere and nothing will hang.",
    ),
)
