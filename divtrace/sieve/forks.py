"""Requests on which ranks have parted for good: their findings are counted, and only the first of them are judged.

A report lists a number of findings and counts the rest by rule. Once a replica has that many, what its requests still
differ in can only be counted, so that it need not be loaded: every round is held against its invariants on each rank,
and the rule of every event at which ranks differ is all that is kept of it. Whatever is not as plain as that (a gap, a
broken invariant, a slot that clashes, a finish, records of some ranks only) gives the request back to the walk, with
all of its records; the walk also tells whether the findings that it did judge were counted rightly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from divtrace.events import Event
from divtrace.sieve.alike import has_compared
from divtrace.sieve.listing import Listing
from divtrace.sieve.plain import COMMITTED, PlainRequest
from divtrace.topology import ReplicaGroup

if TYPE_CHECKING:
    from divtrace.sieve.apart import Naming, Row

_WAITING = -2
_MARKS = attrgetter("step", "attempt", "phase", "src", "comm_ranks", "extra", "n")


class Counted(msgspec.Struct, frozen=True):
    """The findings of one request on which ranks have parted."""

    first_round: int
    """The first of its rounds of which they were counted."""
    before: dict[str, int]
    """By rule, of events before the cut; the walk judges these."""
    behind: dict[str, int]
    """By rule, of events at the cut and behind it."""
    agreed_step: int | None
    """The last step with an event on which ranks agree."""


class Fork(msgspec.Struct, eq=False):
    """One request on which ranks have parted, as far as it was read."""

    req: str
    number: int = _WAITING
    first_round: int = -1
    rounds: tuple[PlainRequest, ...] = ()
    """What the next round of each rank but the first has to fit; the first one's is followed as that of any request."""
    pending: list[Row] = []
    before: Counter[str] = msgspec.field(default_factory=Counter)
    behind: Counter[str] = msgspec.field(default_factory=Counter)
    agreed_step: int | None = None
    over: bool = False

    @property
    def open_round(self) -> int | None:
        """The last round of which records were taken in, or were not followed; None if there is none."""
        return None if self.number == _WAITING else self.number

    def agreed(self, step: int) -> None:
        """Note an event on which ranks agree."""
        if self.agreed_step is None or self.agreed_step < step:
            self.agreed_step = step

    def leave(self, number: int, ends: Sequence[tuple[int | None, int | None]]) -> None:
        """Go on behind a round; `ends` are its confirmed length and last token on each rank but the first."""
        self.number = number
        for live, (length, token) in zip(self.rounds, ends, strict=True):
            live.number, live.progress, live.new_seq_len, live.last_token = number, COMMITTED, length, token


