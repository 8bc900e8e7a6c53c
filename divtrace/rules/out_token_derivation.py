"""The rule `out-token-derivation`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="out-token-derivation",
    rule_class="control",
    meaning="On one rank, the committed tokens are not the accepted drafts followed by the bonus.",
    example="""\
rank 1, round 4
  draft_tokens [28115, 31294], correct_len 2, bonus 1092
  out_tokens [28115, 23456, 1092]""",
    causes=(
        (
            "Length and bonus came by broadcast and the tokens from local drafts, or the other way round (DFlash in "
            "SGLang, srt/speculative/dflash_worker_v2.py)."
        ),
        "A grammar or an end token that shortened the list but not the length.",
        "Fewer tokens than `commit_len`: the record was cut, or read from another row (stride).",
    ),
    look_next=(
        "Compare this rank's drafts with those of the sync source, and its `out_tokens` with both.",
        "Compare the next `draft_root` with the last token of the list.",
        "In the recorder, row i starts at i times the stride, and only `commit_len` tokens count.",
    ),
)
