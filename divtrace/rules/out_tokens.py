"""The rule `out-tokens`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="out-tokens",
    rule_class="control",
    meaning=(
        "Ranks committed different tokens, possibly the same number of them. No shape changes and nothing hangs; the "
        "KV contents are different from here on, and the client gets the text of one rank."
    ),
    example="""\
round 4, out_tokens, commit_len equal
  rank 0: [28115, 31294, 43778, 23926, 1092]
  rank 1: [28115, 23456, 43778, 23926, 1092]""",
    causes=(
        (
            "The drafts differ while the accept is shared: DFlash's sampled accept broadcasts length and bonus, and "
            "fills the tokens from each rank's own candidates (SGLang, srt/speculative/dflash_worker_v2.py; "
            "sglang#40246)."
        ),
        "The accepted path or the bonus differs, and was not recorded.",
        (
            "Tokens past `commit_len` mixed into the record; what lies behind the commit is left-over and must not "
            "be compared."
        ),
    ),
    look_next=(
        (
            "Compare `draft_tokens` of the round (record them if they are missing): if they differ while length and "
            "bonus agree, the sync covers the accept and not the candidates."
        ),
        (
            "Look for `out-token-derivation` in the same event: the tokens do not follow from that rank's own drafts "
            "and bonus."
        ),
        (
            "`dflash-selector` and `dflash-accept-sample` cover length and bonus: no token of SGLANG_SPEC_TP_SYNC "
            "makes DFlash's drafts equal."
        ),
    ),
)
