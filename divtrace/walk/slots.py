"""kv-alias: no KV slot of a rank holds two live (request, position) at once (SPEC section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from divtrace.align.view import RankView
from divtrace.invariants.base import Break
from divtrace.trace.model import Record
from divtrace.walk.rounds import GOING_ON, RoundKey

_RULE = "kv-alias"
_Owner = tuple[str, int]
"""(req, attempt)"""


class _Holder(msgspec.Struct):
    owner: _Owner
    position: int
    since: int
    """Position in the trace of the record that gave the slot."""
    step: int | None
    round: int | None


class SlotWalk:
    """Follows the slots of one rank through its trace, in the rank's own order."""

    def __init__(self, view: RankView, overshoot: frozenset[RoundKey], requests: frozenset[str] | None = None) -> None:
        """Note where every request ends on this rank; follow only `requests` if they are given."""
        self._requests = requests
        self._view = view
        self._overshoot = overshoot
        self._holders: dict[int, list[_Holder]] = {}
        self._slots: dict[_Owner, dict[int, int]] = {}
        self._highest: dict[_Owner, int] = {}
        self._attempt: dict[str, int] = {}
        self._over: set[_Owner] = set()
        self._prefix: dict[_Owner, int] = {}
        self._last: dict[_Owner, int] = {}
        self._confirmed: dict[_Owner, int] = {}
        """Length up to which a request's rows are known to live."""
        self._committed: dict[tuple[str, int, int], int] = {}
        """Position of the last commit of a round that records `new_seq_len`: until then its rows live."""
        for record in view.records:
            event = record.event
            if event.req is not None and event.stage != "host":
                self._last[event.req, event.attempt or 0] = record.pos
            if event.req is not None and event.round is not None and event.new_seq_len is not None:
                self._committed[event.req, event.attempt or 0, event.round] = record.pos

    def breaks(self) -> Iterator[Break]:
        """Every record at which the rule breaks; one break a record."""
        for record, key in zip(self._view.records, self._view.keys, strict=True):
            if key is None or key.req is None or (self._requests is not None and key.req not in self._requests):
                continue
            event, owner = record.event, (key.req, key.attempt)
            if key.attempt > self._attempt.get(key.req, 0):
                self._free((key.req, self._attempt.get(key.req, 0)))
                self._attempt[key.req] = key.attempt
            for length in (event.seq_len, event.new_seq_len):
                if length is not None and key.phase in GOING_ON:
                    self._confirmed[owner] = length
            if event.prefix_hit is not None:
                self._prefix[owner] = max(event.prefix_hit, self._prefix.get(owner, 0))
            if event.stage == "schedule" and event.decision == "retract":
                self._free(owner)
            judged = (key.req, key.attempt, key.round) not in self._overshoot and owner not in self._over
            if event.kv_slots is not None and event.kv_positions is not None and key.phase in GOING_ON and judged:
                found = self._give(record, owner)
                if found is not None:
                    yield found
            if event.stage == "commit" and key.phase in GOING_ON:
                if event.new_seq_len is not None:
                    self._cut(owner, event.new_seq_len)
                if event.finished:
                    self._free(owner)
                    self._over.add(owner)

    def _give(self, record: Record, owner: _Owner) -> Break | None:
        slots, positions = record.event.kv_slots or [], record.event.kv_positions or []
        if len(slots) != len(positions):
            return Break(_RULE, record, {"kv_slots": len(slots), "kv_positions": len(positions)})
        broken = None
        mine = self._slots.setdefault(owner, {})
        for slot, position in zip(slots, positions, strict=True):
            if slot < 0:
                continue  # a placeholder of engines that pad with -1
            holders = self._holders.setdefault(slot, [])
            for holder in holders:
                if broken is None and self._clash(holder, owner, position, record):
                    broken = Break(
                        _RULE,
                        record,
                        {
                            "slot": slot,
                            "position": position,
                            "held by": holder.owner[0],
                            "held for position": holder.position,
                        },
                    )
            before = mine.get(position)
            if before is not None and before != slot:
                self._drop(before, owner, position)
            if not any(holder.owner == owner and holder.position == position for holder in holders):
                holders.append(_Holder(owner, position, record.pos, record.event.step, record.event.round))
            mine[position] = slot
            self._highest[owner] = max(position, self._highest.get(owner, -1))
        return broken

    def _clash(self, holder: _Holder, owner: _Owner, position: int, record: Record) -> bool:
        if holder.owner == owner and holder.position == position:
            return False
        if holder.since == record.pos:
            return True  # twice in one record
        if holder.owner != owner and self._last.get(holder.owner, -1) < record.pos:
            return False  # the holder's request had ended, though nobody recorded its end
        if position < self._prefix.get(owner, 0) or holder.position < self._prefix.get(holder.owner, 0):
            return False
        return self._is_live(holder, record) and not self._view.hole_between(holder.since, record.pos)

    def _is_live(self, holder: _Holder, record: Record) -> bool:
        """True if the row of a holder surely lives: confirmed, of the prompt, or its round is still to be committed.

        A row whose commit is not recorded, or without a length, may have died with it.
        """
        if holder.round == 0 or holder.position < self._confirmed.get(holder.owner, 0):
            return True
        if holder.step is not None and holder.step == record.event.step:
            return True
        if holder.round is None:
            return False
        return self._committed.get((*holder.owner, holder.round), -1) > record.pos

    def _drop(self, slot: int, owner: _Owner, position: int) -> None:
        holders = self._holders.get(slot, [])
        kept = [holder for holder in holders if holder.owner != owner or holder.position != position]
        if kept:
            self._holders[slot] = kept
        else:
            self._holders.pop(slot, None)

    def _cut(self, owner: _Owner, length: int) -> None:
        mine = self._slots.get(owner, {})
        dead: Iterable[int] = range(max(length, 0), self._highest.get(owner, -1) + 1)
        if len(mine) < self._highest.get(owner, -1) - length:
            dead = [position for position in mine if position >= length]  # positions far apart: look at what is there
        for position in dead:
            slot = mine.pop(position, None)
            if slot is not None:
                self._drop(slot, owner, position)
        self._highest[owner] = min(self._highest.get(owner, -1), length - 1)

    def _free(self, owner: _Owner) -> None:
        for position, slot in self._slots.pop(owner, {}).items():
            self._drop(slot, owner, position)
