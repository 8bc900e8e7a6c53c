"""The live requests of a replica: their rounds, the slots they hold on every rank, and which of them are suspects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from divtrace.events import Event
from divtrace.sieve.followed import Followed
from divtrace.sieve.plain import COMMITTED, UNUSUAL, PlainRequest
from divtrace.sieve.request import LiveRequest

_AROUND = 2
"""Steps around a change from plain to any shape, which the walk judges."""


class Requests(Followed):
    """Follows every request through the records on which ranks agree.

    It starts with the plain shape of rounds. At the first record that does not fit, all requests are followed record by
    record from there on, and the steps around are left to the walk.
    """

    def agree(self, event: Event, ranks: Sequence[int], slots: Sequence[list[int] | None] | None) -> None:
        """Take in a record of a request that all of `ranks` made alike, but for the slots."""
        if not self.is_plain:
            self._agree_any(event, ranks, slots)
            return
        live = self.plain.get(event.req or "")
        if live is not None and live.pending and not self._settle(live):
            self._agree_any(event, ranks, slots)
            return
        if live is None or live.contested or self._absent is not None or live.attempt != (event.attempt or 0):
            live = self._plain_of(event)
        number = event.round
        if number != live.number:
            if number is None:
                self._decision(event, live, ranks)
                return
            if not live.begin(number):
                self._leave_plain(event.step)
                self._agree_any(event, ranks, slots)
                return
            self.count(live, number)
        if live.over_after is None or number != live.over_after + 1:
            if event.phase is not None and event.phase != "used":
                live.answer = UNUSUAL
            else:
                live.take((event,))
            if live.answer == UNUSUAL:
                self._leave_plain(event.step)
                self._agree_any(event, ranks, slots)
                return
            if live.answer:
                self.suspect(live.req, event.step)
        if slots is not None:
            self.rows.lay(event, live, ranks, slots)
        if event.stage == "commit":
            self._commit(event, live, ranks)

    def begin_usual(self, event: Event) -> PlainRequest | None:
        """Begin a round whose records are left pending and checked together; None if `agree` has to look at each."""
        live = self.plain.get(event.req or "")
        number = event.round
        if live is None or number is None or number < 1 or self._absent is not None:
            return None
        if live.contested or live.over_after is not None or live.attempt != (event.attempt or 0):
            return None
        if live.pending and not self._settle(live):
            return None
        if number == live.number or not live.begin(number):
            return None
        live.open_round = number
        self.count(live, number)
        return live

    def fitting(self, groups: Mapping[str | None, Sequence[Event]]) -> dict[str, PlainRequest] | None:
        """The requests of records of rounds, if all go on in the plain way: round after round up to a commit."""
        if self._absent is not None or not self.is_plain:
            return None
        found: dict[str, PlainRequest] = {}
        for req, events in groups.items():
            live = None if req is None else self.plain.get(req)
            if req is None or live is None or live.contested or live.attempt or live.over_after is not None:
                return None
            first, last = events[0].round, events[-1].round
            over = live.progress == COMMITTED
            if first != live.open_round and (over or first != live.number) and (not over or first != live.number + 1):
                return None
            if first != last and not _go_on(events):
                return None
            found[req] = live
        return found

    def take_rounds(self, groups: Mapping[str | None, list[Event]], lives: Mapping[str, PlainRequest]) -> None:
        """Take in records of rounds that are `fitting`; what they do to slots and lengths has been done."""
        for req, live in lives.items():
            events = groups[req]
            for part in (events,) if events[0].round == events[-1].round else _by_round(events):
                number = part[0].round
                if not self.is_plain or number is None:
                    for event in part:
                        self._follow(event, self.any[req])
                    continue
                if number != live.open_round and number != live.number:
                    live.begin(number)
                    self.count(live, number)
                if part[-1].stage != "commit":
                    live.open_round = number
                    live.pending += part
                    continue
                records = part
                if live.pending:
                    records = live.pending + part
                    live.pending = []
                live.open_round = -1
                bad = live.take(records)
                if bad >= 0:
                    unusual = self._from_unusual(live, records, bad)
                    if unusual:
                        self._leave_plain(unusual[0].step, unusual)

    def commit_usual(self, event: Event, live: PlainRequest, ranks: Sequence[int]) -> None:
        """Check a round whose last record is a commit."""
        events, live.pending, live.open_round = live.pending, [], -1
        bad = live.take(events)
        if bad >= 0:
            unusual = self._from_unusual(live, events, bad)
            if unusual:
                self._leave_plain(unusual[0].step, unusual)
        if self.is_plain:
            self._commit(event, live, ranks)
        else:
            self._commit(event, self._any_of(event), ranks)

    def _settle(self, live: PlainRequest) -> bool:
        """Check the pending records of a request now; False if the plain shape was left for that."""
        unusual = self._weigh(live)
        if unusual:
            self._leave_plain(unusual[0].step, unusual)
        return not unusual

    def _weigh(self, live: PlainRequest) -> list[Event]:
        """Check pending records; returns those from the first unusual one on."""
        events, live.pending, live.open_round = live.pending, [], -1
        return self._from_unusual(live, events, live.take(events))

    def _from_unusual(self, live: PlainRequest, events: list[Event], bad: int) -> list[Event]:
        """Go on behind a record that is not good."""
        while bad >= 0:
            if live.answer == UNUSUAL:
                return events[bad:]
            self.suspect(live.req, events[bad].step)
            events = events[bad + 1 :]
            bad = live.take(events)
        return []

    def _leave_plain(self, step: int | None, unusual: Sequence[Event] = ()) -> None:
        """Follow records of any shape from here on, first those that have been taken in already but did not fit."""
        self.is_plain = False
        self._set_aside(step)
        late = [*unusual]
        for req, plain in self.plain.items():
            late += self._weigh(plain)
            live = self.any[req] = LiveRequest(req, plain.attempt)
            live.rounds, live.over_after = plain.rounds, plain.over_after
            live.slot_index, live.windows, live.contested = plain.slot_index, plain.windows, plain.contested
            self.rows.adopt(live)
        self.plain.clear()
        for event in late:
            self._set_aside(event.step)
            self._follow(event, self.any[event.req or ""])

    def _set_aside(self, step: int | None) -> None:
        if step is None:
            self._facts.stepless = True
        else:
            self._facts.irregular.update(range(step - _AROUND, step + _AROUND + 1))

    def alone(self, event: Event, rank: int) -> None:
        """Take in a record of one rank whose steps are judged by the walk: slots and counts only."""
        if event.req is None:
            return
        known = self.plain.get(event.req)
        if known is not None and known.pending:
            self._settle(known)
        live = self._plain_of(event) if self.is_plain else self._any_of(event)
        if event.round is None:
            self._decision(event, live, (rank,))
            return
        self.count(live, event.round)
        self.hold(event, (rank,))

    def hold(self, event: Event, ranks: Sequence[int]) -> None:
        """Take in what a record of a round does to the slots that its request holds on these ranks."""
        live = self.plain.get(event.req or "") or self.any.get(event.req or "")
        if live is None or event.phase == "local":
            return
        if event.kv_slots is not None:
            self.rows.lay(event, live, ranks, [event.kv_slots] * len(ranks))
        if event.stage == "commit":
            if event.new_seq_len is not None:
                self.rows.cut(live, ranks, event.new_seq_len)
            if event.finished:
                self.rows.free(live, ranks)

    def break_off(self, step: int | None) -> None:
        """The ranks fell out of step: check what is open, and continue nothing across the steps that follow."""
        self._settle_all()
        for live in list(self.any.values()):
            self._close(live, step)
            live.forget_rounds()
        for plain in self.plain.values():
            plain.forget()

    def close_all(self) -> None:
        """Check what is open at the end of the trace."""
        self._settle_all()
        for live in list(self.any.values()):
            self._close(live, None)
        for req, where in self._unmatched.items():
            # What a rank never records is not missing from it.
            ranks = [rank for rank, site in where if site in self._facts.ranks[rank].covered]
            if ranks:
                self._facts.partial[req] = min(ranks)

    def _settle_all(self) -> None:
        for plain in list(self.plain.values()):
            if plain.pending:
                self._settle(plain)


def _go_on(events: Sequence[Event]) -> bool:
    """Whether records of several rounds follow one another, each round up to its commit."""
    before = events[0]
    for event in events[1:]:
        if event.round != before.round and (
            event.round is None or before.round is None or event.round != before.round + 1 or before.stage != "commit"
        ):
            return False
        before = event
    return True


def _by_round(events: list[Event]) -> list[list[Event]]:
    return [list(part) for _, part in groupby(events, key=attrgetter("round"))]
