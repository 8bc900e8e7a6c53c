"""How much of what is found a caller looks at."""

from __future__ import annotations

import msgspec


class Listing(msgspec.Struct, frozen=True):
    """What of the findings is looked at one by one, and not only counted."""

    most: int = 0
    """So many findings, the first ones; 0 for all."""
    whole: frozenset[str] = frozenset()
    """All findings of these requests, whose records are loaded in any case."""


EVERYTHING = Listing()
