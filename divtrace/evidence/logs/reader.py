"""What a family of log formats is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from divtrace.evidence.facts import Finding, Place
from divtrace.evidence.logs.line import Following, Line


@dataclass(frozen=True, slots=True)
class Where:
    """The file that is read."""

    path: str

    def place(self, line: Line) -> Place:
        """The place of a line in it."""
        return Place(self.path, line.number)


Read = Callable[[Line, Following, Where], Iterable[Finding] | None]
"""Reads one line that holds one of the family's literals: what it tells, nothing if it is harmless, None if it looks
like the format and is not understood."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family of formats."""

    name: str
    """As `not_understood` counts it."""
    literals: tuple[str, ...]
    """ASCII texts, one of which every line of the family holds."""
    read: Read
