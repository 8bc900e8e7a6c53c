"""What the wait-for analysis is told about each communicator."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

RankKey = tuple[int, int]
"""(world, rank): a rank number alone repeats between worlds."""


class Progress(msgspec.Struct, frozen=True):
    """How far each member of one communicator came, in that communicator's own numbers.

    Numbers of two communicators are never compared with each other.
    """

    comm: str
    """A label that is unique among the communicators of one analysis."""
    members: tuple[RankKey, ...]
    last: Mapping[RankKey, int]
    """The last number that a member issued; a member that is observed and issued none has a number below all others.
    A member without an entry is unobserved, which is not the same as missing."""
    pending: Mapping[RankKey, int] = msgspec.field(default_factory=dict)
    """The highest number of a pending operation, for the members that have one."""
    open: bool = False
    """Further members may exist: who has an operation pending here may be waiting for one of them."""
    traced: int | None = None
    """Of how many members the majority is counted: those with a record of any kind. None: those observed here."""


class Wait(msgspec.Struct, frozen=True):
    """One reason why one rank waits for another: it has operation `number` pending, which the other has not issued."""

    waiter: RankKey
    awaited: RankKey
    comm: str
    number: int
