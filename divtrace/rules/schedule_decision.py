"""The rule `schedule-decision`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="schedule-decision",
    rule_class="control",
    meaning=(
        "Ranks that share a request took different decisions about it (admit, keep, abort, evict, retract), or took "
        "the same one for another reason. From the next step on they run different batches."
    ),
    example="""\
step 3305, request q-2, two pipeline stages
  ranks 0-1: decision abort, reason running_timeout, decided on 120004 ms
  ranks 2-3: decision keep, decided on 119998 ms""",
    causes=(
        "Each rank asked its own clock: the running timeout was checked per pipeline stage (sglang#25887).",
        (
            "Each rank waited for its own background work: grammar compilation (sglang#28424, fixed by #30747), or "
            "metadata of a prefill-decode transfer that had landed on some ranks only (sglang#26394)."
        ),
        (
            "Ties between eviction candidates were broken by addresses or by the order of an unordered container "
            "(tokenspeed#248); the caches drift for hours before it shows."
        ),
        "A host allocation succeeded on some ranks only, as in HiCache write-through (sglang#27489).",
        "Free pages differed at a threshold, so that one rank retracted and its peers did not.",
    ),
    look_next=(
        (
            "Compare `decided_on` of both sides with the limit: an age or a page count just on either side of it "
            "means that a local input decided. Then raise the limit, or switch the feature off, for one run."
        ),
        "If the ranks are of different PP stages, read the logs of both stages, not only of the first.",
        "Look for retraction on one rank only; SGLang logs `KV cache pool is full. Retract requests`.",
        "Record `reason` and `decided_on` if they are missing.",
    ),
)
