"""The invariants of one rank (SPEC section 7), in the order in which they name a finding.

`kv-alias` is not in this list: it follows slots over the requests of a rank (`divtrace.walk.slots`).
"""

from __future__ import annotations

from divtrace.invariants import (
    accept_derivation,
    anchor_continuity,
    commit_arithmetic,
    out_token_derivation,
    path_derivation,
    plan_bound,
    position_arithmetic,
    sequence_continuity,
)
from divtrace.invariants.base import Check

CHECKS: tuple[Check, ...] = (
    commit_arithmetic.check,
    sequence_continuity.check,
    anchor_continuity.check,
    plan_bound.check,
    accept_derivation.check,
    path_derivation.check,
    out_token_derivation.check,
    position_arithmetic.check,
)
