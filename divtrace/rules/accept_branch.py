"""The rule `accept-branch`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="accept-branch",
    rule_class="control",
    meaning=(
        "Ranks judged the same round by different methods, such as greedy and sampling. The methods accept different "
        "drafts, and they sync at different places, so their broadcasts pair up wrongly."
    ),
    example="""\
request r-9, round 12, branch
  rank 0: greedy
  rank 1: sampling""",
    causes=(
        "The batch differs: one sampled request moves the whole batch to the sampling branch.",
        (
            "The branch depends on the platform or on a default: rejection sampling is switched on by itself on ROCm "
            "(SGLang, srt/arg_groups/speculative_hook.py)."
        ),
        (
            "Graph or eager differs between ranks: DSpark accepts inside the verify graph on one path and in eager "
            "code on the other."
        ),
        "A grammar is ready on one rank only; DSpark leaves the graph path when a request of the batch has one.",
    ),
    look_next=(
        (
            "Compare the batch of the step and the sampling parameters of its requests; if they agree, run once in "
            "eager mode (SGLang: --disable-cuda-graph, vLLM: --enforce-eager), so that every rank takes the eager "
            "path."
        ),
        (
            "DSpark: look which sync site each rank recorded; the branches sync under different tokens, "
            "`dspark-accept-greedy`, `dspark-accept-sample` and `dspark-accept-graph`."
        ),
    ),
)
