"""The rule `finish`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="finish",
    rule_class="control",
    meaning=(
        "A request is over on some ranks and runs on at others, or ended for another reason. The next batch then has "
        "different members."
    ),
    example="""\
round 4 of request s-a, finished
  rank 0: "" (running)
  rank 1: stop""",
    causes=(
        (
            "Stop strings are searched in the text that each rank detokenises for itself (SGLang, "
            "update_finish_state in srt/managers/schedule_batch.py)."
        ),
        "The committed tokens or lengths differ, and were not recorded: end token, length limit.",
        "An abort that one rank saw a step earlier.",
        "A grammar that terminated on one rank.",
    ),
    look_next=(
        (
            "Compare `out_tokens` and `new_seq_len` of this and the earlier rounds: if they agree, text, a clock or "
            "an abort decided; if not, the tokens did."
        ),
        "Read the schedule decisions about the request, with `reason`.",
        "Run once with the stop string as a stop token, if it is one token.",
    ),
)
