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
        (
            "Look at `decided_on`, the value that the gate compared, on both ranks: on either side of the limit it "
            "is a rank-local input, far apart it is the effect of an earlier difference."
        ),
        (
            "For the memory gates of SGLang, run with SGLANG_SPEC_TP_SYNC=all, or at least the preset `init`; the "
            "tokens are `dspark-mem` and `dflash-mem`."
        ),
        "For graph or eager, run once with --disable-cuda-graph.",
        (
            "Compare the sites of the next collectives of the ranks: a gate usually shows next as `collective-order` "
            "or `skipped-event`."
        ),
    ),
)
