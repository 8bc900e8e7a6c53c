"""Streams the ranks of one replica side by side (SPEC sections 5 and 7, on what agrees).

While the ranks' lines are equal but for rank, time and slots, one rank's records are decoded and checked for all of
them. Where lines differ the records are compared; where even the keys differ the steps around are set aside, to be
loaded and judged by the walk, and the ranks meet again two steps later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import compress
from operator import ne
from typing import cast

import msgspec

from divtrace.events import Event
from divtrace.sieve.alike import Alike, alike_at_once, slots_of
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.lane import Lane
from divtrace.sieve.parted import hand_over
from divtrace.sieve.quick import Quick, agrees
from divtrace.trace.records import BadRecordError, has_long_integer, tidy_extra

_decode = msgspec.json.Decoder(Event).decode
_groups = cast(Callable[[re.Match[bytes] | None], tuple[bytes, bytes]], re.Match.groups)
_EVER = float("inf")
_NARROWEST, _WIDEST = 8, 1 << 20
"""Lines that are compared at a time, after a difference and after long agreement."""
_FEWEST = 16
"""Lines below which taking them in as a block does not pay."""
_FEW_LEFT = 64
"""Lines of one rank, left behind the block of another, that are not taken in by themselves: that would cost nearly as
much as a whole block, and tear rounds apart."""
_MOST_PATIENCE = 63
"""Records that pass one by one at most before lines are compared again."""


class Lockstep(Quick):
    """The sieve over one replica."""

    _window = _WIDEST
    _patience = _last_patience = 0
    _slowly = 16
    """Lines that are asked one by one after a block that is not usual; more, where several are not."""
    _checked = b""
    _found = False

    def run(self) -> ReplicaFacts:
        """Read everything.

        Raises:
            NotSievableError: a trace is not in order, or carries no steps; nothing of this run may be used.
        """
        waiting = sorted(self._lanes, key=lambda lane: (_first_step(lane), lane.rank))
        while waiting or self._active:
            stop = _first_step(waiting[0]) if waiting else _EVER
            if waiting and (not self._active or self._reached(stop)):
                self._join(waiting, stop)
                continue
            self._tell()
            if all(lane.head is None for lane in self._active):
                self._fast(stop)
            self._settle()
        self._requests.close_all()
        self._requests.rows.let_go()
        for lane in self._lanes:
            lane.finish()
        self.facts.missing = tuple(self._missing)
        hand_over(self.facts, self._forks)
        return self.facts

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(sum(lane.cursor.bytes_read for lane in self._lanes))

    def _reached(self, step: float) -> bool:
        heads = [lane.fetch() for lane in self._active]
        return any(head is not None and head.step is not None and head.step >= step for head in heads)

    def _join(self, waiting: list[Lane], step: float) -> None:
        """Let ranks in whose traces begin here. Where others are running already, the steps around are irregular."""
        others = bool(self._active)
        while waiting and _first_step(waiting[0]) == step:
            self._active.append(waiting.pop(0))
        self._active.sort(key=lambda lane: lane.rank)
        self._membership()
        if others and step not in (_EVER, -_EVER):
            self._part(int(step))

    def _fast(self, stop: float) -> None:
        """Take lines as long as they are equal on all active ranks, up to a record of step `stop`."""
        if self._patience:
            self._patience -= 1
            return
        while self._active and all(lane.cursor.fill() for lane in self._active):
            cursors = [lane.cursor for lane in self._active]
            for cursor in cursors:
                cursor.join(_FEW_LEFT)
            if any(cursor.next_seq is None for cursor in cursors):
                return
            self._tell()
            count = min(self._window, *(len(cursor.lines) - cursor.index for cursor in cursors))
            done = self._usual_lines(count, stop)
            if not done:
                if self._has_long_integer(cursors[0].text):
                    return
                count = min(count, self._slowly)
                done = self._equal_lines(count, stop)
            for cursor in cursors:
                cursor.index += done
                cursor.pos += done
                cursor.next_seq = (cursor.next_seq or 0) + done
            if done < count:
                self._wait(done)
                return
            self._window = min(2 * self._window, _WIDEST)

    def _wait(self, done: int) -> None:
        """Lines differ: look at few at first, and where they go on differing, not at every one."""
        self._window = _NARROWEST
        self._last_patience = 0 if done else min(2 * self._last_patience + 1, _MOST_PATIENCE)
        self._patience = self._last_patience

    def _has_long_integer(self, text: bytes) -> bool:
        if text is not self._checked:
            self._checked, self._found = text, has_long_integer(text)
        return self._found

    def _usual_lines(self, count: int, stop: float) -> int:
        """How many of the next `count` lines agree, if they are usual and may be taken in as a block; else 0."""
        reference = self._active[0].cursor
        lines = reference.lines[reference.index : reference.index + count]
        if len(lines) >= _FEWEST and self._requests.is_plain:
            events = self._usual.decode(lines)
            alike = self._alike(events) if len(events) >= _FEWEST else Alike(0)
            usual = events[: alike.count]
            if usual and self._is_usual(usual, reference.next_seq or 0, stop):
                self._take_usual(usual, alike)
                self._slowly = _FEWEST
                return alike.count
        self._slowly = min(2 * self._slowly, _WIDEST)
        return 0

    def _equal_lines(self, count: int, stop: float) -> int:
        """How many of the next `count` lines agree; takes them in."""
        lanes = self._active
        reference = lanes[0].cursor
        ranks = [lane.rank for lane in lanes]
        events = _decoded(reference.lines[reference.index : reference.index + count])
        found = self._alike(events)
        alike = found.count
        seq = reference.next_seq or 0
        agree, covered, missing = self._requests.agree, self._covered, self._missing
        facts = self.facts
        step: int | None = None
        last_model = last_event = -1
        done = -1
        for done in range(alike):
            event = events[done]
            if event.seq != seq + done or not reference.is_own(event.rank, event.world):
                break
            stage = event.stage
            if event.extra is not None and not _is_tidy(event):
                break
            if (event.step is None or event.step != step) and stage != "host":
                if event.step is None or event.step >= stop:
                    break
                if step is not None:
                    self._leave_step(step, done)
                step = event.step
                self._enter_step(step, done, stage)
            if stage == "collective":
                last_event = done
                if missing:
                    missing[:] = [name for name in missing if getattr(event, name) is None]
                self._operation(event, done)
                continue
            if stage == "host":
                for lane in lanes:
                    lane.host(event, lane.cursor.pos + done)
                continue
            last_model = done
            where = (stage, event.site, event.phase)
            if where not in covered:
                self._cover(where)
            if event.comm_ranks is not None or event.src is not None:
                self._check_sync(event)
            if event.req is not None:
                (_, some, slots), *apart = found.laid(event, done, ranks)
                agree(event, some, slots)
                for other, which, _ in apart:
                    self._requests.hold(other, which)
                if self._forks.followed:
                    self._forks.take([found.row(event, done)])
            if missing:
                missing[:] = [name for name in missing if getattr(event, name) is None]
            later = step != facts.agreed_step and (facts.agreed_step is None or (step or 0) > facts.agreed_step)
            if later and agrees(events, found, done):
                self._agreed(event)
            if event.error is not None or event.error_type is not None:
                for lane in lanes:
                    lane.facts.keep.add(lane.cursor.pos + done)
        else:
            done = alike
        if step is not None:
            self._leave_step(step, done)
        for lane in lanes:
            lane.last_event = max(lane.last_event, lane.cursor.pos + last_event if last_event >= 0 else -1)
            if last_model >= 0:
                lane.last_model = lane.cursor.pos + last_model
                lane.last_event = max(lane.last_event, lane.last_model)
        return done

    def _alike(self, events: list[Event]) -> Alike:
        """How many of the next lines all active ranks share.

        The lines of a block are matched and compared as lists, so that what is equal costs no step of the interpreter.
        """
        lanes = self._active
        if len(lanes) == 1:
            return Alike(len(events))
        reference = lanes[0].cursor
        count = len(events)
        columns = [lane.cursor.lines[lane.cursor.index : lane.cursor.index + count] for lane in lanes]
        firsts = [lane.match(lines[0]) if lines else None for lane, lines in zip(lanes, columns, strict=True)]
        matches = [
            first
            for first, lane in zip(firsts, lanes, strict=True)
            if first is not None and int(first[1]) == lane.cursor.next_seq
        ]
        if len(matches) == len(lanes):
            found = alike_at_once(columns, matches, events, self._excused)
            if found is not None:
                return found
        heads = list(map(lanes[0].match, columns[0]))
        if None in heads:
            count = heads.index(None)
        mine = list(map(_groups, heads[:count]))
        alike = Alike(count)
        for lane, lines in zip(lanes[1:], columns[1:], strict=True):
            cursor = lane.cursor
            heads = list(map(lane.match, lines[: alike.count]))
            if None in heads:
                alike.count = heads.index(None)
            theirs = list(map(_groups, heads[: alike.count]))
            if cursor.next_seq != reference.next_seq:
                alike.count = _in_sequence(theirs, cursor.next_seq or 0)
                theirs = [(own[0], other[1]) for own, other in zip(mine, theirs[: alike.count], strict=False)]
            slots: dict[int, list[int]] = {}
            alike.slots.append(slots)
            alike.others.append({})
            for index in compress(range(alike.count), map(ne, mine, theirs)):
                slot = None
                if events[index].kv_slots is not None and mine[index][0] == theirs[index][0]:
                    (slot,) = slots_of([(mine[index][1], theirs[index][1])])
                if slot is None:
                    alike.count = index
                    break
                slots[index] = slot
        return alike


def _decoded(lines: list[bytes]) -> list[Event]:
    """The records of the first lines, up to one that is no plain event."""
    events: list[Event] = []
    with suppress(msgspec.DecodeError, RecursionError):
        events.extend(map(_decode, lines))  # what was decoded before an error stays
    return events


def _is_tidy(event: Event) -> bool:
    try:
        tidy_extra(event)
    except BadRecordError:
        return False
    return True


def _in_sequence(heads: Sequence[tuple[bytes, bytes]], start: int) -> int:
    """How many of the lines go on by one in seq."""
    for index, head in enumerate(heads):
        if int(head[0]) != start + index:
            return index
    return len(heads)


def _first_step(lane: Lane) -> float:
    head = lane.fetch()
    if head is None:
        return _EVER
    return -_EVER if head.step is None else head.step
