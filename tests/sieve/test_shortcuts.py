"""Shortcuts for what most traces look like say the same as the long way round."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from simulator import write_run

from divtrace.events import Event
from divtrace.sieve import cursor as reading
from divtrace.sieve import lockstep
from divtrace.sieve.cursor import Cursor
from divtrace.sieve.plain import GOOD, PlainRequest
from divtrace.sieve.rows import Rows
from divtrace.sieve.slots import SHARED
from divtrace.trace import compression, lines
from divtrace.trace.discover import discover
from sieve.sieving import changed, loaded, sieved

NAMES = [
    *(
        "draft_tokens",
        "draft_root",
        "num_draft_tokens",
        "verify_len",
        "seq_len",
        "positions",
        "target_tokens",
        "branch",
    ),
    *("correct_len", "bonus", "accept_path", "commit_len", "new_seq_len", "out_tokens", "finished", "stage"),
]


def a_round(rng: Random, number: int, length: int, root: int) -> list[Event]:
    """The records of a good round."""
    drafts = [rng.randrange(20) for _ in range(4)]
    correct = rng.randrange(5)
    tokens = [*drafts[:correct], *(20 + rng.randrange(20) for _ in range(5 - correct))]
    if correct < 4 and rng.random() < 0.1:
        tokens[correct] = drafts[correct]  # one more could have been accepted
    where = list(range(length, length + 5))
    made: list[dict[str, Any]] = [
        {"stage": "draft", "draft_tokens": drafts, "draft_root": root, "num_draft_tokens": 5},
        {"stage": "verify", "verify_len": 5},
        {"stage": "verify", "seq_len": length, "positions": where, "kv_positions": where},
        {"stage": "verify", "target_tokens": tokens, "branch": "greedy"},
        {"stage": "accept", "correct_len": correct, "bonus": tokens[correct], "accept_path": list(range(correct + 1))},
        {
            "stage": "commit",
            "commit_len": correct + 1,
            "seq_len": length,
            "new_seq_len": length + correct + 1,
            "out_tokens": tokens[: correct + 1],
            "finished": "",
        },
    ]
    return [Event(req="a", round=number, **one) for one in made]


def change(rng: Random, events: list[Event]) -> None:
    """Have one record say something else, or say more or less than it should."""
    event = rng.choice(events)
    name = rng.choice(NAMES)
    value = getattr(event, name)
    if name == "stage":
        events[:] = rng.sample(events, len(events))
    elif value is None or rng.random() < 0.2:
        setattr(event, name, rng.choice([None, getattr(rng.choice(events), name)]))
    elif isinstance(value, int):
        setattr(event, name, value + rng.choice([-6, -1, 1, 4]))
    elif isinstance(value, str):
        setattr(event, name, rng.choice(["", "stop", "sampling"]))
    elif value and rng.random() < 0.5:
        value[rng.randrange(len(value))] += rng.choice([-1, 1])
    else:
        setattr(event, name, value[: rng.randrange(len(value) + 1)])


def state(live: PlainRequest) -> dict[str, Any]:
    hidden = ("drafts", "targets", "width", "verify_len", "correct", "greedy", "laid")  # without a meaning afterwards
    return {name: getattr(live, name) for name in PlainRequest.__slots__ if name not in ("rounds", *hidden)}


@pytest.mark.parametrize("seed", range(40))
def test_a_round_taken_at_once_leaves_what_its_records_leave(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    at_once = PlainRequest._take_at_once
    taken: list[bool] = []

    def counting(self: PlainRequest, *events: Event) -> bool:
        taken.append(at_once(self, *events))
        return taken[-1]

    for _ in range(50):
        extra = rng.choice([1, 1, 1, 2])
        live, slow = PlainRequest("a", 0, extra), PlainRequest("a", 0, extra)
        for one in (live, slow):
            one.begin(3)
            one.new_seq_len, one.last_token = (
                rng.choice([(100, 7), (100, 7), (None, None)])
                if one is live
                else (
                    live.new_seq_len,
                    live.last_token,
                )
            )
        events = a_round(rng, 3, 100, 7)
        for _ in range(rng.choice([0, 1, 1, 2])):
            change(rng, events)
        monkeypatch.setattr(PlainRequest, "_take_at_once", counting)
        bad = live.take(events)
        monkeypatch.setattr(PlainRequest, "_take_at_once", lambda *_: False)
        assert slow.take(events) == bad
        assert state(slow) == state(live)
        if taken and taken[-1]:
            assert (bad, live.answer) == (-1, GOOD)
    assert {True, False} <= set(taken)


def both_ways(monkeypatch: pytest.MonkeyPatch, events: list[Event]) -> tuple[list[int], list[dict[str, Any]]]:
    """What `take` answers with the shortcut and without it, and what it leaves."""
    answers, states = [], []
    for at_once in (PlainRequest._take_at_once, lambda *_: False):
        with monkeypatch.context() as patch:
            patch.setattr(PlainRequest, "_take_at_once", at_once)
            live = PlainRequest("a", 0, 1)
            live.begin(3)
            live.new_seq_len, live.last_token = 100, 7
            answers.append(live.take(events))
            states.append(state(live))
    return answers, states


def test_what_another_record_should_have_said_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    good = PlainRequest("a", 0, 1)
    good.number, good.new_seq_len, good.last_token = 3, 100, 7
    assert good._take_at_once(*a_round(Random(2), 3, 100, 7))
    found = 0
    for place in range(6):
        for name in NAMES[:-1]:
            values = [getattr(event, name) for event in a_round(Random(2), 3, 100, 7)]
            for value in [one for one in values if one is not None and values[place] is None]:
                events = a_round(Random(2), 3, 100, 7)
                setattr(events[place], name, value)
                answers, states = both_ways(monkeypatch, events)
                assert answers[0] == answers[1], (place, name)
                assert states[0] == states[1], (place, name)
                found += answers[0] >= 0
    assert found > 15


def test_a_layout_that_does_not_go_on_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    events = a_round(Random(2), 3, 100, 7)
    events[2] = Event(stage="verify", req="a", round=3, seq_len=101, positions=list(range(101, 106)))

    answers, states = both_ways(monkeypatch, events)

    assert answers == [2, 2]
    assert states[0] == states[1]


@pytest.mark.parametrize("seed", range(40))
def test_slots_laid_and_cut_in_one_go_end_up_as_one_by_one(seed: int) -> None:
    rng = Random(seed)
    ranks = (0, 1)
    told: list[list[tuple[str, int | None]]] = [[], []]
    both = [Rows(ranks, lambda req, step, known=known: known.append((req, step))) for known in told]  # type: ignore[misc]
    lives = [{name: PlainRequest(name, 0, 1) for name in "abcd"} for _ in both]
    if rng.random() < 0.2:
        for some in lives:
            some["a"].slot_index = SHARED
    lengths = dict.fromkeys("abcd", 10)
    fresh = 0
    for step in range(40):
        events: list[tuple[int, Event]] = []
        others: dict[int, list[int]] = {}
        for req in "abcd":
            first = lengths[req]
            where = list(range(first, first + 5))
            start = fresh if rng.random() < 0.9 else rng.randrange(fresh + 1)
            fresh += 5
            slots = list(range(start, start + 5))
            if rng.random() < 0.1:
                rng.choice([where, slots])[rng.randrange(5)] += rng.choice([-1, 1, 70_000])
            events.append((len(events), Event(stage="verify", req=req, step=step, kv_positions=where, kv_slots=slots)))
            if rng.random() < 0.8:
                others[len(events) - 1] = [slot + 1000 for slot in slots][: rng.choice([5, 5, 5, 5, 4])]
            if rng.random() < 0.9:
                lengths[req] = first + rng.randrange(7)
            events.append((len(events), Event(stage="commit", req=req, step=step, new_seq_len=lengths[req])))
        rng.shuffle(events)
        both[0].lay_and_cut(events, lives[0], ranks, [others])
        for number, event in events:
            live = lives[1][event.req or ""]
            if event.kv_slots is not None:
                both[1].lay(event, live, ranks, [event.kv_slots, others.get(number, event.kv_slots)])
            if event.new_seq_len is not None:
                both[1].cut(live, ranks, event.new_seq_len)
        assert told[0] == told[1]
        for rank in ranks:
            assert both[0]._owners[rank] == both[1]._owners[rank]
        for req in "abcd":
            one, other = lives[0][req], lives[1][req]
            assert (one.windows, one.contested, one.slot_index) == (other.windows, other.contested, other.slot_index)
    assert told[0]


def line(seq: int) -> bytes:
    return b'{"rank":0,"seq":%d,"ts":5,"step":1,"stage":"host","site":"beat"}' % seq


def test_few_lines_that_are_left_begin_the_next_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lines, reading):
        monkeypatch.setattr(module, "BLOCK", 400)
    monkeypatch.setattr(compression, "_READ", 400)
    first, second = tmp_path / "rank0-1.jsonl", tmp_path / "rank0-2.jsonl"
    first.write_bytes(b"\n".join(map(line, range(20))) + b"\n")
    second.write_bytes(b"\n".join(map(line, range(20, 30))) + b"\n")
    cursor = Cursor(0, 0, sorted(discover([tmp_path]).sources, key=lambda source: source.name))

    assert cursor.fill()
    whole = len(cursor.lines)
    cursor.join(3)  # more than that are left
    assert len(cursor.lines) == whole
    cursor.index = cursor.pos = whole - 2
    cursor.join(3)

    assert cursor.index == 0
    assert cursor.lines[:3] == [line(whole - 2), line(whole - 1), line(whole)]
    assert cursor.text == b"\n".join(cursor.lines)
    seen = [line(seq) for seq in range(whole - 2)]
    while cursor.fill():
        cursor.join(1000)
        left = cursor.lines[cursor.index :]
        assert cursor.reading.line_of(cursor.pos)[1] in (len(seen) + 1, len(seen) - 19)
        seen += left
        cursor.pos += len(left)
        cursor.index += len(left)
    assert seen == [line(seq) for seq in range(30)]
    assert [cursor.reading.line_of(pos)[1] for pos in range(30)] == [*range(1, 21), *range(1, 11)]
    assert [cursor.reading.line_of(pos)[0].name for pos in (0, 19, 20, 29)] == [first.name] * 2 + [second.name] * 2


def test_lines_that_end_a_file_are_not_joined_with_the_next_file(tmp_path: Path) -> None:
    for number in range(2):
        lines_here = map(line, range(10 * number, 10 * number + 10))
        (tmp_path / f"rank0-{number}.jsonl").write_bytes(b"\n".join(lines_here) + b"\n")
    cursor = Cursor(0, 0, sorted(discover([tmp_path]).sources, key=lambda source: source.name))
    assert cursor.fill()
    cursor.index = cursor.pos = 9

    for _ in range(3):
        cursor.join(3)

    assert cursor.lines[cursor.index :] == [line(9)]
    assert cursor.place()[0] == "rank0-0.jsonl"
    cursor.index = cursor.pos = 10
    assert cursor.fill()
    assert cursor.lines[0] == line(10)
    assert [cursor.reading.line_of(pos)[1] for pos in (9, 10)] == [10, 1]


@pytest.mark.parametrize("seed", range(12))
def test_joined_blocks_are_judged_as_by_loading(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank's lines are longer than the other's, so that their blocks never end together."""
    run = changed([("tp2", "eagle"), ("tp2-dp2", "eagle")][seed % 2], seed)
    run = run.edited(lambda rank, record: record if rank else {**record, "pool_free": 123_456_789})
    folder = write_run(run, tmp_path / "trace", "jsonl")
    for module in (lines, reading):
        monkeypatch.setattr(module, "BLOCK", 3000)
    monkeypatch.setattr(compression, "_READ", 3000)
    monkeypatch.setattr(lockstep, "_FEW_LEFT", 8)
    joined: list[int] = []
    join = Cursor.join

    def counting(self: Cursor, few: int) -> None:
        before = self.lines
        join(self, few)
        joined.append(self.lines is not before)

    monkeypatch.setattr(Cursor, "join", counting)

    assert sieved(folder) == loaded(folder)
    assert any(joined)


def test_lines_that_are_long_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a file of nothing but long lines would be held as a whole."""
    for module in (lines, reading):
        monkeypatch.setattr(module, "BLOCK", 100)
    monkeypatch.setattr(compression, "_READ", 100)
    (tmp_path / "rank0.jsonl").write_bytes(b"\n".join(map(line, range(20))) + b"\n")
    cursor = Cursor(0, 0, discover([tmp_path]).sources)

    assert cursor.fill()
    for _ in range(30):
        cursor.join(64)

    assert sum(map(len, cursor.lines)) < 300


@pytest.mark.parametrize(
    ("place", "name", "value"), [(0, "draft_parents", [0, 1, 2, 3]), (0, "n", 1), (4, "cap_trim_len", 1)]
)
def test_what_only_whole_records_have_is_seen(
    place: int, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of forked requests may hold records that were decoded with all fields."""
    events = a_round(Random(2), 3, 100, 7)
    setattr(events[place], name, value)

    answers, states = both_ways(monkeypatch, events)

    assert answers == [place, place]
    assert states[0] == states[1]
