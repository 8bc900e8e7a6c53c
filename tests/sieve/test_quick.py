"""Blocks of usual lines: most of a plain trace goes that way, and whatever one record says otherwise is still found."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from simulator import write_run
from simulator.files import Form
from simulator.run import Run, simulate
from simulator.scenarios import busy, scenario

from divtrace.sieve import lockstep
from divtrace.sieve.quick import Quick
from divtrace.sieve.run import _tasks
from divtrace.sieve.slots import SHARED, SlotBytes
from divtrace.sieve.survey import survey
from divtrace.sieve.task import sieve_replica
from divtrace.sieve.usual import UsualLines, whole_event
from divtrace.trace.discover import discover
from divtrace.trace.records import decode_line
from divtrace.walk.settings import GroupFlags
from sieve.sieving import changed, loaded, sieved

PLACES = [("tp2", "eagle"), ("tp4", "eagle"), ("tp2-dp2", "eagle"), ("tp2", "ngram"), ("tp2", "eagle-tree")]


def usual(run: Run) -> Run:
    """The run without `extra`, in which these ranks differ all the time, and with `seq` of four digits."""

    def edited(_rank: int, record: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in record.items() if name != "extra"}
        return kept | {"seq": record["seq"] + 1000}

    return run.edited(edited)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "_FEWEST", 1)
    monkeypatch.setattr(lockstep, "_WIDEST", 12)
    monkeypatch.setattr(lockstep.Lockstep, "_window", 12)


@pytest.mark.parametrize("seed", range(60))
def test_one_changed_record_is_judged_as_by_loading(seed: int, tmp_path: Path) -> None:
    folder = write_run(usual(changed(PLACES[seed % len(PLACES)], seed)), tmp_path / "trace", "jsonl")

    assert sieved(folder) == loaded(folder)


def test_most_records_pass_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would say nothing about them."""
    taken: list[int] = []
    in_rounds: list[int] = []
    block, rounds = Quick._take_usual, Quick._take_rounds

    def counting(self: Quick, events: Any, alike: Any) -> None:
        taken.append(len(events))
        block(self, events, alike)

    def counting_rounds(self: Quick, events: Any, alike: Any) -> bool:
        done = rounds(self, events, alike)
        in_rounds.append(done * len(events))
        return done

    monkeypatch.setattr(Quick, "_take_usual", counting)
    monkeypatch.setattr(Quick, "_take_rounds", counting_rounds)
    run = usual(simulate(busy()))
    sieved(write_run(run, tmp_path / "busy", "jsonl"))
    assert sum(taken) > 0.8 * len(run.records[0])

    run = usual(simulate(scenario()))
    sieved(write_run(run, tmp_path / "quiet", "jsonl"))
    assert sum(in_rounds) > 0.2 * len(run.records[0])


@pytest.mark.parametrize("rare", ["extra", "error", "note", "n", "draft_parents", "unknown"])
def test_lines_with_rare_fields_are_no_usual_ones(rare: str) -> None:
    values = {"extra": {"info.a": 1}, "error": "x", "note": "x", "n": 1, "draft_parents": [0], "unknown": 1}
    plain = b'{"rank":0,"seq":1,"ts":2,"step":3,"stage":"draft","req":"a","round":1,"draft_tokens":[1,2]}'
    odd = json.dumps({"stage": "draft", "req": "a", "round": 1, rare: values[rare]}).encode()

    lines = UsualLines()

    assert len(lines.decode([plain, plain, odd, plain])) == 2
    assert rare not in lines.fields
    assert len(lines.decode([odd, plain])) == 0


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_numbers_beyond_64_bits_are_left_to_the_careful_path(number: int) -> None:
    assert UsualLines().decode([b'{"stage":"draft","draft_tokens":[1,%d]}' % number]) == []


def test_a_usual_record_becomes_the_same_event() -> None:
    line = b'{"rank":0,"seq":1,"ts":2,"step":3,"stage":"draft","req":"a","round":1,"draft_tokens":[1,2]}'
    (event,) = UsualLines().decode([line])

    assert event.extra is None
    assert event.bonus is None
    assert whole_event(event) == decode_line(line)[0]


def test_fields_of_later_lines_are_learned_as_they_come() -> None:
    lines = UsualLines()
    first, second = b'{"seq":1,"stage":"draft"}', b'{"seq":2,"stage":"accept","bonus":7}'
    assert [event.seq for event in lines.decode([first, first])] == [1, 1]
    assert "bonus" not in lines.fields

    events = lines.decode([first, second, first, b"{", second])

    assert [(event.seq, event.bonus) for event in events] == [(1, None), (2, 7), (1, None)]
    assert whole_event(events[0]) == decode_line(first)[0]
    assert lines.decode([b'{"seq":2,"stage":"accept","bonus":"7"}']) == []
    assert len(UsualLines().decode([b'{"stage":"draft"}'])) == 1


