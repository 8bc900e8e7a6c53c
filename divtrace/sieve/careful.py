"""The careful path of the sieve: one record of every rank at a time, whatever it is.

Where keys differ, and no rank merely lacks the coverage, the steps around are set aside, to be loaded and judged by the
walk, and the ranks meet again two steps later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from divtrace.align.groups import Group
from divtrace.align.view import MODEL, EventKey, Site, key_of
from divtrace.events import Event
from divtrace.sieve.alike import has_compared, lays_alike, unevenly_recorded
from divtrace.sieve.cursor import Cursor, NotSievableError
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.forks import Forks
from divtrace.sieve.lane import Lane
from divtrace.sieve.listing import EVERYTHING, Listing
from divtrace.sieve.operations import OperationTable
from divtrace.sieve.requests import Requests
from divtrace.sieve.usual import UsualLines
from divtrace.topology import ReplicaGroup, Topology
from divtrace.trace.model import Record
from divtrace.walk.compare import Comparison
from divtrace.walk.run import DECISIONS
from divtrace.walk.settings import added_by_commit
from divtrace.walk.skips import HISTORY
from divtrace.walk.sync import wrong_group

_SETTLED_STEPS = 3
"""Steps that a rank has to record before a site that it has not shown yet counts as one that it never records."""


class Careful:
    """One replica in the sieve: what is known of it, and the careful path."""

    def __init__(
        self,
        cursors: Sequence[Cursor],
        replica: ReplicaGroup,
        topology: Topology,
        operations: OperationTable,
        algorithm: str | None,
        progress: Callable[[int], None] | None = None,
        listing: Listing = EVERYTHING,
    ) -> None:
        """Start in front of the first record of every rank."""
        self._lanes = [Lane(cursor, operations) for cursor in cursors]
        self._active: list[Lane] = []
        self._operations = operations
        self._topology = topology
        self._comparison = Comparison(replica)
        self._progress = progress
        self.facts = ReplicaFacts({lane.rank: lane.facts for lane in self._lanes})
        ranks = [lane.rank for lane in self._lanes]
        self._forks = Forks(replica, ranks, listing, added_by_commit(algorithm))
        self._requests = Requests(self.facts, algorithm, ranks, self._forks)
        self._sync_ok: dict[tuple[tuple[int, ...] | None, int | None], bool] = {}
        self._uncovered: dict[tuple[int, Site], tuple[set[str], set[int]]] = {}
        self._covered: set[tuple[str, str | None, str | None]] = set()
        """Sites that all active ranks have shown, as (stage, site, phase)."""
        self._missing = list(DECISIONS)
        self._usual = UsualLines()

    def _membership(self) -> None:
        self._covered.clear()
        active = {lane.rank for lane in self._active}
        gone = [lane.rank for lane in self._lanes if lane.rank not in active]
        self._requests.absent = min(gone, default=None)

    def _cover(self, where: tuple[str, str | None, str | None]) -> None:
        site = Site(where[0], where[1], where[2] or "used")
        for lane in self._active:
            self._shows(lane, site)
        self._covered.add(where)

    def _shows(self, lane: Lane, site: Site) -> None:
        lane.facts.covered.add(site)
        late = self._uncovered.pop((lane.rank, site), None)
        if late is not None:
            # It does record this site after all: what seemed no coverage may have been skipped.
            for req in sorted(late[0]):
                self._requests.suspect(req, min(late[1], default=None))
            self.facts.irregular |= late[1]

    def _agreed(self, event: Event) -> None:
        if len(self._active) > 1 and has_compared(event):
            self.facts.agreed = True
            if event.step is not None:
                self.facts.agreed_step = event.step

    def _check_sync(self, event: Event) -> None:
        key = (None if event.comm_ranks is None else tuple(event.comm_ranks), event.src)
        good = self._sync_ok.get(key)
        if good is None:
            record = Record(event, 0, "", 0, False)
            group = Group(key_of(event, 0), {lane.rank: record for lane in self._active})
            good = self._sync_ok[key] = wrong_group(group, self._topology) is None
        if not good:
            self._suspect(event)

    def _suspect(self, event: Event) -> None:
        if event.req is not None:
            self._requests.suspect(event.req, event.step)
        elif event.step is not None:
            self.facts.irregular.add(event.step)
        else:
            self.facts.stepless = True

    def _settle(self) -> None:
        """Take in the next record of every active rank, whatever it is."""
        ended = [lane for lane in self._active if lane.fetch() is None]
        if len(ended) == len(self._active):
            self._active.clear()  # together: nothing is left that only some of them recorded
            return
        for lane in ended:
            self._leave(lane)
        heads = [(lane, lane.head) for lane in self._active if lane.head is not None]
        if not heads:
            return
        if any(head.step is None and head.stage not in ("host", "init") for _, head in heads):
            raise NotSievableError("a record carries no step")
        apart = [(lane, head) for lane, head in heads if head.stage not in MODEL]
        if apart:
            # Host records and collectives are no part of the lockstep: each rank passes its own.
            for lane, head in apart:
                self._alone(lane, head)
            return
        keys = {key_of(head, head.n or 0) for _, head in heads}
        if len(keys) == 1:
            self._same_key(heads, keys.pop())
        elif not self._without_coverage(heads):
            steps = [head.step for _, head in heads if head.step is not None]
            if not steps:
                raise NotSievableError("records carry no step")
            self._part(max(steps), min(steps))

    def _leave(self, lane: Lane) -> None:
        """A trace ends: around its end the walk judges what the others still recorded."""
        self._active.remove(lane)
        self._forks.give_up()
        self._membership()
        if self._active and lane.highest is not None:
            self.facts.irregular.update(range(lane.highest - HISTORY, lane.highest + 4))
        elif self._active:
            self.facts.stepless = True

    def _alone(self, lane: Lane, event: Event) -> None:
        """Take in the head of one rank by itself."""
        pos = lane.head_pos
        lane.head = None
        lane.note(event, pos)
        self._record(event)
        if event.stage == "collective":
            if event.comm_seq is None:
                raise NotSievableError("a collective carries no comm_seq")
            lane.operation(event, pos)
        elif event.stage in MODEL:
            self._shows(lane, Site(event.stage, event.site, event.phase or "used"))
            self._requests.alone(event, lane.rank)
            if event.step is None:
                self.facts.stepless = True

    def _same_key(self, heads: Sequence[tuple[Lane, Event]], key: EventKey) -> None:
        """All ranks stand at one event: compare its values."""
        records = {lane.rank: Record(event, lane.head_pos, "", 0, False) for lane, event in heads}
        group = Group(key, records)
        event = heads[0][1]
        if not self._is_suspect(event):
            differences, drift = self._comparison.differences(group, None)
            good = not differences and len(heads) > 1
            # The round places an event, but what is loaded of it goes by its steps: they have to be the same then.
            apart = any(one.step != event.step for _, one in heads)
            if differences or drift or apart or unevenly_recorded([one for _, one in heads]):
                self._suspect(event)
            synced = any(one.comm_ranks is not None or one.src is not None for _, one in heads)
            if synced and wrong_group(group, self._topology) is not None:
                self._suspect(event)
            if good:
                self._agreed(event)
        for lane, one in heads:
            lane.note(one, lane.head_pos)
            self._shows(lane, key.where)
            self._record(one)
            lane.head = None
        if event.req is not None:
            alike = [(lane, one) for lane, one in heads if lays_alike(one, event)]
            slots = [one.kv_slots for _, one in alike]
            given = slots if any(one is not None for one in slots) else None
            self._requests.agree(event, [lane.rank for lane, _ in alike], given)
            for lane, one in heads:
                if not lays_alike(one, event):
                    self._requests.alone(one, lane.rank)
            if self._forks.followed:
                self._forks.take([tuple(one for _, one in heads)])

    def _is_suspect(self, event: Event) -> bool:
        """True if the walk judges this record anyway, whatever the ranks recorded."""
        if event.req is None or event.step is None:
            return False
        known = self.facts.suspects.get(event.req)
        return known is not None and known <= event.step

    def _record(self, event: Event) -> None:
        if self._missing:
            self._missing = [name for name in self._missing if getattr(event, name) is None]

    def _without_coverage(self, heads: Sequence[tuple[Lane, Event]]) -> bool:
        """Pass an event whose site the other ranks never record; False if that is not how the heads differ."""
        for _, event in heads:
            site = Site(event.stage, event.site, event.phase or "used")
            key = key_of(event, event.n or 0)
            having = [(lane, one) for lane, one in heads if key_of(one, one.n or 0) == key]
            lacking = [lane for lane, one in heads if key_of(one, one.n or 0) != key]
            if all(
                site not in lane.facts.covered and len(lane.facts.first_of_step) > _SETTLED_STEPS for lane in lacking
            ):
                for lane in lacking:
                    reqs, steps = self._uncovered.setdefault((lane.rank, site), (set(), set()))
                    if event.req is not None:
                        reqs.add(event.req)
                    if event.step is not None:
                        steps.add(event.step)
                self._same_key(having, key)
                return True
        return False

    def _part(self, step: int, lowest: int | None = None) -> None:
        """Set the steps around `step` aside, and let the ranks meet again two steps later."""
        meet = step + 2
        self._forks.give_up()
        self._requests.break_off(step)
        self.facts.irregular.update(range((step if lowest is None else lowest) - 2, meet + 1))
        for lane in self._active:
            while (event := lane.fetch()) is not None:
                if event.stage in MODEL and event.step is not None and event.step >= meet:
                    break
                if event.stage not in ("host", "init"):
                    if event.step is None:
                        raise NotSievableError("a record carries no step")
                    self.facts.irregular.add(event.step)
                self._alone(lane, event)
