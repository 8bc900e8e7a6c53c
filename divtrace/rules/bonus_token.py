"""The rule `bonus-token`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="bonus-token",
    rule_class="control",
    meaning=(
        "Ranks hold a different bonus token, the one that the target adds behind the accepted drafts; in round 0 it "
        "is the first token after the prefill. It is the root of the next draft."
    ),
    example="""\
prefill of request ft-2, bonus
  ranks 0,2-3: 21528
  rank 1: 21533""",
    causes=(
        (
            "Round 0: the first token is sampled on every rank. SGLang's EAGLE has no broadcast there; only "
            "SYNC_TOKEN_IDS_ACROSS_TP, or a grammar in the batch, makes the ranks agree. The name with the prefix "
            "SGLANG_ is declared but read nowhere."
        ),
        "A near tie, or random numbers drawn in each process.",
        "The accepts differ, so the bonus is read at another row.",
        "The bonus was not read again after a cap shortened the accept.",
    ),
    look_next=(
        (
            "Compare `correct_len` and `target_tokens` of the same round: if they agree, every rank sampled this "
            "token for itself or read it at another row; if they differ, they are the origin."
        ),
        (
            "SGLang, round 0: start once with SYNC_TOKEN_IDS_ACROSS_TP=1 (EAGLE) or SGLANG_SPEC_TP_SYNC=all (the "
            "tokens are `dspark-target`, 11, and `dflash-target`, 16)."
        ),
        (
            "SGLang, later rounds: the tokens are `dspark-accept-greedy`, `dspark-accept-sample`, "
            "`dspark-accept-graph`, `dflash-selector` and `dflash-accept-sample`; run with SGLANG_SPEC_TP_SYNC=all."
        ),
    ),
)
