"""The rule `cap-trim`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="cap-trim",
    rule_class="control",
    meaning=(
        "Ranks report a different number of drafts cut by a cap. The accepted length is capped already, so by itself "
        "this changes statistics only; it tells that plan or mode differ."
    ),
    example="""\
round 9, cap_trim_len, correct_len equal
  rank 0: 2
  rank 1: 0""",
    causes=(
        "`verify_len` differs between the ranks, and was not recorded.",
        "The ranks run different ragged verify modes: only cap-accept trims; in static mode the trim is always 0.",
        (
            "In compact mode, rows past the planned length are filled with zeros, and a chance match there counts as "
            "a trim (SGLang, srt/speculative/dspark_components/dspark_verify.py)."
        ),
    ),
    look_next=(
        (
            "Compare `verify_len`, `verify_budget` and SGLANG_RAGGED_VERIFY_MODE of the ranks: if they are equal, "
            "the trim was changed after its sync."
        ),
        (
            "The trim is the third value broadcast at `dspark-accept-greedy`, `dspark-accept-sample` and (in the "
            "graph) `dspark-accept-graph`."
        ),
        "Check `commit_len`: it must not depend on the trim; see `commit-arithmetic`.",
    ),
)