class Forks:
    """The requests of one replica on which ranks have parted."""

    def __init__(self, replica: ReplicaGroup | None, ranks: Sequence[int], listing: Listing, extra: int) -> None:
        """Start without any.

        Args:
            replica: the replica; None if nothing is to be counted.
            ranks: those of its ranks that have a trace.
            listing: which findings are looked at; if that is all there is nothing to be counted.
            extra: what a commit adds to the accepted drafts.
        """
        self.followed: dict[str, Fork] = {}
        """By request."""
        self.cut: int | None = None
        """The first step in which findings are only counted; None as long as there are not enough of them."""
        self._naming: Naming | None = None
        if replica is not None and listing.most:
            # Who looks at one request alone counts nothing, and should not load the walk's comparison for that.
            from divtrace.sieve.apart import Naming

            self._naming = Naming(replica, ranks)
        self._count, self._most, self.extra = len(ranks), listing.most, extra
        self._found = 0
        self._given_back = set(listing.whole)
        self._highest = 0
        """The last step of which a record was taken in: what came before the cut has to be judged, not counted."""

    @property
    def is_open(self) -> bool:
        """True as long as more requests may be followed."""
        return self._naming is not None and self.cut is None

    def suspected(self, req: str) -> None:
        """Begin to follow a request; one that is followed goes back to the walk, for this says that more is amiss."""
        if req in self.followed:
            self.give_back(req)
        elif self.is_open and req not in self._given_back:
            self.followed[req] = Fork(req)

    def give_back(self, req: str) -> None:
        """Leave a request to the walk, with all of its records."""
        if self.followed.pop(req, None) is not None:
            self._given_back.add(req)

    def give_up(self) -> None:
        """Leave all requests to the walk."""
        self._naming = None
        self.followed.clear()

    def take(self, rows: Iterable[Row]) -> None:
        """Take in records of rounds, each as every rank recorded it, of each request in order; some may be followed."""
        followed = self.followed
        for row in rows:
            event = row[0]
            fork = followed.get(event.req or "")
            if fork is None:
                continue
            if event.round is None:
                if not self._is_idle(row):
                    self.give_back(fork.req)
            elif event.round == fork.number and fork.rounds:
                fork.pending.append(row)
            elif not self._begins(fork, row, event.round):
                continue
            if event.step is not None and event.step > self._highest:
                self._highest = event.step
            if event.stage == "commit" and not self._judge(fork):
                self.give_back(fork.req)

    def _is_idle(self, row: Row) -> bool:
        """Whether a record outside of rounds changes nothing for its request, and is no finding."""
        if len(row) != self._count or self._naming is None or self._naming.rule(row, [row]) is not None:
            return False
        return all(_is_plain(event, event.step) and event.decision not in ("retract", "extend") for event in row)

    def _begins(self, fork: Fork, row: Row, number: int) -> bool:
        """Begin a round with a record; False if its records are not followed."""
        if fork.number in (_WAITING, number):
            fork.number = number  # what was recorded of this round before is not at hand
            return False
        if not self.enters(fork, number):
            return False
        fork.number = number
        fork.pending.append(row)
        return True

    def enters(self, fork: Fork, number: int) -> bool:
        """Whether a request goes on with this round; else it goes back to the walk."""
        fits = number == fork.number + 1 and not fork.pending and not fork.over
        if not fits or (not fork.rounds and self.cut is not None):
            self.give_back(fork.req)
            return False
        if not fork.rounds:
            fork.rounds = tuple(PlainRequest(fork.req, 0, self.extra) for _ in range(1, self._count))
            fork.first_round = number
        return True

    def seen(self, by_step: Mapping[int, int], highest: int) -> None:
        """Take in how many findings whole rounds have, by step; `highest` is the last step of these rounds."""
        if self.cut is None:
            for step in sorted(by_step):
                if self._found >= self._most:
                    self.cut = max(step, self._highest + 1)
                    break
                self._found += by_step[step]
        self._highest = max(self._highest, highest)
        if self.cut is None and self._found >= self._most:
            self.cut = self._highest + 1

    def is_behind(self, step: int) -> bool:
        """True if findings of this step are only counted."""
        return self.cut is not None and step >= self.cut

    def rules(self, rows: Sequence[Row]) -> list[str | None]:
        """The rules that name the events of a round; None where ranks agree."""
        return [None if self._naming is None else self._naming.rule(row, rows) for row in rows]

    def _judge(self, fork: Fork) -> bool:
        """Count the findings of a round; False if it is not plain, or an invariant does not hold."""
        rows, fork.pending = fork.pending, []
        step = rows[0][0].step
        if step is None or self._naming is None or any(len(row) != self._count for row in rows):
            return False
        plain = (step, None, None, None, None, None, None)
        if any(_MARKS(row[0]) != plain and not _is_plain(row[0], step) for row in rows):
            return False
        for index, live in enumerate(fork.rounds, 1):
            events = [row[index] for row in rows]
            if not live.begin(fork.number) or live.take(events) >= 0:
                return False
            apart = [event for event, row in zip(events, rows, strict=True) if event is not row[0]]
            if any(_MARKS(event) != plain and not _is_plain(event, step) for event in apart):
                return False
        fork.over = any(one.finished for one in rows[-1])
        counts = fork.behind if self.is_behind(step) else fork.before
        for row, rule in zip(rows, self.rules(rows), strict=True):
            if rule is not None:
                counts[rule] += 1
                self._found += 1
            elif (fork.agreed_step is None or fork.agreed_step < step) and has_compared(row[0]):
                fork.agreed_step = step
        if self.cut is None and self._found >= self._most:
            self.cut = self._highest + 1
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


def _is_plain(event: Event, step: int | None) -> bool:
    """Whether a record of a round holds nothing that is judged otherwise."""
    at, attempt, phase, src, comm_ranks, extra, n = _MARKS(event)
    if at != step or attempt or phase not in (None, "used") or n:
        return False
    return src is None and comm_ranks is None and extra is None
