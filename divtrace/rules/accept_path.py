"""The rule `accept-path`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="accept-path",
    rule_class="control",
    meaning=(
        "Ranks accepted different nodes of the draft tree. The lengths may be equal; tokens, and the KV rows that "
        "are kept, are not."
    ),
    example="""\
round 6, accept_path
  rank 0: [0, 1, 4]
  rank 1: [0, 2, 5]""",
    causes=(
        "The trees differ, and were not recorded; see `draft-tree`.",
        "The target tokens differ at a node with several children.",
        "Two siblings with the same token, taken in a different order.",
        "A recorder that writes global node numbers (row times width plus node) on one rank.",
    ),
    look_next=(
        (
            "Compare `draft_tokens` and `draft_parents` of the round on both ranks: if they agree, the target tokens "
            "or a sync made the difference."
        ),
        (
            "Look for `path-derivation` in the same event: that rank's path does not follow from its own tree, so it "
            "came from elsewhere."
        ),
        (
            "With more than one branch, SGLang moves the KV of the accepted path to the front "
            "(_finalize_accept_tree_path in srt/speculative/eagle_worker_common.py): a wrong path means wrong KV in "
            "later rounds."
        ),
    ),
)
