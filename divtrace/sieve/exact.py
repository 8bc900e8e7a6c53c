"""A round of any shape, held against the very checks of the walk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtrace.align.groups import Group
from divtrace.align.view import key_of
from divtrace.events import Event
from divtrace.invariants import CHECKS
from divtrace.invariants.base import Context
from divtrace.trace.model import Record
from divtrace.walk.rounds import RoundView
from divtrace.walk.sync import overrides

if TYPE_CHECKING:
    from divtrace.sieve.request import LiveRequest


class _WholeView:
    """A rank's view as the checks ask for it, for records between which nothing is missing."""

    rank = 0

    @staticmethod
    def hole_between(first: int, last: int) -> bool:  # noqa: ARG004
        return False

    @staticmethod
    def hole_before(record: Record) -> bool:  # noqa: ARG004
        return False


def holds_exactly(live: LiveRequest, number: int, events: list[Event], algorithm: str | None) -> bool:
    """Run the walk's own checks over a round, whose predecessor the request remembers; False if something breaks."""
    position = 0
    views: list[RoundView] = []
    for part_number, part in ((live.closed_number, live.closed_events), (number, events)):
        view = RoundView(_WholeView(), live.req, live.attempt, part_number)  # type: ignore[arg-type]
        seen: set[object] = set()
        for event in part:
            key = key_of(event, event.n or 0)
            while key in seen:
                key = key._replace(n=key.n + 1)
            seen.add(key)
            view.groups.append(Group(key, {0: Record(event, position, "", 0, False)}))
            position += 1
        views.append(view)
    before, now = views
    previous = before if live.closed_number == number - 1 and before.groups else None
    context = Context(algorithm, ())
    if any(True for check in CHECKS for _ in check(now, previous, context)):
        return False
    phases: dict[object, dict[str, Group]] = {}
    for group in now.groups:
        phases.setdefault(group.key._replace(phase=""), {})[group.key.phase] = group
    return not any(overrides(group, {0: now}) for group in phases.values() if len(group) > 1)
