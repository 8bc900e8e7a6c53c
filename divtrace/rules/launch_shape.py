"""The rule `launch-shape`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="launch-shape",
    rule_class="shape",
    meaning=(
        "Ranks of one attn_tp group launched the same step with different shapes: rows, padded rows, batch size, "
        "dtype, or graph against eager. A replayed graph of another size contains other collectives."
    ),
    example="""\
step 640, padded_tokens, verify_len equal after the sync
  rank 0: 12
  rank 1: 16""",
    causes=(
        (
            "The size of the captured graph is taken from a budget that each rank computes for itself, while the "
            "lengths are broadcast (DSpark, graph_num_tokens in dspark_planner.py; a suspicion from reading the "
            "source)."
        ),
        (
            "One rank replays a graph and another runs eager: a missing seed on active ranks (sglang#32196), another "
            "capture mode on idle ranks (sglang#31566)."
        ),
        "The batch or the plan differs, and was not recorded.",
        (
            "Token counts of the target used for the draft, or padding to the DP maximum done for some tensors only "
            "(sglang#32196, vllm-ascend#16799)."
        ),
    ),
    look_next=(
        (
            "Run once in eager mode (SGLang: --disable-cuda-graph, vLLM: --enforce-eager): if the finding goes, the "
            "choice of the graph was rank-local; if not, compare `batch` and `verify_len` of the same step."
        ),
        "Compare `verify_budget`: the token `dspark-plan` covers the lengths and not the budget.",
        "SGLANG_LOG_DECODE_GRAPH_KEY logs the key of every replayed graph on every rank.",
    ),
)
