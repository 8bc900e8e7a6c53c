"""The rule `commit-length`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="commit-length",
    rule_class="control",
    meaning=(
        "Ranks moved the same request forward by a different number of tokens. From here on its lengths, positions "
        "and KV ownership are apart."
    ),
    example="""\
round 4, commit_len, accepts equal
  rank 0: 4
  rank 1: 2""",
    causes=(
        "The accepts differ, and were not recorded; see `accept-length`.",
        "A pipeline stage that never hears of rejections and books every draft as accepted (vllm#44697).",
        (
            "The trim of a cap subtracted from an accept that is capped already (SGLang reports `correct_len` after "
            "the cap)."
        ),
        "The grammar kept fewer tokens on one rank, or the row counted as finished or retracted there.",
    ),
    look_next=(
        (
            "Compare the accept of the same round on both ranks: if it agrees, the difference was made in the "
            "commit, and `commit-arithmetic` names the rank whose sum is wrong."
        ),
        "If the odd ranks are one PP stage, look at how that stage learns of the accept.",
        "With overlap, the commit of step s is written after the schedule of step s+1: read by round, not by line.",
    ),
)
