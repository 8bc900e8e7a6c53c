"""What a family of log formats is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from divtrace.evidence.facts import Fact, FactKind, Finding, Place
from divtrace.evidence.logs.line import Following, Line


@dataclass(frozen=True, slots=True)
class Where:
    """The file that is read."""

    path: str

    def place(self, line: Line) -> Place:
        """The place of a line in it."""
        return Place(self.path, line.number)

    def fact(self, line: Line, kind: FactKind, name: str, text: str, **own: Any) -> Fact:
        """What one line tells, with what its prefixes tell of the process; `own` fields come from the line itself.

        Args:
            line: the line.
            kind: what it tells.
            name: the format.
            text: the words that say so.
            own: further attributes, or better ones than those of the prefixes.
        """
        prefixes = {
            "place": self.place(line),
            "rank": line.rank,
            "coordinates": line.coordinates,
            "process": line.process,
            "time": line.time,
        }
        return Fact(kind=kind, format=name, text=text, **(prefixes | own))


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
