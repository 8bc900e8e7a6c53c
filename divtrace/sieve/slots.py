"""Live KV slots of one rank, in one byte each: who holds a slot, not for which position.

A clash seen here is only a suspicion; `divtrace.walk.slots` judges it with positions. Requests beyond 254 live ones
share the last index: slots that they hold are suspected too often, never too seldom.
"""

from __future__ import annotations

from collections.abc import Sequence

SHARED = 255
_LARGEST = 1 << 28
LONGEST_RUN = 64
"""Slots of a run that is laid at once have to be fewer."""
FREE = [bytearray(count) for count in range(LONGEST_RUN)]
"""Of the type that is written to: of any other a copy would be made for every write."""
HELD = [bytearray((index,)) for index in range(SHARED + 1)]


class SlotBytes:
    """Owners of one rank's slots, by the index of a live request; 0 is free."""

    __slots__ = ("owner",)

    def __init__(self) -> None:
        """Start with all slots free."""
        self.owner = bytearray(1 << 16)
        """Stays the same object, for those that write to it."""

    def give(self, slots: Sequence[int], index: int) -> int:
        """Give any slots to a request.

        Returns:
            0, or the index of another request that held one of them (SHARED if that is not certain, or if a slot is
            named twice or is too large to be followed).
        """
        owner = self.owner
        clash = 0
        highest = max(slots, default=-1)
        if highest >= len(owner):
            if highest >= _LARGEST:
                return SHARED
            owner.extend(bytes(highest + 1 - len(owner) + (len(owner) >> 3)))
        for slot in slots:
            if slot < 0:
                continue
            held = owner[slot]
            if held:
                clash = held if held != index or index == SHARED else clash or index
            # Whoever lets go of a slot that two held, the other one may hold it still: it stays suspect.
            owner[slot] = SHARED if held else index
        return clash

    def free(self, slots: Sequence[int], index: int) -> None:
        """Free those of the slots that the request still holds."""
        owner = self.owner
        for slot in slots:
            if 0 <= slot < len(owner) and owner[slot] == index:
                owner[slot] = 0

    def free_all(self, index: int) -> None:
        """Free every slot of a request."""
        if index not in (0, SHARED):
            self.owner[:] = self.owner.replace(bytes((index,)), b"\0")
