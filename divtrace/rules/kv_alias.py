"""The rule `kv-alias`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="kv-alias",
    rule_class="logical-layout",
    meaning=(
        "On one rank, a KV slot holds two live tokens at once, or the lists of slots and positions have different "
        "lengths. One of the two is being overwritten."
    ),
    example="""\
rank 1, round 4
  slot 228: request x position 40, and request y position 12""",
    causes=(
        "A slot freed too early: after a retraction, a finish or a rejected draft that was still being read.",
        "A slot handed out twice by an allocator that two paths use at the same time.",
        "A block table row of a request that has left the batch.",
        "Sharing that the trace does not show: positions below `prefix_hit` may share slots, others may not.",
    ),
    look_next=(
        "Find the event that gave the slot away before: a finish, a retraction, or a round with rejected drafts.",
        "SGLANG_CHECK_KV_PAGE_INVARIANTS and --kv-canary in SGLang check the same while it runs.",
        "Check that the recorder reports slots in one unit (slots, not pages) for both requests.",
    ),
)
