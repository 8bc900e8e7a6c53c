"""The rule `sync-ineffective`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="sync-ineffective",
    rule_class="control",
    meaning=(
        "Right after a sync the ranks of one sync group still hold different values. The broadcast did not happen, "
        "did not cover this value, or went elsewhere."
    ),
    example="""\
round 3, phase synced, correct_len
  rank 0 (source): 2
  rank 1: 1""",
    causes=(
        "The group had one member, so that nothing was sent (sglang#39886, Infera#34).",
        (
            "The site is switched off: SGLANG_SPEC_TP_SYNC is narrowed. Sites inside CUDA graphs keep the setting "
            "that held when the graph was captured."
        ),
        "The sync covered another variable than the one that is used (sglang#31195, #40246).",
        (
            "The record is not what it says: a recorder that keeps a reference to a static buffer reads the next "
            "round's value."
        ),
    ),
    look_next=(
        (
            "Run once with SGLANG_SPEC_TP_SYNC=all and once with --disable-cuda-graph: if only the second removes "
            "the finding, the captured broadcast does not take effect."
        ),
        "The token of one site is its name, for instance `dspark-accept-graph`.",
        (
            "Look at `comm_ranks` and `src` of the event, and `sync` in the metas. Broadcasts in a replayed graph do "
            "not show in the flight recorder."
        ),
        "In the recorder, copy the tensor on the current stream inside the hook.",
    ),
)
