"""What a rule is."""

from __future__ import annotations

from typing import Literal

import msgspec

RuleClass = Literal["control", "logical-layout", "shape"]


class Rule(msgspec.Struct, frozen=True):
    """One rule: a name that is stable, its class, and the page that `divtrace explain` shows.

    The texts are for an engineer at 3 a.m.: plain, concrete, in the words of the field.
    """

    name: str
    rule_class: RuleClass
    meaning: str
    """What the rule states, and what it means that it is broken; one to three sentences."""
    example: str
    """A small concrete example with values per rank."""
    causes: tuple[str, ...]
    """What usually breaks it, likeliest first; engine, file or issue where known."""
    look_next: tuple[str, ...]
    """What to look at next: records, settings, switches."""
