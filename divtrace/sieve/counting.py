"""How many rounds one attempt of a request had, in a few integers, whatever the order in which they came."""

from __future__ import annotations

import msgspec

_MOST = 1024
"""Rounds left out at one point, or in front of the first, that are remembered should they come late."""


class RoundCount(msgspec.Struct, eq=False):
    """Rounds that have been seen; the prefill is none."""

    highest: int = 0
    first: int = 0
    """The round that came first; 0 for none."""
    skipped: set[int] = msgspec.field(default_factory=set)
    """Rounds between the first and the highest that have not come yet."""
    early: set[int] = msgspec.field(default_factory=set)
    """Rounds before the first that came after it."""

    def add(self, number: int) -> bool:
        """Take in a record of a round; True if it is the first one of that round."""
        highest = self.highest
        if number == highest:
            return False
        if number > highest:
            if not highest:
                self.first = number
            elif number > highest + 1:
                self.skipped.update(range(highest + 1, min(number, highest + _MOST)))
            self.highest = number
            return True
        if number in self.skipped:
            self.skipped.discard(number)
            return True
        if 0 < number < self.first and number not in self.early and len(self.early) < _MOST:
            self.early.add(number)
            return True
        return False

    def reach(self, number: int) -> None:
        """Take over that rounds up to this one were counted elsewhere."""
        self.highest = max(self.highest, number)
        self.first = self.first or 1
