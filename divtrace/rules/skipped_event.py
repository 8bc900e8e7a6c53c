"""The rule `skipped-event`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="skipped-event",
    rule_class="control",
    meaning=(
        "Some ranks recorded this event and one did not, although it records that place in other rounds, went on "
        "afterwards, and no lost or unreadable record can hide it. It took another way through the code, and if a "
        "collective lies on that way, the next operations pair up wrongly."
    ),
    example="""\
step 414, stage verify, site dspark-plan
  ranks 0-1,3: recorded
  rank 2: no such event, but later ones""",
    causes=(
        (
            "A gate sent the rank past it: no confidences yet, so no budget and no plan (DSpark, confidence relay in "
            "srt/managers/overlap_utils.py; a suspicion from reading the source)."
        ),
        (
            "The drafter was skipped at the context limit (vllm#49027; vLLM 0.32 guards that path for data "
            "parallelism only)."
        ),
        "An early return: empty local queue (sglang#27489), no scheduled tokens (vllm#43547).",
        "An exception that was logged and dropped: vLLM answers from one rank only (multiproc_executor.py).",
    ),
    look_next=(
        (
            "Look at the last gates and schedule decisions of that rank before the event, and record `decided_on` "
            "with them: it took another branch there, or raised and went on."
        ),
        "Compare its next collective on the same communicator with that of its peers: does it carry the same site?",
        "For SGLang, the token is the name of the site, such as `dspark-plan`. All ranks must take part or none.",
        "Check whether the recorder can lose records without counting them: `dropped` in the meta, gaps in `seq`.",
    ),
)
