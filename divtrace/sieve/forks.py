"""Requests on which ranks have parted for good: their findings are counted, and only the first of them are judged.

A report lists a number of findings and counts the rest by rule. Once a replica has that many, what its requests still
differ in can only be counted, so that it need not be loaded: every round is held against its invariants on each rank,
and the rule of every event at which ranks differ is all that is kept of it. Whatever is not as plain as that (a gap, a
broken invariant, a slot that clashes, a finish, records of some ranks only) gives the request back to the walk, with
all of its records; the walk also tells whether the findings that it did judge were counted rightly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from divtrace.events import Event
from divtrace.sieve.alike import has_compared
from divtrace.sieve.apart import Naming, Row
from divtrace.sieve.plain import PlainRequest
from divtrace.topology import ReplicaGroup

_AHEAD = 2
"""Steps between the last one of which a record was seen when there are findings enough, and the first that is only
counted: records of a step may stand among those of the steps beside it."""
_WAITING = -2


@dataclass(frozen=True, slots=True)
class Counted:
    """The findings of one request on which ranks have parted."""

    first_round: int
    """The first of its rounds of which they were counted."""
    before: dict[str, int]
    """By rule, of events before the cut; the walk judges these."""
    behind: dict[str, int]
    """By rule, of events at the cut and behind it."""
    agreed_step: int | None
    """The last step with an event on which ranks agree."""


@dataclass(slots=True, eq=False)
class _Fork:
    req: str
    number: int = _WAITING
    first_round: int = -1
    rounds: tuple[PlainRequest, ...] = ()
    """What each rank's next round has to fit."""
    pending: list[Row] = field(default_factory=list)
    before: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    agreed_step: int | None = None
    over: bool = False


class Forks:
    """The requests of one replica on which ranks have parted."""

    def __init__(self, replica: ReplicaGroup | None, ranks: Sequence[int], most: int, extra: int) -> None:
        """Start without any.

        Args:
            replica: the replica; None if nothing is to be counted.
            ranks: those of its ranks that have a trace.
            most: findings that a report lists; 0 for all, which leaves nothing to be counted.
            extra: what a commit adds to the accepted drafts.
        """
        self.followed: dict[str, _Fork] = {}
        """By request."""
        self.cut: int | None = None
        """The first step in which findings are only counted; None as long as there are not enough of them."""
        self._naming = None if replica is None or not most else Naming(replica, ranks)
        self._count, self._most, self._extra = len(ranks), most, extra
        self._found = 0
        self._given_back: set[str] = set()
        self._highest = 0

    def suspected(self, req: str) -> None:
        """Begin to follow a request; one that is followed goes back to the walk, for this says that more is amiss."""
        if req in self.followed:
            self.give_back(req)
        elif self._naming is not None and self.cut is None and req not in self._given_back:
            self.followed[req] = _Fork(req)

    def give_back(self, req: str) -> None:
        """Leave a request to the walk, with all of its records."""
        if self.followed.pop(req, None) is not None:
            self._given_back.add(req)

    def give_up(self) -> None:
        """Leave all requests to the walk."""
        self._naming = None
        self.followed.clear()

    def take(self, req: str, row: Row) -> None:
        """Take in a record of a request that is followed, as every rank recorded it, in order."""
        fork = self.followed[req]
        event = row[0]
        if event.round == fork.number and fork.rounds:
            fork.pending.append(row)
        elif not self._begins(fork, row, event.round):
            return
        if event.step is not None and event.step > self._highest:
            self._highest = event.step
        if event.stage == "commit" and not self._judge(fork):
            self.give_back(req)

    def _begins(self, fork: _Fork, row: Row, number: int | None) -> bool:
        """Begin a round; False if its records are not followed."""
        if number is not None and fork.number in (_WAITING, number):
            fork.number = number  # what was recorded of this round before is not at hand
            return False
        if number is None or number != fork.number + 1 or fork.pending or fork.over:
            self.give_back(fork.req)
            return False
        if not fork.rounds:
            if self.cut is not None:
                self.give_back(fork.req)
                return False
            fork.rounds = tuple(PlainRequest(fork.req, 0, self._extra) for _ in row)
            fork.first_round = number
        fork.number = number
        fork.pending.append(row)
        return True

    def _judge(self, fork: _Fork) -> bool:
        """Count the findings of a round; False if it is not plain, or an invariant does not hold."""
        rows, fork.pending = fork.pending, []
        step = rows[0][0].step
        if step is None or self._naming is None or any(len(row) != self._count for row in rows):
            return False
        for index, live in enumerate(fork.rounds):
            events = [row[index] for row in rows]
            if not live.begin(fork.number) or live.take(events) >= 0 or not all(_is_plain(one, step) for one in events):
                return False
        fork.over = any(one.finished for one in rows[-1])
        counts = fork.before if self.cut is None or step < self.cut else fork.behind
        for row in rows:
            rule = self._naming.rule(row, rows)
            if rule is not None:
                counts[rule] += 1
                self._found += 1
            elif (fork.agreed_step is None or fork.agreed_step < step) and has_compared(row[0]):
                fork.agreed_step = step
        if self.cut is None and self._found >= self._most:
            self.cut = self._highest + _AHEAD
        return True

    def counted(self) -> dict[str, Counted]:
        """What was counted by request, at the end of the traces."""
        for req, fork in sorted(self.followed.items()):
            if not fork.rounds or (fork.pending and not self._judge(fork)):
                self.give_back(req)
        if self.cut is None:
            return {}
        return {
            req: Counted(fork.first_round, dict(fork.before), dict(fork.behind), fork.agreed_step)
            for req, fork in sorted(self.followed.items())
        }


def _is_plain(event: Event, step: int) -> bool:
    """Whether a record of a round holds nothing that is judged otherwise."""
    if event.step != step or event.extra is not None or event.attempt or event.phase not in (None, "used") or event.n:
        return False
    return event.src is None and event.comm_ranks is None
