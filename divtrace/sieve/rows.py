"""The rows that live requests lay out in the KV slots of every rank, from layout to commit, finish or retract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from divtrace.events import Event
from divtrace.sieve.rising import rises_from
from divtrace.sieve.slots import FREE, HELD, LONGEST_RUN, SHARED, SlotBytes

Window = tuple[int, int, int]
"""A request's last rows on a rank: first and last position, and the first slot if slots and positions run on by one,
else -1."""


_NOT_HELD = bytearray()


class Holder(Protocol):
    """A live request, as the slots know it."""

    req: str
    slot_index: int
    over_after: int | None
    windows: dict[int, Window]
    contested: bool
    open_round: int


class Rows:
    """Slots of all ranks of a replica. `suspect` is called with a request that may share a slot, and the step."""

    def __init__(self, ranks: Sequence[int], suspect: Callable[[str, int | None], None]) -> None:
        """Start with all slots free."""
        self._slots = {rank: SlotBytes() for rank in ranks}
        self._owners = {rank: one.owner for rank, one in self._slots.items()}
        self._suspect = suspect
        self._by_index: dict[int, Holder] = {}
        self._uncertain: list[Holder] = []
        """Requests that share the last index."""
        self._free = list(range(SHARED - 1, 0, -1))
        self._odd: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """(position, slot) of last rows that do not run on by one."""

    def lay(self, event: Event, live: Holder, ranks: Sequence[int], slots: Sequence[list[int] | None]) -> None:
        """Give the slots of a layout to its request."""
        positions = event.kv_positions
        if positions is None or (live.over_after is not None and event.round == live.over_after + 1):
            return
        count = len(positions)
        if not count:
            return
        first = positions[0]
        index = live.slot_index or self._index(live)
        windows, owners = live.windows, self._owners
        held = _NOT_HELD
        if count < LONGEST_RUN and rises_from(first, positions):
            free, held = FREE[count], HELD[index] * count
        for rank, given in zip(ranks, slots, strict=True):
            if given is None:
                continue
            if len(given) != count:
                self._suspect(live.req, event.step)
                continue
            start = given[0]
            if held and start >= 0:
                end = start + count
                owner = owners[rank]
                window = windows.get(rank)
                if (
                    owner[start:end] == free  # shorter where slots are not followed yet
                    and (window is None or window[1] < first)
                    and rises_from(start, given)
                ):
                    owner[start:end] = held
                    windows[rank] = (first, first + count - 1, start)
                    continue
            self._lay_any(event, live, rank, given)

    def lay_and_cut(
        self,
        events: Sequence[tuple[int, Event]],
        lives: Mapping[str, Holder],
        ranks: Sequence[int],
        others: Sequence[Mapping[int, list[int]]],
    ) -> None:
        """What `lay` and `cut` do for records of rounds that all ranks recorded alike but for the slots, in order.

        Args:
            events: the records, with the numbers by which `others` know them.
            lives: their requests, of which none is over.
            ranks: who recorded them.
            others: of every rank but the first, its slots where they are not those of the record.
        """
        lanes = [(rank, self._owners[rank], other) for rank, other in zip(ranks, ({}, *others), strict=True)]
        for number, event in events:
            if event.req is None:
                continue
            live = lives[event.req]
            windows, index = live.windows, live.slot_index
            own = event.kv_slots
            if own is not None:
                positions = event.kv_positions or []
                count = len(positions)
                if not index or not 0 < count < LONGEST_RUN or not rises_from(first := positions[0], positions):
                    self.lay(event, live, ranks, [other.get(number, own) for _, _, other in lanes])
                else:
                    free, held = FREE[count], HELD[index] * count
                    for rank, owner, other in lanes:
                        given = other.get(number, own)
                        start = given[0] if len(given) == count else -1
                        window = windows.get(rank)
                        if (
                            start >= 0
                            and owner[start : start + count] == free
                            and (window is None or window[1] < first)
                            and given == list(range(start, start + count))
                        ):
                            owner[start : start + count] = held
                            windows[rank] = (first, first + count - 1, start)
                        else:
                            self.lay(event, live, (rank,), (given,))
            after = event.new_seq_len
            if after is None or not windows or event.stage != "commit":
                continue
            is_certain = not live.contested and live.slot_index != SHARED
            for rank, owner, _ in lanes:
                window = windows.get(rank)
                if window is None or window[1] < after:
                    continue
                first, last, start = window
                if start < 0 or not is_certain:
                    self.cut(live, (rank,), after)
                    continue
                end = start + last - first + 1
                dead = start + after - first if after > first else start
                owner[dead:end] = FREE[end - dead]
                windows[rank] = (first, after - 1, start)

    def _lay_any(self, event: Event, live: Holder, rank: int, given: list[int]) -> None:
        """Slots that do not run on, rows that are laid out again, or a clash."""
        positions = event.kv_positions or []
        owner = self._slots[rank]
        if rank in live.windows:
            # A new slot for the same position replaces the old one.
            known = set(positions)
            owner.free([slot for position, slot in self._last_rows(live, rank) if position in known], live.slot_index)
        clash = owner.give(given, live.slot_index)
        if clash:
            self._clash(live, clash, event.step)
        self._odd[live.req, rank] = list(zip(positions, given, strict=True))
        live.windows[rank] = (min(positions), max(positions), -1)

    def _last_rows(self, live: Holder, rank: int) -> list[tuple[int, int]]:
        first, last, start = live.windows[rank]
        if start >= 0:
            return list(zip(range(first, last + 1), range(start, start + last - first + 1), strict=True))
        return self._odd.get((live.req, rank), [])

    def _clash(self, live: Holder, clash: int, step: int | None) -> None:
        self._suspect(live.req, step)
        # The one that held the slot may have ended unsaid; it is a suspect only if it goes on.
        if clash == SHARED:
            for one in self._uncertain:
                _contest(one)
        other = self._by_index.get(clash)
        if other is not None and other is not live:
            _contest(other)

    def _index(self, live: Holder) -> int:
        live.slot_index = self._free.pop() if self._free else SHARED
        if live.slot_index == SHARED:
            self._uncertain.append(live)
        else:
            self._by_index[live.slot_index] = live
        return live.slot_index

    def cut(self, live: Holder, ranks: Sequence[int], length: int) -> None:
        """Free the rows at or past the confirmed length: they are dead after the commit."""
        windows = live.windows
        is_certain = not live.contested and live.slot_index != SHARED
        for rank in ranks:
            window = windows.get(rank)
            if window is None or window[1] < length:
                continue
            first, last, start = window
            if start >= 0 and is_certain:
                end = start + last - first + 1
                dead = start + length - first if length > first else start
                count = end - dead
                self._owners[rank][dead:end] = FREE[count] if count < LONGEST_RUN else bytearray(count)
                windows[rank] = (first, length - 1, start)
                continue
            rows = self._last_rows(live, rank)
            self._slots[rank].free([slot for position, slot in rows if position >= length], live.slot_index)
            self._odd[live.req, rank] = [row for row in rows if row[0] < length]
            windows[rank] = (first, length - 1, -1)

    def free(self, live: Holder, ranks: Sequence[int]) -> None:
        """Free everything that a request holds on these ranks."""
        for rank in ranks:
            self._slots[rank].free_all(live.slot_index)

    def end(self, live: Holder) -> None:
        """Free everything that a request holds, and its index."""
        for rank, owner in self._slots.items():
            owner.free_all(live.slot_index)
            self._odd.pop((live.req, rank), None)
        if self._by_index.pop(live.slot_index, None) is not None:
            self._free.append(live.slot_index)
        live.slot_index = 0

    def let_go(self) -> None:
        """Free the tables, which are as large as the pool: whoever refers to them may live until the end of the run."""
        for one in self._slots.values():
            one.owner.clear()

    def adopt(self, live: Holder) -> None:
        """Let another object stand for the holder of an index."""
        if live.slot_index in self._by_index:
            self._by_index[live.slot_index] = live
        elif live.slot_index == SHARED:
            self._uncertain.append(live)


def _contest(live: Holder) -> None:
    live.contested = True
    live.open_round = -1  # its next record tells whether it goes on
