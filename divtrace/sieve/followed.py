"""What is common to all requests that the sieve follows: slots, counts, ends, and records of any shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from divtrace.align.view import Site
from divtrace.events import Event
from divtrace.sieve.counting import RoundCount
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.forks import Forks
from divtrace.sieve.listing import EVERYTHING
from divtrace.sieve.plain import PlainRequest
from divtrace.sieve.request import LiveRequest, close_round
from divtrace.sieve.rows import Rows
from divtrace.sieve.usual import whole_event
from divtrace.walk.settings import added_by_commit

_LINGER = 8
"""Steps after which a finished request is forgotten: its overshoot round is over by then."""


class Followed:
    """The live requests of a replica: plain ones, or those of any shape."""

    def __init__(
        self, facts: ReplicaFacts, algorithm: str | None, ranks: Sequence[int], forks: Forks | None = None
    ) -> None:
        """Start without requests; with `forks`, the findings of suspects are counted there."""
        self._facts = facts
        self._algorithm = algorithm
        self._extra = added_by_commit(algorithm)
        self.forks = forks or Forks(None, ranks, EVERYTHING, self._extra)
        self.plain: dict[str, PlainRequest] = {}
        self.any: dict[str, LiveRequest] = {}
        self.is_plain = True
        self.rows = Rows(ranks, self.suspect)
        self._ranks = tuple(ranks)
        self._over: deque[tuple[int, str]] = deque()
        self._attempts: dict[str, dict[int, RoundCount]] = {}
        """Of attempts that another one took over from, until their request is over."""
        self._unmatched: dict[str, set[tuple[int, Site]]] = {}
        """What requests recorded while a rank of the replica was not recording: that rank, and where."""
        self._absent: int | None = None

    @property
    def absent(self) -> int | None:
        """A rank of the replica that is not recording now: what its peers record is compared in part only."""
        return self._absent

    @absent.setter
    def absent(self, rank: int | None) -> None:
        self._absent = rank
        for live in self.plain.values():
            live.open_round = -1

    def suspect(self, req: str, step: int | None) -> None:
        """Have a request judged exactly."""
        known = self._facts.suspects.get(req, step)
        if known is not None and step is not None:
            step = min(known, step)
        self._facts.suspects[req] = step if step is not None else known
        self.forks.suspected(req)

    def _agree_any(self, event: Event, ranks: Sequence[int], slots: Sequence[list[int] | None] | None) -> None:
        live = self._any_of(event)
        if event.round is None:
            self._decision(event, live, ranks)
            return
        self._follow(event, live)
        if event.phase == "local":
            return
        if slots is not None:
            self.rows.lay(event, live, ranks, slots)
        if event.stage == "commit":
            self._commit(event, live, ranks)

    def _follow(self, event: Event, live: LiveRequest) -> None:
        """Add a record to its round, whatever its shape."""
        number = event.round
        assert number is not None
        event = whole_event(event)
        if number == live.number:
            live.events.append(event)
        elif number == live.later_number:
            live.later_events.append(event)
        else:
            self._open(live, number, event)

    def _any_of(self, event: Event) -> LiveRequest:
        req, attempt = event.req or "", event.attempt or 0
        live = self.any.get(req)
        if live is None or live.attempt != attempt:
            if live is not None:
                self._close(live, event.step)
                self._end_attempt(live, event)
            live = self.any[req] = LiveRequest(req, attempt)
            live.rounds = self._attempts.get(req, {}).get(attempt, live.rounds)
            self._facts.requests.setdefault(req, 0)
        if live.contested or self._absent is not None:
            self._seen(live, event)
        return live

    def _plain_of(self, event: Event) -> PlainRequest:
        req, attempt = event.req or "", event.attempt or 0
        live = self.plain.get(req)
        if live is None or live.attempt != attempt:
            if live is not None:
                self._end_attempt(live, event)
            live = self.plain[req] = PlainRequest(req, attempt, self._extra)
            live.rounds = self._attempts.get(req, {}).get(attempt, live.rounds)
            self._facts.requests.setdefault(req, 0)
        self._seen(live, event)
        return live

    def _end_attempt(self, live: PlainRequest | LiveRequest, event: Event) -> None:
        """Another attempt of the request begins; should this one come back, its rounds are not counted again."""
        if (event.attempt or 0) < live.attempt:
            self.suspect(live.req, event.step)  # attempts only rise; what the rounds on both sides say is for the walk
        self.rows.end(live)
        self._attempts.setdefault(live.req, {})[live.attempt] = live.rounds

    def unmatched(self, req: str, site: Site) -> None:
        """Note that a request recorded something while a rank was absent."""
        if self._absent is not None:
            self._unmatched.setdefault(req, set()).add((self._absent, site))

    def _seen(self, live: PlainRequest | LiveRequest, event: Event) -> None:
        if live.contested:
            self.suspect(live.req, event.step)
        overshoot = live.over_after is not None and event.round == live.over_after + 1
        if self._absent is not None and not overshoot:
            self.unmatched(live.req, Site(event.stage, event.site, event.phase or "used"))

    def count(self, live: PlainRequest | LiveRequest, number: int) -> None:
        """Count a round once, also if it comes behind a later one."""
        if live.rounds.add(number):
            self._facts.requests[live.req] += 1

    def _close(self, live: LiveRequest, step: int | None) -> None:
        for number, events in ((live.number, live.events), (live.later_number, live.later_events)):
            if number >= 0 and not close_round(live, number, events, self._algorithm):
                self.suspect(live.req, events[0].step if events else step)

    def _open(self, live: LiveRequest, number: int, event: Event) -> None:
        """Begin a round with its first record; closes the one that it leaves behind."""
        self.count(live, number)
        if live.number < 0:
            live.number, live.events = number, [event]
        elif number < max(live.number, live.later_number):
            self.suspect(live.req, event.step)
            return
        else:
            if live.later_number >= 0:
                if not close_round(live, live.number, live.events, self._algorithm):
                    self.suspect(live.req, live.events[0].step)
                live.number, live.events = live.later_number, live.later_events
            live.later_number, live.later_events = number, [event]

    def _decision(self, event: Event, live: PlainRequest | LiveRequest, ranks: Sequence[int]) -> None:
        if event.stage != "schedule" or event.decision not in ("retract", "extend"):
            return
        if isinstance(live, PlainRequest):
            live.new_seq_len = None
        else:
            live.restarted = True
            # Into which of two open rounds the restart falls is the walk's to say.
            self.suspect(live.req, event.step)
        if event.decision == "retract":
            self.rows.free(live, ranks)

    def _commit(self, event: Event, live: PlainRequest | LiveRequest, ranks: Sequence[int]) -> None:
        if event.new_seq_len is not None and live.windows:
            self.rows.cut(live, ranks, event.new_seq_len)
        if event.finished:
            if live.over_after is None:
                live.over_after = event.round
            self.rows.free(live, ranks)
            if event.step is not None:
                self._over.append((event.step, live.req))
                self._forget(event.step)

    def _forget(self, step: int) -> None:
        """Let go of requests that finished some steps ago."""
        while self._over and self._over[0][0] + _LINGER < step:
            _, req = self._over.popleft()
            self._attempts.pop(req, None)
            plain, live = self.plain.pop(req, None), self.any.pop(req, None)
            if live is not None:
                self._close(live, step)
            for one in (plain, live):
                if one is not None:
                    self.rows.end(one)
