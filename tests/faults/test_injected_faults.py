"""An injected fault is reported exactly where it was injected: rule and key, ranks, field and element."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from simulator import Scenario
from simulator.scenarios import busy, scenario

from divtrace.events import FIELDS
from faults import KINDS, FaultKind, Injected, UnsuitableError
from faults.checking import MODEST, assert_reported, inject, inject_into

PLACES_PER_KIND = 2
"""Each kind is tried at so many of its places here, other ones for each kind; the property below takes any."""


def _chosen() -> list[tuple[FaultKind, tuple[str, str]]]:
    chosen = []
    for index, kind in enumerate(KINDS):
        count = min(PLACES_PER_KIND, len(kind.places))
        chosen += [
            (kind, kind.places[(index + i * len(kind.places) // count) % len(kind.places)]) for i in range(count)
        ]
    return chosen


@pytest.mark.parametrize(("kind", "place"), [pytest.param(k, p, id=f"{k.name}-{'-'.join(p)}") for k, p in _chosen()])
def test_fault_is_reported_where_it_was_injected(kind: FaultKind, place: tuple[str, str]) -> None:
    assert_reported(inject(kind, place, seed=len(kind.name)))


@settings(MODEST, max_examples=30)
@given(data=st.data(), seed=st.integers(0, 999))
def test_fault_is_reported_in_any_run(data: st.DataObject, seed: int) -> None:
    kind = data.draw(st.sampled_from(KINDS), label="kind")
    place = data.draw(st.sampled_from(kind.places), label="place")
    habits: dict[str, Any] = {
        "seed": seed,
        "completions": data.draw(st.booleans(), label="completions"),
        "timeouts": data.draw(st.booleans(), label="timeouts"),
        "first_number": data.draw(st.sampled_from([0, 5000]), label="first number"),
        "numbered": data.draw(st.booleans(), label="numbered"),
    }
    assert_reported(_injected(kind, scenario(*place, **(habits | dict(kind.changes))), seed))


@settings(MODEST, max_examples=30)
@given(data=st.data(), seed=st.integers(0, 999), overlap=st.booleans())
def test_fault_is_reported_while_requests_come_and_go(data: st.DataObject, seed: int, overlap: bool) -> None:
    """Chunks, a shared prefix, finishes, aborts, retractions and idle replicas around the fault."""
    kind = data.draw(
        st.sampled_from([kind for kind in KINDS if "drafts_early" not in dict(kind.changes)]), label="kind"
    )
    place = data.draw(st.sampled_from(kind.places), label="place")
    plan = busy(*place, **({"overlap": overlap, "seed": seed} | dict(kind.changes)))
    assert_reported(_injected(kind, plan, seed))


def _injected(kind: FaultKind, plan: Scenario, seed: int) -> Injected:
    try:
        return inject_into(kind, plan, seed)
    except UnsuitableError:
        reject()


def test_every_rule_of_the_format_has_a_fault() -> None:
    """Rules of fields come from the field table; the others are those of SPEC sections 6 to 8."""
    of_fields = {field.rule for field in FIELDS if field.rule}
    of_events = {"init-config", "skipped-event", "sync-ineffective", "sync-overridden", "sync-group"}
    of_ranks = {
        "commit-arithmetic",
        "sequence-continuity",
        "anchor-continuity",
        "plan-bound",
        "accept-derivation",
        "path-derivation",
        "out-token-derivation",
        "position-arithmetic",
        "kv-alias",
    }

    assert {kind.rule for kind in KINDS} == of_fields | of_events | of_ranks


def test_every_invariant_breaks_on_a_replica_of_one_rank_too() -> None:
    alone = {kind.rule for kind in KINDS if kind.everyone and any(place == "one" for place, _ in kind.places)}

    assert len(alone) == 9
