"""One rank in the lockstep: its lines, and what is known of it alone."""

from __future__ import annotations

import re

from divtrace.align.view import MODEL, Site
from divtrace.events import Event
from divtrace.sieve.cursor import Cursor, NotSievableError
from divtrace.sieve.facts import RankFacts
from divtrace.sieve.operations import LastOperation, OperationTable, contradicts, fingerprint
from divtrace.trace.model import Record
from divtrace.walk.collectives import Communicator
from divtrace.walk.skips import HISTORY


def _header(rank: int) -> re.Pattern[bytes]:
    """A line as (seq, all that ranks have to share); world, rank and time stand in front of that."""
    start = rb'\{(?:"world":[0-9]+,)?(?:"rank":%d,)?"seq":([0-9]{1,18}),"ts":[0-9]{1,19},(.*)' % rank
    return re.compile(start, re.DOTALL)


class Lane:
    """One rank's lines and what has been seen of them."""

    __slots__ = (
        "_operations",
        "cursor",
        "facts",
        "head",
        "highest",
        "last_event",
        "last_model",
        "last_ops",
        "match",
        "rank",
    )

    def __init__(self, cursor: Cursor, operations: OperationTable) -> None:
        """Start in front of the first record."""
        self.cursor = cursor
        self.rank = cursor.rank
        self.facts = RankFacts(cursor.rank, cursor.reading)
        self.match = _header(cursor.rank).match
        self.head: Event | None = None
        self.highest: int | None = None
        """Largest step of a model event so far."""
        self.last_model = -1
        self.last_event = -1
        """Position of the last record that is no host record."""
        self.last_ops: dict[Communicator, LastOperation] = {}
        self._operations = operations

    def fetch(self) -> Event | None:
        """The next record, which stays the head until it is dropped; None at the end."""
        if self.head is None:
            self.head = self.cursor.take()
        return self.head

    @property
    def head_pos(self) -> int:
        """Position of the head."""
        return self.cursor.pos - 1

    def note(self, event: Event, pos: int) -> None:
        """Take in where a record stands; every record that the lockstep does not count itself goes through here."""
        stage, step = event.stage, event.step
        if stage == "host":
            self.host(event, pos)
            return
        self.last_event = pos
        if stage == "init":
            # The only agreement there may be before the first divergence; read again it would cost the whole file.
            self.facts.keep.add(pos)
            if not self.cursor.rows:
                self.facts.kept.append(Record(event, pos, *self.cursor.place()))
        if step is not None:
            self.facts.first_of_step.setdefault(step, pos)
            self.facts.last_of_step[step] = pos
        if stage in MODEL:
            self.last_model = pos
            self.facts.covered.add(Site(stage, event.site, event.phase or "used"))
            if step is not None:
                self.reach(step)
        if event.error is not None or event.error_type is not None:
            self.facts.keep.add(pos)

    def reach(self, step: int) -> None:
        """Take in the step of a model event.

        Raises:
            NotSievableError: it is far before that of an earlier one.
        """
        if self.highest is not None and step < self.highest:
            if step < self.highest - HISTORY:
                raise NotSievableError(f"rank {self.rank}: steps start over")
            self.facts.overlapped = True
        else:
            self.highest = step

    def host(self, event: Event, pos: int) -> None:
        """Take in a host record: ends and errors are kept, heartbeats are not."""
        if event.site == "end":
            self.facts.closed = True
            self.facts.keep.add(pos)
        if event.site == "error" or event.error is not None or event.error_type is not None:
            self.facts.keep.add(pos)

    def operation(self, event: Event, pos: int) -> None:
        """Take in a collective of this rank alone."""
        found = self._operations.communicator(event, self.rank)
        if found is None or event.comm_seq is None:
            return
        communicator, traced = found
        what = fingerprint(event)
        last = self.last_ops.get(communicator)
        if last is not None and event.comm_seq <= last.number:
            if event.comm_seq < last.number or contradicts(last.fingerprint, what):
                self._operations.suspects.add((communicator, event.comm_seq))
            last.latest = pos
        else:
            self.last_ops[communicator] = LastOperation(event.comm_seq, pos, pos, what)
            self._operations.issue(communicator, traced, event.comm_seq, frozenset((self.rank,)), what)
        if event.state == "timeout":
            self._operations.suspects.add((communicator, event.comm_seq))

    def finish(self) -> None:
        """Complete the facts at the end of the trace."""
        facts = self.facts
        facts.events, facts.last_model = self.cursor.pos, self.last_model
        facts.last_numbers = {communicator: last.number for communicator, last in self.last_ops.items()}
        for last in self.last_ops.values():
            facts.keep |= {last.issue, last.latest}
        facts.keep |= {pos for pos in (self.last_event, self.last_model, self.cursor.pos - 1) if pos >= 0}
        late = self.cursor.still_at_hand(facts.keep)
        early = {record.pos for record in facts.kept}
        facts.kept += [record for record in late if record.pos not in early]
