"""Traces that lack something far from the fault, or lack identity fields, still lead to the fault."""

from __future__ import annotations

import random
from typing import Any

from faults import KINDS, Injected, UnsuitableError
from faults.checking import MODEST, analyze_run, inject_into
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from simulator import Record, Run
from simulator.scenarios import scenario

from divtrace.report.model import Finding

REACH = 3
"""What is lost lies so many steps before or behind the fault."""
LATE_KINDS = [
    kind for kind in KINDS if "init" not in kind.name and "prefix" not in kind.name and "first" not in kind.name
]
"""Faults with steps before them."""
EVENT_KINDS = [kind for kind in KINDS if not kind.name.startswith("skipped")]
"""What is skipped is told by `seq` and `step`; without them nothing is."""


def key(finding: Any) -> tuple[Any, ...]:
    return finding.rule, finding.req, finding.attempt, finding.round, finding.stage, finding.site, finding.phase


def some_fault(data: st.DataObject, kinds: list[Any], seed: int, **habits: Any) -> Injected:
    kind = data.draw(st.sampled_from(kinds), label="kind")
    place = data.draw(st.sampled_from(kind.places), label="place")
    try:
        return inject_into(kind, scenario(*place, **({"seed": seed} | habits | dict(kind.changes))), seed)
    except UnsuitableError:
        reject()


def without_far_events(run: Run, step: int, rng: random.Random) -> Run:
    """Every rank lost something: its beginning, its end, some events before the fault, or nothing."""
    run = run.copy()
    for rank in run.ranks:
        records = run.records[rank]
        early = [i for i, record in enumerate(records) if record.get("step", 0) < step - REACH + 1]
        late = [i for i, record in enumerate(records) if record.get("step", 0) >= step + REACH]
        how = rng.choice(["ring", "gaps", "cut", "whole"])
        if how == "ring" and early:
            run.records[rank] = records[rng.choice(early) :]
        elif how == "gaps" and early:
            lost = set(rng.sample(early, min(3, len(early))))
            run.records[rank] = [record for i, record in enumerate(records) if i not in lost]
        elif how == "cut" and late:
            run.records[rank] = records[: rng.choice(late)]
    return run


@settings(MODEST, max_examples=25)
@given(data=st.data(), seed=st.integers(0, 999))
def test_what_is_lost_far_from_the_fault_does_not_hide_it(data: st.DataObject, seed: int) -> None:
    one = some_fault(data, LATE_KINDS, seed, steps=11)
    assert one.expected.step is not None
    first = analyze_run(without_far_events(one.run, one.expected.step, random.Random(seed))).first

    assert first is not None
    assert key(first) == key(one.expected)
    assert first.step == one.expected.step
    assert one.expected.ranks is None or first.ranks == one.expected.ranks


@settings(MODEST, max_examples=25)
@given(data=st.data(), seed=st.integers(0, 999), lacking=st.sets(st.sampled_from(["seq", "ts", "step"]), min_size=1))
def test_identity_fields_that_nobody_records_do_not_hide_a_fault(
    data: st.DataObject, seed: int, lacking: set[str]
) -> None:
    one = some_fault(data, EVENT_KINDS, seed)

    def forget(_rank: int, record: Record) -> Record:
        return {name: value for name, value in record.items() if name not in lacking}

    first: Finding | None = analyze_run(one.run.edited(forget)).first
    assert first is not None
    assert key(first) == key(one.expected)
    assert first.step == (None if "step" in lacking else one.expected.step)
