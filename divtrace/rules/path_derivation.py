"""The rule `path-derivation`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="path-derivation",
    rule_class="control",
    meaning=(
        "On one rank, the accepted path is no path of that rank's own draft tree, or its tokens are not the ones "
        "that the target named. Where the accept came by broadcast, this rank's drafts are not those of the source, "
        "and its KV holds other tokens than it commits."
    ),
    example="""\
rank 1, round 6
  draft_parents [0, 0, 1, 2], accept_path [0, 1, 4] (node 4 is a child of 2)""",
    causes=(
        (
            "The accept was broadcast, the drafts were not: EAGLE in SGLang shares predict, accept_index and the "
            "number of drafts, never the tree (srt/speculative/eagle_utils.py)."
        ),
        "Node numbers of the whole batch in the record in place of those of the row.",
        "A path recorded after the nodes were moved to the front.",
    ),
    look_next=(
        (
            "Compare `draft_tokens` and `draft_parents` with those of the sync source: the first that differs is the "
            "origin."
        ),
        "Look at later rounds of the request on this rank: wrong KV shows as odd `target_tokens`.",
        "No token of SGLANG_SPEC_TP_SYNC covers EAGLE's tree.",
    ),
)
