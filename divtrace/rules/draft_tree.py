"""The rule `draft-tree`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="draft-tree",
    rule_class="control",
    meaning=(
        "The candidates are equal, but they hang under different parents. A flat list of tokens looks the same; the "
        "paths that can be accepted, the positions and the attention mask are not."
    ),
    example="""\
round 3, draft_tokens equal, draft_parents
  rank 0: [0, 0, 1, 1, 2]
  rank 1: [0, 0, 1, 2, 1]""",
    causes=(
        (
            "Equal or nearly equal scores that a sort or top-k orders differently; the scores are floats of each "
            "rank and never broadcast (SGLang, organize_draft_results in srt/speculative/eagle_utils.py)."
        ),
        "Another tree builder on one rank, for instance a fused chain kernel beside the general one.",
        "A recorder that numbers the nodes differently: 0 is the root, node i+1 is draft_tokens[i].",
    ),
    look_next=(
        (
            "Run once with a chain (SGLang: --speculative-eagle-topk 1): if the finding goes, the choice of tree "
            "nodes was it."
        ),
        (
            "Look for `path-derivation` in later accepts: a rank whose path contradicts its own tree received the "
            "accept of another rank."
        ),
        "No token of SGLANG_SPEC_TP_SYNC covers the tree.",
    ),
)
