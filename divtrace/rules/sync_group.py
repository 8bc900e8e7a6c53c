"""The rule `sync-group`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="sync-group",
    rule_class="control",
    meaning=(
        "A sync went over other ranks than the sync group, or from another source than its first rank. Ranks that "
        "should hear the decision do not, or they take it from a rank that serves other requests."
    ),
    example="""\
attention groups [0,1] and [2,3], sync of the second
  ranks 2-3: comm_ranks [2, 3], src 0 (must be 2)""",
    causes=(
        "A group-local rank used as a global one, or the reverse (tokenspeed#786).",
        (
            "The TP group in place of the attention TP group, or the reverse, under DP attention (SGLang chooses in "
            "get_dp_tp_group(), srt/layers/dp_attention.py)."
        ),
        "A group of one rank (sglang#39886).",
        "The sizes in the meta are not those of the run: dp_size with DP attention means attn_dp_size.",
    ),
    look_next=(
        (
            "Hold `divtrace topology`, with the sizes of the launch command, against `comm_ranks` and `src` of the "
            "event: either the engine or the sizes in the meta are wrong."
        ),
        (
            "Check that the recorder writes global ranks in `comm_ranks` and `src`; torch's broadcast takes a global "
            "source, SGLang's group.broadcast a group-local one."
        ),
        "SGLANG_SPEC_TP_SYNC switches sites on and off; it cannot repair the group.",
    ),
)
