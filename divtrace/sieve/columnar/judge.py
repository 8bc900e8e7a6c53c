"""Takes the rows of a stretch into the live requests: rounds in the middle by columns, those at its ends one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from divtrace.align.view import Site
from divtrace.events import Event
from divtrace.sieve.columnar.ragged import integer, last_of_each
from divtrace.sieve.columnar.rounds import ROUND_BITS, Rounds, Unplain, no
from divtrace.sieve.columnar.slots import Layouts
from divtrace.sieve.columnar.stretch import Stretch, holding
from divtrace.sieve.columnar.tally import sites
from divtrace.sieve.plain import COMMITTED, GOOD, PlainRequest
from divtrace.sieve.requests import Requests

if TYPE_CHECKING:
    import pyarrow as pa

_ODD_SHARE = 16
"""If more than one round in so many is of another shape, single records are checked instead."""


class Judge:
    """One stretch and the live requests. Nothing is changed before `take_in`."""

    def __init__(self, stretch: Stretch, requests: Requests, ranks: Sequence[int]) -> None:
        """Look at the shape of the rows.

        Raises:
            Unplain: the rows have to be taken in one by one.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        self._stretch, self._requests, self._ranks = stretch, requests, tuple(ranks)
        req, number = stretch.column("req"), stretch.column("round")
        self._is_idle = req is None
        if req is None:
            return
        self._steps: Any = stretch.column("step")
        self._names: list[str] = req.dictionary.to_pylist()
        self._codes = req.indices.cast(pa.int64())
        mine = pc.and_(stretch.is_model, req.is_valid())
        if number is None:
            number = pa.nulls(stretch.count, pa.int64())
        self._number = number
        rows = pc.and_(mine, number.is_valid())
        self._rows = rows
        self._present: list[int] = pc.unique(self._codes.filter(mine)).to_pylist()
        self._attempts = self._attempts_of(mine)
        step = stretch.column("step")
        if rows.true_count and (step is None or pc.any(pc.and_(rows, step.is_null())).as_py()):
            raise Unplain
        bounds = pc.min_max(number.filter(rows)).as_py()
        if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < (1 << ROUND_BITS) - 2:
            raise Unplain
        carried = {code: live.number for code in self._present if (live := self._live(code)) is not None}
        at = self._by_code({code: known for code, known in carried.items() if known >= 0})
        keys = pc.add(pc.shift_left(self._codes, integer(ROUND_BITS)), number)
        self._keys = pc.if_else(rows, keys, pa.scalar(-1, pa.int64())).fill_null(-1)
        self._by_hand = pc.and_(rows, pc.or_(stretch.at_stage("prefill"), no(pc.equal(at.take(self._codes), number))))
        if 4 * self._by_hand.true_count > rows.true_count + 4096:
            raise Unplain
        middle = pc.and_(rows, pc.invert(self._by_hand))
        self._check_prefill(carried)
        self._rounds = Rounds(stretch, middle, self._keys)
        odd = self._rounds.odd()
        if odd.true_count * _ODD_SHARE > self._rounds.count + 4 * _ODD_SHARE:
            raise Unplain
        self._odd = odd
        self._layouts = Layouts(stretch, rows, self._keys, self._codes)
        fresh = {code for code in self._layouts.codes if (live := self._live(code)) is None or not live.slot_index}
        if len(fresh) > len(requests.rows._free):
            raise Unplain

    def _attempts_of(self, mine: pa.Array) -> dict[int, int]:
        import pyarrow.compute as pc

        attempt = self._stretch.column("attempt")
        if attempt is None:
            return {}
        numbers = attempt.fill_null(0).filter(mine)
        if pc.max(numbers).as_py() in (0, None) and pc.min(numbers).as_py() in (0, None):
            return {}
        found: dict[int, int] = {}
        for code, number in zip(self._codes.filter(mine).to_pylist(), numbers.to_pylist(), strict=True):
            if found.setdefault(code, number) != number:
                raise Unplain
        return found

    def _live(self, code: int) -> PlainRequest | None:
        live = self._requests.plain.get(self._names[code])
        return live if live is not None and live.attempt == self._attempts.get(code, 0) else None

    def _by_code(self, values: dict[int, Any], kind: pa.DataType | None = None) -> pa.Array:
        import pyarrow as pa

        return pa.array([values.get(code) for code in range(len(self._names))], kind or pa.int64())

    def _check_prefill(self, carried: dict[int, int]) -> None:
        """Raise Unplain unless prefills stand in front of all other rounds of their request."""
        import pyarrow.compute as pc

        prefill = pc.and_(self._rows, self._stretch.at_stage("prefill"))
        if not prefill.true_count:
            return
        if pc.any(pc.not_equal(self._number.filter(prefill), 0)).as_py():
            raise Unplain
        if any(carried.get(code, -1) > 0 for code in pc.unique(self._codes.filter(prefill)).to_pylist()):
            raise Unplain

    def take_in(self) -> None:
        """Check all rounds and leave the live requests as they are behind the last row."""
        if self._is_idle:
            return
        requests = self._requests
        lives = {code: self._entered(code) for code in self._present}
        if requests.absent is not None:
            for live in lives.values():
                for stage, site, phase in sites(self._stretch):
                    requests.unmatched(live.req, Site(stage, site, phase or "used"))
        for event in self._events(self._by_hand):
            self._hand(event, requests.plain[event.req or ""])
        self._judge(lives)
        self._layouts.lay(self._requests.rows, lives, self._ranks, self._overshoot, self._suspect)
        self._leave(lives)

    def _entered(self, code: int) -> PlainRequest:
        live = self._live(code)
        if live is None or live.contested:
            attempt = self._attempts.get(code, 0)
            live = self._requests._plain_of(Event(stage="verify", req=self._names[code], attempt=attempt))
            if live.contested:
                self._suspect(code, None)
        return live

    def _suspect(self, code: int, step: int | None) -> None:
        self._requests.suspect(self._names[code], step)

    def _events(self, mask: pa.Array) -> list[Event]:
        """Rows as events, in the order of `seq`."""
        import pyarrow.compute as pc

        rows = self._stretch.sorted_rows(pc.indices_nonzero(mask))
        return self._stretch.reference.events(rows) if len(rows) else []

    def _hand(self, event: Event, live: PlainRequest) -> None:
        """Take in one record as `Requests` does, but for its slots."""
        number = event.round
        assert number is not None
        if number != live.number:
            if not live.begin(number):
                # Rounds were left out: the walk has to look, and what follows continues from here.
                self._requests.suspect(live.req, event.step)
                live.forget()
                live.begin(number)
            self._requests.count(live, number)
        if live.over_after is not None and number == live.over_after + 1:
            return
        live.take((event,))
        if live.answer != GOOD:
            self._requests.suspect(live.req, event.step)

    def _judge(self, lives: dict[int, PlainRequest]) -> None:
        """Check the rounds in the middle."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rounds = self._rounds
        continued = self._by_code({code: live.number for code, live in lives.items()}).take(rounds.code)
        confirmed = self._by_code({code: self._confirmed(live) for code, live in lives.items()})
        tokens = self._by_code({code: self._token(live) for code, live in lives.items()}, rounds.last_token.type)
        is_first = rounds.previous.is_null()
        in_turn = pc.or_(pc.equal(continued, integer(-1)), pc.equal(pc.add(continued, integer(1)), rounds.number))
        entered = pc.and_(is_first, no(in_turn))
        before = pc.if_else(entered, confirmed.take(rounds.code), rounds.new_seq_len.take(rounds.previous))
        root = pc.if_else(entered, tokens.take(rounds.code), rounds.last_token.take(rounds.previous))
        over = self._by_code({code: live.over_after for code, live in lives.items()}).take(rounds.code)
        overshoot = pc.or_(
            no(rounds.finished.take(rounds.previous)), no(pc.equal(pc.add(over, integer(1)), rounds.number))
        )
        broken = pc.or_(self._odd, rounds.broken(before, root, self._requests._extra))
        broken = pc.or_(pc.and_(broken, pc.invert(overshoot)), pc.and_(is_first, pc.invert(no(in_turn))))
        # A round that is over twice, or an overshoot that finishes again, is for the walk.
        broken = pc.or_(broken, pc.and_(overshoot, rounds.finished))
        known = [
            (code << ROUND_BITS) + live.over_after + 1 for code, live in lives.items() if live.over_after is not None
        ]
        self._overshoot = pa.concat_arrays([rounds.keys.filter(overshoot), pa.array(known, pa.int64())])
        if broken.true_count:
            keys = rounds.keys.filter(broken)
            first = pc.index_in(keys, self._keys)
            for key, step in zip(keys.to_pylist(), self._steps.take(first).to_pylist(), strict=True):
                self._suspect(key >> ROUND_BITS, step)

    @staticmethod
    def _confirmed(live: PlainRequest) -> int | None:
        """The confirmed length that the next round continues from."""
        return live.new_seq_len if live.progress == COMMITTED or not live.number or live.number < 0 else None

    @staticmethod
    def _token(live: PlainRequest) -> int | None:
        return live.last_token if live.progress == COMMITTED or not live.number or live.number < 0 else live.bonus

    def _leave(self, lives: dict[int, PlainRequest]) -> None:
        """Let every request stand behind its last round here, which is taken in record by record."""
        import pyarrow.compute as pc

        rounds = self._rounds
        if not rounds.count:
            self._finish(lives)
            return
        seen = self._by_code({code: live.rounds.highest for code, live in lives.items()}).take(rounds.code)
        counts = pc.value_counts(rounds.code.filter(pc.greater(rounds.number, seen)))
        fresh = dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
        codes, indices = last_of_each(rounds.code)
        last = dict(zip(codes.to_pylist(), rounds.number.take(indices).to_pylist(), strict=True))
        numbers = rounds.number.take(rounds.previous.take(indices)).to_pylist()
        earlier = rounds.previous.take(indices)
        lengths, tokens = rounds.new_seq_len.take(earlier).to_pylist(), rounds.last_token.take(earlier).to_pylist()
        finished = rounds.finished.take(earlier).to_pylist()
        for (code, number), length, token, over, before in zip(
            last.items(), lengths, tokens, finished, numbers, strict=True
        ):
            live = lives[code]
            if fresh.get(code):
                self._requests._facts.requests[live.req] += fresh[code]
                live.rounds.reach(number)
            if before is not None:
                live.number, live.progress = before, COMMITTED
                live.new_seq_len, live.last_token = length, token
                if over:
                    live.over_after = before
        mask = pc.is_in(self._keys, rounds.keys.take(indices))
        for event in self._events(mask):
            self._hand(event, self._requests.plain[event.req or ""])
        self._finish(lives)

    def _finish(self, lives: dict[int, PlainRequest]) -> None:
        """Note the requests that finished, and let go of those that did some steps ago."""
        import pyarrow.compute as pc

        finished = self._stretch.column("finished")
        if finished is None:
            return
        running = holding(finished, ("",), self._stretch.count)
        over = pc.and_(
            pc.and_(self._rows, self._stretch.at_stage("commit")), pc.and_(finished.is_valid(), pc.invert(running))
        )
        if not over.true_count:
            return
        rows = self._stretch.sorted_rows(pc.indices_nonzero(over))
        columns = (self._codes.take(rows), self._number.take(rows), self._steps.take(rows))
        for code, number, step in zip(*(column.to_pylist() for column in columns), strict=True):
            live = lives[code]
            if live.over_after is None:
                live.over_after = number
            self._requests._over.append((step, live.req))
            self._requests._forget(step)