@pytest.mark.parametrize("second", [1, 2])
def test_a_slot_that_was_held_twice_stays_suspect(second: int) -> None:
    """Once one of the two lets go of it, the other may still hold it."""
    slots = SlotBytes()
    assert slots.give([5, 6], 1) == 0
    assert slots.give([5], second) == 1
    slots.free([5], second)
    assert slots.give([5], 3) == SHARED


@pytest.mark.parametrize("seed", range(8))
def test_lines_may_differ_where_the_walk_judges_anyway(seed: int, tmp_path: Path) -> None:
    """One rank goes its own way in every round of a request from some step on."""
    run = usual(simulate(scenario("tp2-dp2", "eagle")))
    rng = Random(seed)
    rank = rng.choice(list(run.ranks))
    first = rng.randrange(100, 104)
    for record in run.records[rank]:
        if record.get("req", "").endswith("a") and record.get("step", 0) >= first and "target_tokens" in record:
            record["target_tokens"] = [token + 1 for token in record["target_tokens"]]
    folder = write_run(run, tmp_path / "trace", "jsonl")

    assert sieved(folder) == loaded(folder)


INVARIANT = (
    "correct_len",
    "bonus",
    "commit_len",
    "new_seq_len",
    "seq_len",
    "draft_root",
    "target_tokens",
    "out_tokens",
)
KEY = ("step", "stage", "site", "req", "round")


@pytest.mark.parametrize("name", INVARIANT)
def test_what_breaks_on_all_ranks_alike_is_found(name: str, tmp_path: Path) -> None:
    """The ranks agree, so only the checks of whole rounds can tell."""
    broken = 0
    for seed in range(6):
        run = usual(simulate(scenario()))
        records = [one for one in run.records[0] if name in one and one["round"]]
        chosen = Random(seed).choice(records)
        for rank in run.ranks:
            for record in run.records[rank]:
                if name in record and [record.get(key) for key in KEY] == [chosen.get(key) for key in KEY]:
                    value = record[name]
                    record[name] = [value[0] + 1, *value[1:]] if isinstance(value, list) else value + 1
        folder = write_run(run, tmp_path / str(seed), "jsonl")
        report = loaded(folder)
        assert sieved(folder) == report
        broken += json.loads(report)["verdict"] == "divergence"
    assert broken >= 3


def test_the_last_agreement_is_none_of_the_lines_that_differ(tmp_path: Path) -> None:
    """In the last step only one request runs, and it has diverged before: that step is no agreement."""
    lines: list[list[bytes]] = [[], []]
    for step in range(1, 40):
        for rank in (0, 1):
            token = 7 + (rank if step > 20 else 0)
            for site in ("a", "b", "c", "d"):
                seq = 1000 + len(lines[rank])
                text = (
                    b'{"rank":%d,"seq":%d,"ts":%d,"step":%d,"stage":"verify","site":"%s","req":"r","round":%d,'
                    b'"target_tokens":[%d]}'
                )
                lines[rank].append(text % (rank, seq, 10**18 + seq, step, site.encode(), step, token))
    for rank, own in enumerate(lines):
        (tmp_path / f"rank{rank}.jsonl").write_bytes(b"\n".join(own) + b"\n")
    files = survey(discover([tmp_path]).sources, None)
    (task,) = _tasks(0, files, GroupFlags())

    assert sieve_replica(task).facts.agreed_step == 20
    assert sieved(tmp_path) == loaded(tmp_path)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_init_event_may_be_the_last_agreement(form: Form, tmp_path: Path) -> None:
    """It has no step, and nothing else comes before a divergence in the very first one."""
    run = simulate(scenario())
    for rank in run.ranks:
        for record in run.records[rank]:
            if record["stage"] == "schedule":
                record["reason"] = f"of rank {rank}"
    folder = write_run(run, tmp_path / "trace", form)
    report = json.loads(loaded(folder))

    assert report["last_agreement"]["stage"] == "init"
    assert sieved(folder) == loaded(folder)


@pytest.mark.parametrize("first", [3, 4, 5])
def test_an_attempt_that_comes_back_is_judged_by_the_walk(first: int, tmp_path: Path) -> None:
    """One rank calls a commit behind a retraction the attempt before: it follows on a round that is steps away."""
    run = usual(simulate(scenario()))
    for rank in run.ranks:
        for record in run.records[rank]:
            if record.get("req") == "r0-a" and (record.get("round") or 0) >= first:
                record["attempt"] = 1
                record["round"] -= first - 1
                if record["stage"] == "commit" and rank == 1 and record["round"] == 3:
                    record["attempt"] = 0
    folder = write_run(run, tmp_path / "trace", "jsonl")

    assert sieved(folder) == loaded(folder)
