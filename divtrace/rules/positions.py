"""The rule `positions`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="positions",
    rule_class="logical-layout",
    meaning=(
        "Ranks place the rows of the same request at different logical positions. Attention reads and writes other "
        "places in the sequence; the text goes wrong before anything hangs."
    ),
    example="""\
first verify of ps-1, positions
  ranks 0-1: [48, 49, 50, 51]
  ranks 2-3: [64, 65, 66, 67]""",
    causes=(
        "The lengths went apart in a round before, and were not recorded.",
        "A prefix restored from storage and counted differently.",
        "A pipeline stage that was not told of rejected drafts runs ahead (vllm#44697).",
        "vLLM with async scheduling: accept counts stay on each rank, and positions follow them.",
        (
            "Positions built from live requests only, while hidden rows were padded to the DP maximum "
            "(vllm-ascend#16799)."
        ),
    ),
    look_next=(
        (
            "Compare `seq_len` of the same event: if it agrees, the positions themselves are computed wrongly and "
            "`position-arithmetic` names the rank; if not, find the round in which the lengths parted."
        ),
        "Look at `new_seq_len` and `commit_len` of the round before.",
        "Drafter positions are another matter: EAGLE drafts one position before the root.",
    ),
)
