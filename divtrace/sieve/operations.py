"""Collectives in the sieve: numbers and fingerprints, dropped as soon as every member has issued the same operation."""

from __future__ import annotations

from typing import Any

import msgspec

from divtrace.events import Event
from divtrace.topology import Topology
from divtrace.walk.collectives import Communicator

Print = tuple[Any, ...]


class LastOperation(msgspec.Struct):
    """The operation that a rank issued last on a communicator."""

    number: int
    issue: int
    """Position of its first record."""
    latest: int
    """Position of its last record."""
    fingerprint: Print


def fingerprint(event: Event) -> Print:
    """What members must agree in; sends and receives are partners."""
    op = "send" if event.op == "recv" else event.op
    shape = None if event.shape is None else tuple(event.shape)
    return (op, event.src, event.site, event.n or 0, event.numel, shape, event.dtype)


def contradicts(first: Print, later: Print) -> bool:
    """True if a later record of an operation does not repeat what the first one said."""
    return any(new is not None and new != old for old, new in zip(first, later, strict=True))


class OperationTable(msgspec.Struct):
    """Open operations of one world over all of its replicas."""

    world: int
    topology: Topology
    present: frozenset[int]
    """Ranks that have a trace."""
    suspects: set[tuple[Communicator, int]] = msgspec.field(default_factory=set)
    """Operations in which members may differ, or that timed out."""
    matched: set[int] = msgspec.field(default_factory=set)
    """Ranks of which some operation was matched with another rank's."""
    _open: dict[Communicator, dict[int, int]] = msgspec.field(default_factory=dict)
    """By number, as what and by whom an operation was issued: an index into `_kinds`."""
    _kinds: list[tuple[Print, frozenset[int]]] = msgspec.field(default_factory=list)
    """Each once: a replica that meets others only at the end holds an operation for every step until then."""
    _codes: dict[tuple[Print, frozenset[int]], int] = msgspec.field(default_factory=dict)
    _communicators: dict[tuple[str | None, tuple[int, ...]], tuple[Communicator, frozenset[int]]] = msgspec.field(
        default_factory=dict
    )

    def communicator(self, event: Event, rank: int) -> tuple[Communicator, frozenset[int]] | None:
        """The communicator of a record, and its members that have a trace; None for an unknown name."""
        members = event.comm_ranks
        if members is None:
            found = self.topology.members(event.comm, rank) if event.comm is not None else None
            if found is None:
                return None
            members = list(found)
        key = (event.comm, tuple(members))
        known = self._communicators.get(key)
        if known is None:
            communicator = Communicator(self.world, event.comm, tuple(sorted(members)))
            known = self._communicators[key] = (communicator, self.present & frozenset(members))
        return known

    def merge(self, other: OperationTable) -> None:
        """Take over what was seen of other ranks of the same world."""
        self.suspects |= other.suspects
        self.matched |= other.matched
        for communicator, numbers in other._open.items():
            traced = self.present & frozenset(communicator.ranks)
            for number, code in numbers.items():
                what, ranks = other._kinds[code]
                self.issue(communicator, traced, number, ranks, what)

    def issue(
        self, communicator: Communicator, traced: frozenset[int], number: int, ranks: frozenset[int], what: Print
    ) -> None:
        """Note that ranks issued an operation, all alike."""
        numbers = self._open.get(communicator)
        if numbers is None:
            numbers = self._open[communicator] = {}
        code = numbers.get(number)
        if code is None:
            if ranks >= traced:
                if len(ranks) > 1 and not ranks <= self.matched:
                    self.matched |= ranks
                return
            numbers[number] = self._code(what, ranks)
            return
        known, issued = self._kinds[code]
        if known != what:
            self.suspects.add((communicator, number))
        issued |= ranks
        self.matched |= issued
        if issued >= traced:
            del numbers[number]
        else:
            numbers[number] = self._code(known, issued)

    def _code(self, what: Print, ranks: frozenset[int]) -> int:
        kind = (what, ranks)
        code = self._codes.get(kind)
        if code is None:
            code = self._codes[kind] = len(self._kinds)
            self._kinds.append(kind)
        return code
