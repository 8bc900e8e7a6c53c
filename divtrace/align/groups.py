"""The events of one replica: records of several ranks under one key, in causal order.

The order (SPEC section 6) is (step, stage, place). Inside one (step, stage) the lowest rank's own order holds; then,
rank by rank upwards, an event that is not yet placed stands directly behind the one that precedes it there, or in
front. An event without a step stands behind the one that precedes it on its rank.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from divtrace.align.view import EventKey, RankView, stage_order
from divtrace.trace.model import Record


class Order(NamedTuple):
    """Where an event stands inside its replica. Collectives stand behind a model event, by their position."""

    step: float
    stage: int
    place: float
    behind: int = 0
    pos: int = 0
    tie: str = ""


_UNPLACED = Order(0, 0, 0)


class Group(msgspec.Struct, eq=False):
    """One model event of a replica: what each rank recorded of it."""

    key: EventKey
    records: dict[int, Record] = msgspec.field(default_factory=dict)
    """By rank; only ranks whose record may be compared."""
    hidden: dict[int, Record] = msgspec.field(default_factory=dict)
    """Records whose occurrence is not certain, because a hole may hide an earlier one of the same key."""
    step: int | None = None
    order: Order = msgspec.field(default=_UNPLACED)
    following: Group | None = None

    @property
    def any_record(self) -> Record:
        """The lowest rank's record."""
        known = self.records or self.hidden
        return known[min(known)]


class _Bucket:
    """A linked list of the groups of one (step, stage)."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: Group | None = None

    def insert(self, group: Group, behind: Group | None) -> None:
        if behind is None:
            group.following, self.first = self.first, group
        else:
            group.following, behind.following = behind.following, group


def align(views: dict[int, RankView]) -> list[Group]:
    """The model events of a replica in causal order, with their records by rank."""
    groups = _collect(views)
    buckets: dict[tuple[float, int], _Bucket] = {}
    home: dict[EventKey, tuple[float, int]] = {}
    for rank in sorted(views):
        view = views[rank]
        previous: Group | None = None
        latest: dict[tuple[float, int], Group] = {}
        for key in view.keys:
            if key is None:
                continue
            group = groups[key]
            place = home.get(key)
            if place is None:
                place, behind = _place(group, previous, home, latest)
                home[key] = place
                buckets.setdefault(place, _Bucket()).insert(group, behind)
            latest[place] = group
            previous = group
    ordered: list[Group] = []
    for place in sorted(buckets):
        group_or_none = buckets[place].first
        index = 0
        while group_or_none is not None:
            group_or_none.order = Order(place[0], place[1], index)
            ordered.append(group_or_none)
            group_or_none = group_or_none.following
            index += 1
    return ordered


def _collect(views: dict[int, RankView]) -> dict[EventKey, Group]:
    repeated = set().union(*(view.repeated for view in views.values()))
    groups: dict[EventKey, Group] = {}
    for rank in sorted(views):
        view = views[rank]
        for record, key in zip(view.records, view.keys, strict=True):
            if key is None:
                continue
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(key)
            if repeated and key._replace(n=-1) in repeated and view.hole_before(record):
                group.hidden[rank] = record
            else:
                group.records[rank] = record
            if group.step is None:
                group.step = record.event.step
    return groups


_FIRST = (-math.inf, 0)


def _place(
    group: Group,
    previous: Group | None,
    home: dict[EventKey, tuple[float, int]],
    latest: dict[tuple[float, int], Group],
) -> tuple[tuple[float, int], Group | None]:
    """The (step, stage) in which a group stands, and the group directly in front of it there."""
    if group.step is not None:
        place = (float(group.step), stage_order(group.key.stage))
        return place, latest.get(place)
    if group.key.stage == "init" or previous is None:
        return _FIRST, latest.get(_FIRST)
    return home[previous.key], previous
