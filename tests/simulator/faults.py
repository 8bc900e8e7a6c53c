"""Where faults take hold: a rank asks at every decision, and a fault may answer otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class At:
    """One decision: which rank takes it, where, and for which request."""

    rank: int
    stage: str
    site: str
    field: str
    step: int | None = None
    req: str | None = None
    attempt: int | None = None
    round: int | None = None
    phase: str = "used"
    n: int = 0


class RankRaisedError(Exception):
    """The rank raises here; its trace ends with the error."""


class RankStoppedError(Exception):
    """The rank goes silent here."""


class NoFault:
    """Leaves every decision as it is."""

    def decide(self, at: At, value: Any) -> Any:  # noqa: ARG002 - the answer of a rank without fault
        return value


@dataclass
class Change(NoFault):
    """Changes one decision on some ranks, and notes what every asked rank would have decided and did decide."""

    where: Callable[[At], bool]
    ranks: frozenset[int]
    change: Callable[[Any, At], Any]
    before: dict[int, Any] = field(default_factory=dict)
    after: dict[int, Any] = field(default_factory=dict)
    once: bool = True

    def decide(self, at: At, value: Any) -> Any:
        if not self.where(at) or (self.once and at.rank in self.before):
            return value
        self.before.setdefault(at.rank, value)
        changed = self.change(value, at) if at.rank in self.ranks else value
        self.after.setdefault(at.rank, changed)
        return changed


@dataclass
class Several(NoFault):
    """More faults than one."""

    faults: tuple[NoFault, ...]

    def decide(self, at: At, value: Any) -> Any:
        for fault in self.faults:
            value = fault.decide(at, value)
        return value


@dataclass
class Halt(NoFault):
    """Ends some ranks just before they would record the first event that fits."""

    where: Callable[[At], bool]
    ranks: frozenset[int]
    error: str | None = None
    """With a text the rank raises, without one it goes silent."""

    def decide(self, at: At, value: Any) -> Any:
        if at.field == "recorded" and at.rank in self.ranks and self.where(at):
            raise RankStoppedError if self.error is None else RankRaisedError(self.error)
        return value
