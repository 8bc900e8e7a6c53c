"""The rule `draft-steps`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="draft-steps",
    rule_class="control",
    meaning=(
        "Ranks run a different number of draft forwards, or verify a different width, in the same round. Every draft "
        "forward has its own collectives, and the width sets the rows of the verify."
    ),
    example="""\
step 1005, draft_steps
  rank 0: 3
  rank 1: 5""",
    causes=(
        (
            "Adaptive speculation: each process keeps its own moving average of the acceptance and switches by "
            "itself (SGLang, srt/speculative/adaptive_spec_params.py; there is no sync)."
        ),
        "An earlier, healed or unrecorded accept difference that fed those averages.",
        "A rank near the context limit that shortens its draft, while its peer, a token behind, does not.",
    ),
    look_next=(
        (
            "Switch adaptive speculation off for one run: if the finding goes, the averages of the processes had "
            "drifted apart."
        ),
        "Compare `correct_len` of the rounds before on both ranks, healed ones included.",
        (
            "SGLang logs `Adaptive spec params updated` and `Switch adaptive runtime state` on rank 0 only: silence "
            "of the other ranks says nothing."
        ),
    ),
)
