"""The rule `anchor-continuity`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="anchor-continuity",
    rule_class="control",
    meaning=(
        "On one rank, the draft does not start from the last token that the round before committed. It continues "
        "another text than the one that was sent to the client."
    ),
    example="""\
rank 1, request A
  round 7: out_tokens [.., 27, 136]
  round 8: draft_root 145""",
    causes=(
        "The bonus was replaced after the drafter had taken it, for instance by a sync, a grammar or a forced token.",
        "The root was gathered from another request's slot of the relay buffer.",
        (
            "The draft was made ahead of time, before the accept was final (EAGLE drafts the first step of a round "
            "at the end of the round before)."
        ),
        (
            "A recorder that pairs a draft with the wrong round: a draft made in step s belongs to the round "
            "verified in step s+1."
        ),
    ),
    look_next=(
        "Follow `bonus` of the round before through its phases: was it replaced after the drafter had taken it?",
        "Compare the first draft of the round between the ranks.",
        "Look whether another request of the batch has this root as its last token.",
    ),
)
