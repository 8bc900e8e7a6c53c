"""Which records lay a KV slot that another request may still hold, told as records go by in the order of `seq`.

That is what `divtrace.sieve.neighbours` asks of a whole rank for one request: a slot is surely free if every other
request that laid it before has finished in between.
"""

from __future__ import annotations

from array import array

from divtrace.events import Event

_FREE = 0
_SHARED = 0xFFFFFFFF
"""Stands for several requests, which are kept beside the table."""
_TABLE = 1 << 26
"""Slots below this are kept in a table of four bytes for each up to the highest, others by name."""


class Claims:
    """Who laid each slot of one rank last, as far as that request has not finished."""

    def __init__(self) -> None:
        """Start with free slots."""
        self._table = array("I")
        self._far: dict[int, int] = {}
        self._shared: dict[int, set[int]] = {}
        self._lives: dict[str | None, int] = {}
        """The number of each request that laid slots and has not finished; behind its end it gets another one."""
        self._live: set[int] = set()
        self._next = _FREE + 1

    def are_contested(self, event: Event) -> bool:
        """Take in the next record; True if it lays a slot that another request laid and has not finished since."""
        # An end in the very record does not free what it lays.
        if event.finished and (over := self._lives.pop(event.req, None)) is not None:
            self._live.discard(over)
        if not event.kv_slots:
            return False
        life = self._lives.get(event.req)
        if life is None:
            life = self._lives[event.req] = self._next
            self._live.add(life)
            self._next += 1
        if min(event.kv_slots) >= 0 and (highest := max(event.kv_slots)) < _TABLE:
            self._grow(highest)
            return self._lay(self._table, event.kv_slots, life)
        contested = False
        for slot in event.kv_slots:
            if 0 <= slot < _TABLE:
                self._grow(slot)
                contested |= self._lay(self._table, [slot], life)
            else:
                self._far.setdefault(slot, _FREE)
                contested |= self._lay(self._far, [slot], life)
        return contested

    def _grow(self, highest: int) -> None:
        missing = highest + 1 - len(self._table)
        if missing > 0:
            self._table.extend(array("I", bytes(4 * (missing + (len(self._table) >> 3)))))

    def _lay(self, table: array[int] | dict[int, int], slots: list[int], life: int) -> bool:
        live, contested = self._live, False
        for slot in slots:
            before = table[slot]
            if before == life:
                continue
            if before in live or before == _SHARED:
                owners = self._shared.get(slot, {before}) & live
                if owners - {life}:
                    contested = True
                    self._shared[slot] = owners | {life}
                    table[slot] = _SHARED
                    continue
                self._shared.pop(slot, None)
            table[slot] = life
        return contested
