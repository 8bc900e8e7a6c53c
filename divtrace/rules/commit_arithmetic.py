"""The rule `commit-arithmetic`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="commit-arithmetic",
    rule_class="control",
    meaning=(
        "On one rank, the committed length is not the accepted drafts plus the bonus (UNO: plus two), or the new "
        "length is not the old one plus the commit. Checked on every rank by itself, also where all ranks agree."
    ),
    example="""\
round 4 on rank 1
  correct_len 3, commit_len 2 (must be 4)
  seq_len 100, new_seq_len 102""",
    causes=(
        "The trim of a cap subtracted once more: in SGLang `correct_len` is capped already.",
        "A bonus counted twice or not at all.",
        "Values of two rounds in one record: a buffer read after the next round had written it.",
        "A grammar that kept fewer tokens than were accepted, on a request that does not end there.",
    ),
    look_next=(
        (
            "Look which of accept and commit the next round's `seq_len` follows: the other one is wrong, or recorded "
            "wrongly."
        ),
        "If all ranks break it in the same way, suspect the engine or the recorder, not the communication.",
        "In the recorder, check whether `commit_len` includes the bonus.",
    ),
)
