"""The rule `extra-field`."""

from __future__ import annotations

from divtrace.rules.base import Rule

RULE = Rule(
    name="extra-field",
    rule_class="control",
    meaning=(
        "A value under `extra` differs, one that only your engine or recorder knows. The prefix of its key tells the "
        "class: control., layout. or shape. are compared like the built-in fields, physical. and info. are not "
        "compared."
    ),
    example="""\
round 2, extra.control.grammar_ready
  rank 0: true
  rank 1: false""",
    causes=(
        "Whatever your engine decides on each rank for itself; the key names it.",
        "A key in the wrong class: an address, a time, a pool size or a float under control.",
        "A recorder that writes sets or maps in an order of its own.",
    ),
    look_next=(
        "Record the inputs of this value too: the first of them that differs lies upstream.",
        "Read the code that computes it, and what it reads.",
        "If the value may differ between ranks, rename the key to physical. or info.",
    ),
)
