"""The rule `init-config`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="init-config",
    rule_class="control",
    meaning=(
        "Ranks of one replica were started with different settings: trace format, parallel sizes, groups, algorithm, "
        "sync sites, or engine name and version. Ranks that are set up differently cannot be expected to decide "
        "alike, so this comes before everything else. For the rest of the report the groups are those of the lowest "
        "rank."
    ),
    example="""\
meta records of replica 0
  rank 0: sync all
  rank 1: sync all,-dspark-plan""",
    causes=(
        (
            "The nodes were launched with different command lines or environments; a variable such as "
            "SGLANG_SPEC_TP_SYNC was exported on one node only."
        ),
        "Two images or wheels of different versions, for instance a moving tag that was pulled on different days.",
        (
            "A launch script that works out sizes on each node: dp_size with and without DP attention is read as "
            "attn_dp_size or as separate worlds (SGLang, srt/arg_groups/parallel_hook.py)."
        ),
    ),
    look_next=(
        "Make the differing setting equal on all nodes and run again before reading any other finding.",
        (
            "Compare the first line of the two files, then the launch commands and environments of the two processes "
            "(/proc/PID/environ)."
        ),
        (
            "Read SGLANG_SPEC_TP_SYNC on every node: SGLang warns about narrowed sites only on the first rank of "
            "each group."
        ),
    ),
)
