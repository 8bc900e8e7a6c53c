"""The live requests of a replica: their rounds, the slots they hold on every rank, and which of them are suspects."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from divtrace.events import Event
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.plain import HANDLERS, UNUSUAL, PlainRequest
from divtrace.sieve.request import LiveRequest, close_round
from divtrace.sieve.rows import Rows

_LINGER = 8
"""Steps after which a finished request is forgotten: its overshoot round is over by then."""
_MOST_SKIPPED = 1024
"""Rounds left out at one point that are remembered, should they come late."""
_AROUND = 2
"""Steps around a change from plain to any shape, which the walk judges."""


class Requests:
    """Follows every request through the records on which ranks agree.

    It starts with the plain shape of rounds. At the first record that does not fit, all requests are followed record by
    record from there on, and the steps around are left to the walk.
    """

    def __init__(self, facts: ReplicaFacts, algorithm: str | None, ranks: Sequence[int]) -> None:
        """Start without requests."""
        self._facts = facts
        self._algorithm = algorithm
        self._extra = 2 if algorithm is not None and algorithm.upper() == "UNO" else 1
        self._plain: dict[str, PlainRequest] = {}
        self._any: dict[str, LiveRequest] = {}
        self._is_plain = True
        self.rows = Rows(ranks, self.suspect)
        self._ranks = tuple(ranks)
        self._over: deque[tuple[int, str]] = deque()
        self.absent: int | None = None
        """A rank of the replica that is not recording now: what its peers record is compared in part only."""

    def suspect(self, req: str, step: int | None) -> None:
        """Have a request judged exactly."""
        known = self._facts.suspects.get(req, step)
        if known is not None and step is not None:
            step = min(known, step)
        self._facts.suspects[req] = step if step is not None else known

    def agree(self, event: Event, ranks: Sequence[int], slots: Sequence[list[int] | None] | None) -> None:
        """Take in a record of a request that all of `ranks` made alike, but for the slots."""
        if not self._is_plain:
            self._agree_any(event, ranks, slots)
            return
        live = self._plain.get(event.req or "")
        if live is None or live.contested or self.absent is not None or live.attempt != (event.attempt or 0):
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
            self._count(live, number)
        stage = event.stage
        handler = HANDLERS.get(stage)
        if handler is None or (event.phase is not None and event.phase != "used"):
            answer = UNUSUAL
        elif live.over_after is not None and number == live.over_after + 1:
            answer = 0
        else:
            answer = handler(live, event)
        if answer:
            if answer == UNUSUAL:
                self._leave_plain(event.step)
                self._agree_any(event, ranks, slots)
                return
            self.suspect(live.req, event.step)
        if slots is not None:
            self.rows.lay(event, live, ranks, slots)
        if stage == "commit":
            self._commit(event, live, ranks)

    def _agree_any(self, event: Event, ranks: Sequence[int], slots: Sequence[list[int] | None] | None) -> None:
        live = self._any_of(event)
        number = event.round
        if number is None:
            self._decision(event, live, ranks)
            return
        if number == live.number:
            live.events.append(event)
        elif number == live.later_number:
            live.later_events.append(event)
        else:
            self._open(live, number, event)
        if event.phase == "local":
            return
        if slots is not None:
            self.rows.lay(event, live, ranks, slots)
        if event.stage == "commit":
            self._commit(event, live, ranks)

    def _leave_plain(self, step: int | None) -> None:
        """Follow records of any shape from here on."""
        self._is_plain = False
        if step is None:
            self._facts.stepless = True
        else:
            self._facts.irregular.update(range(step - _AROUND, step + _AROUND + 1))
        for req, plain in self._plain.items():
            live = self._any[req] = LiveRequest(req, plain.attempt)
            live.rounds, live.skipped, live.over_after = plain.rounds, plain.skipped, plain.over_after
            live.slot_index, live.windows, live.contested = plain.slot_index, plain.windows, plain.contested
            self.rows.adopt(live)
        self._plain.clear()

    def alone(self, event: Event, rank: int) -> None:
        """Take in a record of one rank whose steps are judged by the walk: slots and counts only."""
        if event.req is None:
            return
        live = self._plain_of(event) if self._is_plain else self._any_of(event)
        if event.round is None:
            self._decision(event, live, (rank,))
            return
        self._count(live, event.round)
        if event.phase == "local":
            return
        if event.kv_slots is not None:
            self.rows.lay(event, live, (rank,), (event.kv_slots,))
        if event.stage == "commit":
            if event.new_seq_len is not None:
                self.rows.cut(live, (rank,), event.new_seq_len)
            if event.finished:
                self.rows.free(live, (rank,))

    def break_off(self, step: int | None) -> None:
        """The ranks fell out of step: check what is open, and continue nothing across the steps that follow."""
        for live in list(self._any.values()):
            self._close(live, step)
            live.forget_rounds()
        for plain in self._plain.values():
            plain.forget()

    def close_all(self) -> None:
        """Check what is open at the end of the trace."""
        for live in list(self._any.values()):
            self._close(live, None)

    def _plain_of(self, event: Event) -> PlainRequest:
        req, attempt = event.req or "", event.attempt or 0
        live = self._plain.get(req)
        if live is None or live.attempt != attempt:
            if live is not None:
                self.rows.end(live)
            live = self._plain[req] = PlainRequest(req, attempt, self._extra)
            self._facts.requests.setdefault(req, 0)
        self._seen(live, event)
        return live

    def _any_of(self, event: Event) -> LiveRequest:
        req, attempt = event.req or "", event.attempt or 0
        live = self._any.get(req)
        if live is None or live.attempt != attempt:
            if live is not None:
                self._close(live, event.step)
                self.rows.end(live)
            live = self._any[req] = LiveRequest(req, attempt)
            self._facts.requests.setdefault(req, 0)
        if live.contested or self.absent is not None:
            self._seen(live, event)
        return live

    def _seen(self, live: PlainRequest | LiveRequest, event: Event) -> None:
        if live.contested:
            self.suspect(live.req, event.step)
        if self.absent is not None:
            self._facts.partial.setdefault(live.req, self.absent)

    def _count(self, live: PlainRequest | LiveRequest, number: int) -> None:
        """Count a round once, also if it comes behind a later one."""
        if number > live.rounds:
            if 0 < live.rounds < number - 1:
                live.skipped.update(range(live.rounds + 1, min(number, live.rounds + _MOST_SKIPPED)))
            live.rounds = number
        elif number in live.skipped:
            live.skipped.discard(number)
        else:
            return
        self._facts.requests[live.req] += 1

    def _close(self, live: LiveRequest, step: int | None) -> None:
        for number, events in ((live.number, live.events), (live.later_number, live.later_events)):
            if number >= 0 and not close_round(live, number, events, self._algorithm):
                self.suspect(live.req, events[0].step if events else step)

    def _open(self, live: LiveRequest, number: int, event: Event) -> None:
        """Begin a round with its first record; closes the one that it leaves behind."""
        self._count(live, number)
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
            plain, live = self._plain.pop(req, None), self._any.pop(req, None)
            if live is not None:
                self._close(live, step)
            for one in (plain, live):
                if one is not None:
                    self.rows.end(one)
