"""The rule `gate`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="gate",
    rule_class="control",
    meaning=(
        "A yes-or-no that chooses a code path came out differently on ranks of one replica. If the path contains a "
        "collective, one rank issues operations that its peers do not. A gate at start-up can stay without effect: "
        "if drafts, accepts and commits are equal afterwards, it is not shown to explain anything."
    ),
    example="""\
stage init, site draft-shares-embedding, gate
  rank 0: false
  rank 1: true""",
    causes=(
        (
            "The gate reads a rank-local value: rejected drafts near max_model_len decide whether the drafter still "
            "fits (vllm#49027)."
        ),
        (
            "Graph or eager is chosen from something that only active ranks have (sglang#32196), or idle ranks ask "
            "for another capture mode (sglang#31566)."
        ),
        "A comparison of weights on the local shard: whether EAGLE shares the embedding (vllm#50158).",
        (
            "Free GPU memory at start-up decides whether a draft graph is captured (SGLang sites dspark-mem, "
            "dflash-mem)."
        ),
        (
            "A host asks whether an asynchronous copy is done: DSpark's confidence relay in "
            "srt/managers/overlap_utils.py."
        ),
    ),
    look_next=(
        "`decided_on`: the value that the gate compared, and how close it was to the limit.",
        (
            "Whether the next collectives of the two ranks still carry the same site: a gate usually shows as "
            "`collective-order` or `skipped-event` next."
        ),
        (
            "For the memory gates of SGLang: the tokens are `dspark-mem` and `dflash-mem`, both in the preset "
            "`init`. Run with SGLANG_SPEC_TP_SYNC=all, or at least with `init`."
        ),
        "For graph or eager: run once with --disable-cuda-graph.",
    ),
)
