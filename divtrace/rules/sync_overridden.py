"""The rule `sync-overridden`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="sync-overridden",
    rule_class="control",
    meaning=(
        "The sync worked, then a rank went on with another value than the one it had received, and now the ranks "
        "differ. The decision was made twice."
    ),
    example="""\
round 3, correct_len
  rank 0: synced 3, used 3
  rank 1: synced 3, used 4""",
    causes=(
        (
            "An accept length forced after the broadcast: SGLANG_SIMULATE_ACC_LEN draws a number in each process "
            "(SGLang eagle_utils.py and dflash_worker_v2.py; comment in sglang#33614)."
        ),
        "The input is read a second time, locally, behind the sync (sglang#31869).",
        "A cap, a grammar or an end token applied to the synced value on one rank only.",
        "A stale copy on the host that is used in place of the synced tensor.",
    ),
    look_next=(
        (
            "Unset SGLANG_SIMULATE_ACC_LEN; if it was not set, look for code that writes the named field between the "
            "sync and its first use."
        ),
        (
            "More sync does not help here: the site is on already if `synced` is equal, so SGLANG_SPEC_TP_SYNC=all "
            "changes nothing."
        ),
    ),
)
