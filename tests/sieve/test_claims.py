"""Contested KV slots are told by a conversion as reading everything about one request tells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtrace.convert import claims
from divtrace.convert.claims import Claims
from divtrace.events import Event
from divtrace.sieve.neighbours import Neighbours

REQUESTS = ("A", "B", "C")
SLOTS = (0, 1, 2, 9, -3, 1 << 27, 1 << 70)

records = st.builds(
    lambda req, slots, finished: Event(stage="verify", req=req, kv_slots=slots, finished=finished),
    st.sampled_from([*REQUESTS, None]),
    st.none() | st.lists(st.sampled_from(SLOTS), max_size=3),
    st.sampled_from([None, None, "", "stop"]),
)


def apart(events: list[Event], req: str) -> bool:
    """Whether nobody else may hold a slot that the request lays."""
    own = Neighbours(req, lambda: ((at, event.kv_slots) for at, event in enumerate(events) if event.req == req))
    laid = [
        (at, event.req, slot)
        for at, event in enumerate(events)
        if event.req != req
        for slot in event.kv_slots or ()
        if slot in own.slots
    ]
    return own.are_apart(laid, lambda: [(event.req, at) for at, event in enumerate(events) if event.finished])


@given(st.lists(records, max_size=12))
def test_a_request_is_contested_where_another_may_hold_its_slots(events: list[Event]) -> None:
    told = Claims()
    contested = {event.req for event in events if told.are_contested(event)}
    for req in REQUESTS:
        assert (req not in contested) == apart(events, req)


def test_slots_beyond_the_table_are_told_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Event(stage="verify", req=req, kv_slots=[slot]) for slot in range(8) for req in "AAB"]
    told = Claims()
    whole = [told.are_contested(event) for event in events]
    monkeypatch.setattr(claims, "_TABLE", 4)
    told = Claims()
    assert [told.are_contested(event) for event in events] == whole == [False, False, True] * 8
