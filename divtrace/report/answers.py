"""The answers about one request, as data: what `first-divergence` and `show` say."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from divtrace.report.model import Finding, Place, Tool, Where

FIRST_FORMAT = "divtrace.first-divergence/1"
SHOW_FORMAT = "divtrace.show/1"


class RequestResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for a request in one replica that served it."""

    world: int
    replica: int
    finding: Finding | None
    """The earliest finding of this request, or of a batch that only some ranks gave it."""
    origin: Finding | None
    """The finding at the head of the chain that led to it; itself if nothing earlier explains it."""


class FirstDivergence(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `first-divergence`."""

    format: str = field(name="schema", default=FIRST_FORMAT)
    tool: Tool
    req: str
    attempt: int | None
    results: tuple[RequestResult, ...]

    @property
    def diverged(self) -> bool:
        """True if the request has a finding in any replica."""
        return any(result.finding is not None for result in self.results)


class ShownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a request, as every rank of its replica recorded it."""

    world: int
    replica: int
    key: Place
    values: dict[str, dict[str, Any] | None]
    """By rank: the recorded fields; null on a rank that has no such record."""
    differing: tuple[str, ...]
    """Fields in which the ranks differ."""
    finding: str | None
    """Id of the finding at this event."""
    where: dict[str, Where]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `show`."""

    format: str = field(name="schema", default=SHOW_FORMAT)
    tool: Tool
    req: str
    round: int | None
    events: tuple[ShownEvent, ...]
