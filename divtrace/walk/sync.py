"""What a sync did to a decision: healed it, left it, was overridden, or went to the wrong ranks (SPEC section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from divtrace.align.groups import Group
from divtrace.topology import Topology
from divtrace.walk.compare import COMPARED, Difference, differ, rounds_at, significant
from divtrace.walk.rounds import RoundView

_SYNCED_STAGES = frozenset({"prefill", "draft", "verify", "accept"})
Phases = Mapping[str, Group]
"""The phases of one event that were recorded, by name."""


class Override(msgspec.Struct, frozen=True):
    """A field that ranks went on with unlike what the sync gave them."""

    name: str
    ranks: tuple[int, ...]


class WrongGroup(msgspec.Struct, frozen=True):
    """Ranks whose sync followed another communicator, or another source, than their sync group's."""

    name: str
    ranks: tuple[int, ...]
    values: dict[int, Any]
    expected: dict[int, Any]


def wrong_group(group: Group, topology: Topology) -> WrongGroup | None:
    """A sync that did not go over the sync group, or not from its first rank."""
    if group.key.stage not in _SYNCED_STAGES:
        return None
    members: dict[int, list[int]] = {}
    sources: dict[int, int] = {}
    wrong_members: list[int] = []
    wrong_sources: list[int] = []
    for rank, record in sorted(group.records.items()):
        expected = topology.sync_group(rank)
        if record.event.comm_ranks is not None:
            members[rank] = record.event.comm_ranks
            if set(record.event.comm_ranks) != set(expected):
                wrong_members.append(rank)
        if record.event.src is not None:
            sources[rank] = record.event.src
            if record.event.src != expected[0]:
                wrong_sources.append(rank)
    if not wrong_members and not wrong_sources:
        return None
    ranks = tuple(sorted({*wrong_members, *wrong_sources}))
    if wrong_members:
        return WrongGroup("comm_ranks", ranks, members, {rank: list(topology.sync_group(rank)) for rank in ranks})
    return WrongGroup("src", ranks, sources, {rank: topology.sync_group(rank)[0] for rank in ranks})


def is_ineffective(difference: Difference, topology: Topology) -> bool:
    """True if the values differ inside one sync group, in which the broadcast should have made them equal."""
    parts: dict[tuple[int, ...], dict[int, Any]] = {}
    for rank, value in difference.compared.items():
        parts.setdefault(topology.sync_group(rank), {})[rank] = value
    return any(differ(part) for part in parts.values())


def overrides(phases: Phases, rounds: Mapping[int, RoundView] | None) -> list[Override]:
    """Fields in which a rank's `used` value is unlike its own `synced` value, upstream first."""
    if "synced" not in phases or "used" not in phases:
        return []
    synced, used = phases["synced"].records, phases["used"].records
    both = sorted(synced.keys() & used.keys())
    found = []
    for name in COMPARED:
        ranks = []
        for rank in both:
            given, taken = getattr(synced[rank].event, name), getattr(used[rank].event, name)
            if given is None or taken is None:
                continue
            round_view = rounds_at(rounds, rank)
            before = significant(name, given, synced[rank].event, round_view)
            if before != significant(name, taken, used[rank].event, round_view):
                ranks.append(rank)
        if ranks:
            found.append(Override(name, tuple(ranks)))
    return found


def after_sync(phases: Phases) -> Group | None:
    """The event after the sync: `synced` if any rank recorded it, else `used`."""
    return phases.get("synced") or phases.get("used")


def is_healed(difference: Difference, after: Group, after_differences: list[Difference]) -> bool:
    """True if a difference before the sync is gone after it.

    A field that only the `local` event has is healed if all fields of the later event are equal.
    """
    name = difference.name
    if any(later.name == name for later in after_differences):
        return False
    known = [record for record in after.records.values() if _has(record.event, name)]
    if len(known) >= 2:
        return True
    return not known and len(after.records) >= 2 and not after_differences


def _has(event: Any, name: str) -> bool:
    if name.startswith("extra."):
        return (event.extra or {}).get(name.removeprefix("extra.")) is not None
    return getattr(event, name) is not None
