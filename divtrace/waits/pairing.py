"""Operations paired with the wrong partner because one rank issued one operation too few or too many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

LOOK_AHEAD = 64
"""Numbers behind the first visible difference that must fit the shifted order."""


class Shift(msgspec.Struct, frozen=True):
    """From `earliest` on, one rank's operations carry numbers that are off by one.

    Operations of equal op and size hide the wrong pairing, so the place is a range: somewhere from `earliest` to
    `latest` the operation was left out or put in, and no result from there to the first visible difference can be
    trusted.
    """

    kind: Literal["missing", "extra"]
    earliest: int
    latest: int
    visible: int
    """The first number at which the difference shows."""
    agreeing: int
    """How many operations behind it fit the shifted order."""


def find_shift(own: Mapping[int, int], reference: Mapping[int, int], visible: int) -> Shift | None:
    """Whether one rank lacks one operation of the reference, or has one more.

    Args:
        own: by number, the signature of the rank's operation.
        reference: the same for the ranks it is compared with.
        visible: the first number at which they differ.

    None unless every operation that both recorded behind `visible` (up to LOOK_AHEAD, at least one) fits the shift.
    """
    if visible not in own or visible not in reference:
        return None
    candidates = []
    for kind, step in (("missing", 1), ("extra", -1)):
        # missing: own[i] is reference[i + 1]; extra: own[i + 1] is reference[i].
        ahead, behind = (reference, own) if step == 1 else (own, reference)
        fits = 0
        for number in range(visible, visible + LOOK_AHEAD):
            if number not in behind or number + 1 not in ahead:
                break
            if behind[number] != ahead[number + 1]:
                fits = -1
                break
            fits += 1
        if fits > 0:
            candidates.append((fits, kind, ahead))
    if len(candidates) != 1:
        return None
    fits, kind, ahead = candidates[0]
    earliest = visible
    # The same signature in a row: leaving out any of them looks alike.
    while earliest - 1 in ahead and ahead[earliest - 1] == ahead[earliest]:
        earliest -= 1
    return Shift("missing" if kind == "missing" else "extra", earliest, visible, visible, fits)
