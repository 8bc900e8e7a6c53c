"""The quick path of the sieve: whole blocks of usual lines that are equal on all ranks.

What the lockstep asks of every record is asked here of a block at once, and the records of a round are held against its
invariants together, at its commit. Lines of any other kind are left to the lockstep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import compress, islice
from operator import attrgetter, ne

from divtrace.events import VALUE_FIELDS, Event
from divtrace.sieve.alike import Alike, Laid, has_compared
from divtrace.sieve.careful import Careful
from divtrace.sieve.cursor import NotSievableError
from divtrace.sieve.operations import LastOperation, contradicts, fingerprint
from divtrace.sieve.plain import PlainRequest

_ROUNDS = frozenset({"draft", "verify", "accept", "commit"})
"""Stages of a round that is checked as a whole."""
_OF_REQUESTS = _ROUNDS | {"prefill", "schedule"}
_NO_MODEL = ("collective", "host")
_Shape = tuple[int | None, int | None, int | None, str | None, str, str | None]
_SHAPE = attrgetter("rank", "world", "attempt", "phase", "stage", "site")
_SELDOM = ("world", "attempt", "phase")
"""Those of them that few traces record at all."""
_GOING_ON = frozenset({None, ""})
"""What `finished` is as long as a request runs."""
_KEY = attrgetter("world", "step", "req", "attempt", "round", "stage", "site", "phase", "finished")
"""What has to be equal also where ranks may differ."""
_COMPARED = attrgetter(*VALUE_FIELDS, "comm", "comm_ranks", "comm_seq", "state")


class Quick(Careful):
    """One replica, as far as its lines are usual."""

    _shapes: Set[_Shape] = frozenset()
    """What kinds of records the block holds, by the fields of `_SHAPE`."""
    _steps: Set[int] = frozenset()
    """The steps of its records."""
    _in_rounds: Set[str] = frozenset()
    """Stages of its records that belong to a round."""
    _goes_on = False
    """Whether no request finishes in it."""

    def _is_usual(self, events: Sequence[Event], seq: int, stop: float) -> bool:
        """Whether these records, as `UsualLines` decodes them, may be taken in as a block."""
        cursor = self._active[0].cursor
        if [event.seq for event in events] != list(range(seq, seq + len(events))):
            return False
        # Few tuples, from which everything else is told: one look at each record.
        kinds = {
            (event.rank, event.stage, event.site, event.step, event.round is None, event.finished) for event in events
        }
        if self._usual.fields.isdisjoint(_SELDOM):
            shapes: set[_Shape] = {(rank, None, None, None, stage, site) for rank, stage, site, _, _, _ in kinds}
        else:
            shapes = set(map(_SHAPE, events))
        self._shapes = shapes
        if any(phase not in (None, "used") or not cursor.is_own(rank, world) for rank, world, _, phase, _, _ in shapes):
            return False
        steps = {step for _, _, _, step, _, _ in kinds}
        if None in steps:
            steps = {step for _, stage, _, step, _, _ in kinds if stage != "host"}
        self._steps = {step for step in steps if step is not None}
        if len(self._steps) < len(steps) or max(self._steps, default=0) >= stop:
            return False
        self._goes_on = all(finished in _GOING_ON for _, _, _, _, _, finished in kinds)
        self._in_rounds = {stage for _, stage, _, _, is_alone, _ in kinds if not is_alone}
        return self._in_rounds <= _OF_REQUESTS

    def _take_usual(self, events: Sequence[Event], alike: Alike) -> None:
        """Take in records that all active ranks share but for the slots."""
        for event in [event for event in events if event.src is not None or event.comm_ranks is not None]:
            if event.stage not in _NO_MODEL:
                self._check_sync(event)
        if not self._take_rounds(events, alike):
            self._take_in_order(events, alike)
        self._note_block(events, alike)

    def _take_rounds(self, events: Sequence[Event], alike: Alike) -> bool:
        """Take in a block whose requests all go on in the plain way; False if it is to be taken in record by record."""
        if not self._in_rounds <= _ROUNDS or any(attempt for _, _, attempt, _, _, _ in self._shapes):
            return False
        groups: defaultdict[str | None, list[Event]] = defaultdict(list)
        others: list[tuple[int, Event]] = []
        for done, event in enumerate(events):
            if event.round is None:
                others.append((done, event))
            else:
                groups[event.req].append(event)
        if any(event.req is not None or event.stage == "host" for _, event in others):
            return False
        if not self._goes_on:
            return False
        lives = self._requests.fitting(groups)
        if lives is None:
            return False
        self._pass_steps(events)
        for done, event in others:
            if event.stage == "collective":
                self._operation(event, done)
        self._lay(events, alike, lives)
        for req, live in lives.items():
            if live.contested:
                self._requests.suspect(req, groups[req][0].step)
        self._requests.take_rounds(groups, lives)
        if self._forks.followed:
            self._forks.take(alike.rows(events))
        return True

    def _pass_steps(self, events: Sequence[Event]) -> None:
        """Note where the steps of records begin and end; all carry one."""
        if len(self._steps) == 1:
            self._enter_step(events[0].step or 0, 0, events[0].stage)
            self._leave_step(events[0].step or 0, len(events))
            return
        steps = [event.step or 0 for event in events]
        changes = compress(range(1, len(steps)), map(ne, islice(steps, 1, None), steps))
        start = 0
        for stop in (*changes, len(steps)):
            self._enter_step(steps[start], start, events[start].stage)
            self._leave_step(steps[start], stop)
            start = stop

    def _lay(self, events: Sequence[Event], alike: Alike, lives: Mapping[str, PlainRequest]) -> None:
        """Lay and cut slots, in order."""
        ranks = [lane.rank for lane in self._active]
        rows = self._requests.rows
        concerned = [
            (done, event)
            for done, event in enumerate(events)
            if event.kv_slots is not None or event.new_seq_len is not None
        ]
        if alike.is_even:
            rows.lay_and_cut(concerned, lives, ranks, alike.slots)
            return
        for done, event in concerned:
            req = event.req
            if req is None:
                continue
            live = lives[req]
            for one, some, slots in alike.laid(event, done, ranks):
                if slots is not None:
                    rows.lay(one, live, some, slots)
                if one.stage == "commit" and live.windows and one.new_seq_len is not None:
                    rows.cut(live, some, one.new_seq_len)

    def _excused(self, event: Event, other: Event, number: int) -> bool:
        """Whether another active rank's record, that is not this one's, differs in nothing that is compared.

        Or if it does, whether the walk judges both anyway.
        """
        if _KEY(other) != _KEY(event) or event.stage == "host":
            return False
        if not self._active[number].cursor.is_own(other.rank, other.world):
            return False
        if (other.kv_slots is None) is not (event.kv_slots is None):
            return False
        if not (event.stage in _ROUNDS and self._is_suspect(event)) and _COMPARED(other) != _COMPARED(event):
            return False
        if self._missing:
            self._record(other)
        return True

    def _take_in_order(self, events: Sequence[Event], alike: Alike) -> None:
        ranks = [lane.rank for lane in self._active]
        requests = self._requests
        known, lay, commit = requests.plain, requests.rows.lay, requests.commit_usual
        followed, is_even = self._forks.followed, alike.is_even
        some: Sequence[int] = ranks
        apart: list[Laid] = []
        slots: Sequence[list[int] | None] | None
        step: int | None = None
        for done, event in enumerate(events):
            if event.step != step and event.stage != "host":
                if step is not None:
                    self._leave_step(step, done)
                step = event.step
                assert step is not None
                self._enter_step(step, done, event.stage)
            number, req = event.round, event.req
            if number is None or req is None:
                self._without_round(event, done, ranks)
                continue
            live = known.get(req)
            own = event.kv_slots
            if not is_even:
                (_, some, slots), *apart = alike.laid(event, done, ranks)
            elif own is not None:
                slots = [own, *[other.get(done, own) for other in alike.slots]]
            else:
                slots = None
            if live is None or live.open_round != number or live.attempt != (event.attempt or 0):
                live = requests.begin_usual(event)
            if live is None:
                requests.agree(event, some, slots)
            else:
                live.pending.append(event)
                if slots is not None:
                    lay(event, live, some, slots)
                if event.stage == "commit":
                    commit(event, live, some)
            for other, which, _ in apart:
                requests.hold(other, which)
            if followed:
                self._forks.take([alike.row(event, done)])
        if step is not None:
            self._leave_step(step, len(events))

    def _without_round(self, event: Event, done: int, ranks: Sequence[int]) -> None:
        if event.stage == "collective":
            self._operation(event, done)
        elif event.stage == "host":
            for lane in self._active:
                lane.host(event, lane.cursor.pos + done)
        elif event.req is not None:
            self._requests.agree(event, ranks, None)

    def _note_block(self, events: Sequence[Event], alike: Alike) -> None:
        """What is known behind a block: sites, decisions, the last records, the last step with an agreement."""
        for where in {(stage, site, phase) for _, _, _, phase, stage, site in self._shapes} - self._covered:
            if where[0] not in _NO_MODEL:
                self._cover(where)
        if self._missing:
            self._missing = [name for name in self._missing if all(getattr(one, name) is None for one in events)]
        last_model = last_event = -1
        for done in range(len(events) - 1, -1, -1):
            stage = events[done].stage
            if stage == "host":
                continue
            last_event = max(last_event, done)
            if stage != "collective":
                last_model = done
                break
        for lane in self._active:
            if last_event >= 0:
                lane.last_event = lane.cursor.pos + last_event
            if last_model >= 0:
                lane.last_model = lane.cursor.pos + last_model
        for step in sorted(self._steps, reverse=True):
            if self.facts.agreed_step is not None and step <= self.facts.agreed_step:
                break
            for done in range(len(events) - 1, -1, -1):
                event = events[done]
                if event.step != step or event.stage in _NO_MODEL or not has_compared(event):
                    continue
                if agrees(events, alike, done):
                    self._agreed(event)
                    return

    def _enter_step(self, step: int, done: int, stage: str) -> None:
        for lane in self._active:
            lane.facts.first_of_step.setdefault(step, lane.cursor.pos + done)
            if stage != "collective":
                lane.reach(step)

    def _leave_step(self, step: int, done: int) -> None:
        for lane in self._active:
            lane.facts.last_of_step[step] = lane.cursor.pos + done - 1

    def _operation(self, event: Event, done: int) -> None:
        """A collective that all active ranks recorded alike."""
        lanes = self._active
        found = self._operations.communicator(event, lanes[0].rank) if event.comm_ranks is not None else None
        if found is None or event.comm_seq is None:
            if event.comm_seq is None:
                raise NotSievableError("a collective carries no comm_seq")
            for lane in lanes:
                lane.operation(event, lane.cursor.pos + done)
            return
        communicator, traced = found
        number = event.comm_seq
        what = fingerprint(event)
        fresh = []
        for lane in lanes:
            pos = lane.cursor.pos + done
            last = lane.last_ops.get(communicator)
            if last is not None and number <= last.number:
                if number < last.number or contradicts(last.fingerprint, what):
                    self._operations.suspects.add((communicator, number))
                last.latest = pos
            else:
                lane.last_ops[communicator] = LastOperation(number, pos, pos, what)
                fresh.append(lane.rank)
        if fresh:
            self._operations.issue(communicator, traced, number, frozenset(fresh), what)
        if event.state == "timeout":
            self._operations.suspects.add((communicator, number))


def agrees(events: Sequence[Event], alike: Alike, done: int) -> bool:
    """False if another rank's record differs in what is compared, and is judged by the walk."""
    others = [others[done] for others in alike.others if done in others]
    return all(_COMPARED(other) == _COMPARED(events[done]) for other in others)
