"""The rule `kv-ownership`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="kv-ownership",
    rule_class="logical-layout",
    meaning=(
        "Ranks of one attn_tp group say that their KV slots hold different logical positions. The slot numbers "
        "themselves may differ; what they hold may not."
    ),
    example="""\
round 8, kv_positions
  rank 0: [100, 101, 102, 103]
  rank 1: [100, 101, 102]""",
    causes=(
        (
            "The commit length or the accepted path differs: with a tree, the KV of the path is moved, and a wrong "
            "path keeps wrong rows."
        ),
        "Rows of rejected drafts freed on one rank and kept on another.",
        "A cache restored or evicted on one rank only; see `prefix-length`.",
        (
            "A context-parallel split applied inside the attention TP group; ownership differs between CP peers "
            "only, by the ownership rule (ROCm/ATOM#2118 shows one that advanced every rank)."
        ),
    ),
    look_next=(
        (
            "Compare `accept_path`, `commit_len` and `new_seq_len` of the round: if they agree, rows were kept or "
            "freed differently."
        ),
        "Look for `kv-alias` on either rank: two live positions in one slot.",
        "Ignore `kv_slots`, `pool_index` and `pool_free` between ranks: they are physical.",
    ),
)
