"""The rule `batch-membership`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="batch-membership",
    rule_class="control",
    meaning=(
        "In the same step, ranks of one replica run different sets of requests. Rows, shapes and collectives differ "
        "from here on. Only the set is judged here; the order of equal sets is `row-order`."
    ),
    example="""\
step 884, batch
  rank 2: [m-1]
  rank 3: [m-1, m-2]""",
    causes=(
        "A decision that was not recorded: an abort, a finish or an admission that reached one rank a step later.",
        (
            "An accept or commit that differed earlier and was not recorded. The public pattern: two ranks with 24 "
            "requests, two with 25 and another first request, just before the watchdog (sglang#34238)."
        ),
        (
            "Readiness looked at by each rank for itself: grammar (sglang#28424), prefill-decode transfer "
            "(sglang#26394), timers (sglang#25887)."
        ),
        (
            "Requests that never arrived, because the broadcast compared a group-local rank with a global source "
            "(tokenspeed#786)."
        ),
    ),
    look_next=(
        (
            "Read the last schedule and commit events of a request that only one side has, on both ranks: `divtrace "
            "show --req R`."
        ),
        (
            "Record schedule decisions with `reason` and `decided_on`, and `finished` on the commit; without them "
            "this is the first observed difference, not the first one."
        ),
        (
            "In SGLang, read the watchdog's dump of every rank: it prints the batch size and the requests with their "
            "output ids."
        ),
    ),
)
