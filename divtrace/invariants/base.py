"""What an invariant is: a check of one rank's own numbers, needing no other rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from divtrace.trace.model import Record
from divtrace.walk.rounds import RoundView


class Break(msgspec.Struct, frozen=True):
    """An invariant that does not hold at one record."""

    rule: str
    record: Record
    values: dict[str, Any]
    """The inputs by name, with what was expected under `expected`."""


class Context(msgspec.Struct, frozen=True):
    """What an invariant needs besides the two rounds."""

    algorithm: str | None
    restarts: tuple[int, ...]
    """Positions of schedule events of this request that retract or extend it, on this rank."""


class Check(Protocol):
    """One invariant."""

    def __call__(self, current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:
        """Every break in `current`, a round that is not overshoot; `previous` is the round before."""
        ...
