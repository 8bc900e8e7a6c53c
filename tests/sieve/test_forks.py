"""Ranks that stay apart: the report lists the first findings, and counts the rest as if all had been judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import simulator.scenarios
from simulator import At, Change, write_run
from simulator.files import Form
from simulator.recorder import Record
from simulator.run import Run, simulate
from simulator.scenario import ALGORITHMS, RequestPlan, Scenario
from simulator.scenarios import TOPOLOGIES

from divtrace.api import Options, analyze, first_divergence
from divtrace.report.model import Report, encode
from divtrace.sieve import lockstep, parted
from divtrace.sieve.columnar import forks as columnar_forks
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.forks import Counted, Forks
from divtrace.sieve.run import _tasks
from divtrace.sieve.survey import survey
from divtrace.sieve.task import sieve_replica
from divtrace.trace.discover import discover
from divtrace.walk.settings import GroupFlags
from sieve.sieving import no_way_around

MOST = 12
STEPS = 14
FORK = 4
"""Step, counted from the first one, in which the target of the last rank of every replica goes its own way."""
EAGLE = ALGORITHMS[0]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "_FEWEST", 1)
    monkeypatch.setattr(lockstep, "_WIDEST", 40)
    monkeypatch.setattr(lockstep.Lockstep, "_window", 40)
    monkeypatch.setattr(parted, "_FEWEST", 1)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests of each replica, in each pass, are counted only behind the first findings."""
    found: list[int] = []
    real = parted.give_back_unconfirmed

    def told(facts: ReplicaFacts, *arguments: Any) -> bool:
        more = real(facts, *arguments)
        found.append(len(facts.parted))
        return more

    monkeypatch.setattr("divtrace.sieve.run.give_back_unconfirmed", told)
    return found


def forked(topology: str = "tp2", *, late: int = 0, **changes: Any) -> Run:
    """A run in which ranks part at one step for good; the first `late` requests only some steps later."""
    sizes = TOPOLOGIES[topology]
    requests = tuple(
        tuple(RequestPlan(f"r{index}-{name}", 20 + 3 * number, 500) for number, name in enumerate("abc"))
        for index in range(sizes.data)
    )
    plan = Scenario(topology=sizes, algorithm=EAGLE, requests=requests, steps=STEPS, extras=False).but(**changes)
    own = {max(sizes.replica_ranks(index)) for index in range(sizes.data)}
    late_ones = {one.name for row in requests for one in row[:late]}

    def where(at: At) -> bool:
        begins = plan.first_step + FORK + (4 if at.req in late_ones else 0)
        return at.field == "target_tokens" and at.step == begins

    def other(tokens: Any, _at: At) -> list[int]:
        return [*tokens[:-1], tokens[-1] + 1] if len(tokens) == 1 else [tokens[0] + 1, *tokens[1:]]

    return simulate(plan, Change(where, frozenset(own), other, once=False))


def reports(run_: Run, folder: Path, most: int = MOST, form: Form = "jsonl") -> tuple[Report, Report]:
    """The reports with and without the sieve."""
    write_run(run_, folder, form)
    with no_way_around():
        sieved = analyze(folder, Options(sieve_from=0, jobs=1, max_findings=most))
    return sieved, analyze(folder, Options(sieve_from=1 << 60, max_findings=most))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("topology", ["tp2", "tp3", "tp4", "tp2-dp2", "tp2-cp2"])
def test_findings_behind_the_listed_ones_are_counted(
    topology: str, form: Form, tmp_path: Path, counted: list[int]
) -> None:
    sieved, loaded = reports(forked(topology), tmp_path, form=form)

    assert encode(sieved) == encode(loaded)
    assert sum(sieved.findings_left_out.values()) > 50
    assert counted
    assert min(counted) == 3


HABITS: dict[str, dict[str, Any]] = {
    "overlap": {"overlap": True},
    "drafts-early": {"drafts_early": True},
    "draft-per-forward": {"draft_per_forward": True},
    "adaptive": {"adaptive": True},
    "completions": {"completions": True},
    "extras": {"extras": True},
    **{name: {"algorithm": algorithm} for name, algorithm in simulator.scenarios.ALGORITHMS.items()},
}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("habit", sorted(HABITS))
def test_engines_of_other_habits_are_counted_or_judged(habit: str, form: Form, tmp_path: Path) -> None:
    sieved, loaded = reports(forked(**HABITS[habit]), tmp_path, form=form)

    assert encode(sieved) == encode(loaded)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_requests_that_part_later_are_judged(form: Form, tmp_path: Path, counted: list[int]) -> None:
    sieved, loaded = reports(forked(late=1), tmp_path, form=form)

    assert encode(sieved) == encode(loaded)
    # Columns are looked at many steps at a time, and there the third one parts before there are findings enough.
    assert counted == [2 if form == "jsonl" else 3]


def test_all_findings_are_judged_if_all_are_listed(tmp_path: Path, counted: list[int]) -> None:
    sieved, loaded = reports(forked(), tmp_path, most=0)

    assert encode(sieved) == encode(loaded)
    assert counted == [0]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_the_walk_counts_otherwise_is_judged(
    form: Form, tmp_path: Path, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk confirms the count where both have looked: here the count is wrong, and nothing of it is used."""
    real = Forks.counted

    def miscounted(self: Forks) -> dict[str, Counted]:
        return {req: msgspec.structs.replace(one, before=one.before | {"gate": 1}) for req, one in real(self).items()}

    monkeypatch.setattr(Forks, "counted", miscounted)
    sieved, loaded = reports(forked(), tmp_path, form=form)

    assert encode(sieved) == encode(loaded)
    assert counted == [0, 0]


def _drop(records: list[Record], index: int, _rng: Random) -> None:
    del records[index]


def _lose(records: list[Record], index: int, _rng: Random) -> None:
    """Take a record away as if it had never been written."""
    del records[index]
    for record in records[index:]:
        record["seq"] -= 1


def _repeat(records: list[Record], index: int, _rng: Random) -> None:
    records.insert(index, dict(records[index]))
    for record in records[index + 1 :]:
        record["seq"] += 1


def _finish(records: list[Record], index: int, _rng: Random) -> None:
    if "finished" in records[index]:
        records[index]["finished"] = "length"


def _retract(records: list[Record], index: int, _rng: Random) -> None:
    if records[index].get("decision"):
        records[index]["decision"] = "retract"


def _break(records: list[Record], index: int, rng: Random) -> None:
    """Change one number of a record."""
    record = records[index]
    names = [name for name, value in record.items() if isinstance(value, int) and name not in ("seq", "ts", "rank")]
    name = rng.choice(sorted(names))
    record[name] += rng.choice([-1, 1, 2])


def _shorten(records: list[Record], index: int, rng: Random) -> None:
    record = records[index]
    names = sorted(name for name, value in record.items() if isinstance(value, list) and value)
    if names:
        record[rng.choice(names)].pop()


def _clash(records: list[Record], index: int, _rng: Random) -> None:
    """Give a request slots that another one was given in the same step."""
    layouts = [record for record in records[:index] if record.get("kv_slots") and record["stage"] == "verify"]
    if len(layouts) > 1 and layouts[-1]["step"] == layouts[-2]["step"]:
        layouts[-1]["kv_slots"][0] = layouts[-2]["kv_slots"][0]


def _pad(records: list[Record], index: int, _rng: Random) -> None:
    """Let lists be longer than what is compared of them, from here on."""
    for record in records[index:]:
        for name in ("out_tokens", "accept_path"):
            if record.get(name):
                record[name].append(7)


def _follow_sync(records: list[Record], index: int, rng: Random) -> None:
    """Let verify records tell the source of a sync, from here on: the right one or a wrong one."""
    source = rng.randrange(2)
    for record in records[index:]:
        if record["stage"] == "verify":
            record["src"] = source


EDITS: list[Callable[[list[Record], int, Random], None]] = [
    _drop,
    _lose,
    _repeat,
    _finish,
    _retract,
    _break,
    _shorten,
    _clash,
    _pad,
    _follow_sync,
]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("seed", range(120))
def test_whatever_else_happens_the_count_is_that_of_the_walk(seed: int, form: Form, tmp_path: Path) -> None:
    rng = Random(seed)
    changed = forked(["tp2", "tp3", "tp2-dp2"][seed % 3]).copy()
    edit = EDITS[seed % len(EDITS)]
    everywhere = rng.random() < 0.3
    length = len(changed.records[0])
    index = rng.randrange(length // 3, length)
    for rank in changed.ranks if everywhere else [rng.choice(changed.ranks)]:
        if index < len(changed.records[rank]):
            edit(changed.records[rank], index, Random(seed))

    sieved, loaded = reports(changed, tmp_path, form=form)

    assert encode(sieved) == encode(loaded)


def test_whole_rounds_of_columns_are_counted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would say nothing about them."""
    taken: list[int] = []
    real = columnar_forks._Counting.take_in

    def counting(self: columnar_forks._Counting) -> None:
        taken.append(self._mask.true_count)
        real(self)

    monkeypatch.setattr(columnar_forks._Counting, "take_in", counting)
    reports(forked(), tmp_path, form="parquet")

    assert sum(taken) > 100


def _late_step(run_: Run) -> int:
    """A step whose findings are only counted."""
    return run_.scenario.first_step + STEPS - 3


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_invariant_that_breaks_on_one_rank_only_is_found(form: Form, tmp_path: Path, counted: list[int]) -> None:
    """Rank 1's drafts are those of rank 0, so that nothing differs there; but they do not go on from its own tokens."""
    changed = forked().copy()
    wanted = {"stage": "draft", "step": _late_step(changed), "req": "r0-b"}
    (mine,), (other,) = changed.find(1, **wanted), changed.find(0, **wanted)
    assert mine["draft_root"] != other["draft_root"]
    mine.update(draft_root=other["draft_root"], draft_tokens=other["draft_tokens"])

    sieved, loaded = reports(changed, tmp_path, form=form)

    assert encode(sieved) == encode(loaded)
    assert loaded.findings_left_out["anchor-continuity"] == 1
    assert counted == [2]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_slot_that_two_requests_hold_is_found(form: Form, tmp_path: Path, counted: list[int]) -> None:
    """All ranks have it so, in records that do not differ: of a request on which ranks had parted and met again."""
    changed = forked().copy()
    wanted = {"stage": "verify", "step": _late_step(changed)}
    for rank in changed.ranks:
        first, second = [one for one in changed.find(rank, **wanted) if one.get("kv_slots")][:2]
        (model,) = [one for one in changed.find(0, **wanted, req=second["req"]) if one.get("kv_slots")]
        second.update({name: model[name] for name in ("seq_len", "positions", "kv_positions")})
        second["kv_slots"][0] = first["kv_slots"][0]

    sieved, loaded = reports(changed, tmp_path, form=form)

    assert encode(sieved) == encode(loaded)
    assert counted == [1]


@pytest.mark.parametrize("way", ["blocks", "lines", "records"])
def test_rows_of_a_forked_request_live_as_long_as_their_own_rank_says(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 commits fewer rows of one request than rank 0, and gives their slots to others, on which all agree yet."""
    if way != "blocks":
        monkeypatch.setattr(lockstep, "_FEWEST", 1 << 20)
    if way == "records":
        monkeypatch.setattr(lockstep.Lockstep, "_fast", lambda *_: None)
    changed = forked(late=2)
    folder = write_run(changed, tmp_path, "jsonl")
    (task,) = _tasks(0, survey(discover([folder]).sources, None), GroupFlags())

    suspects = sieve_replica(task).facts.suspects

    assert suspects["r0-a"] == changed.scenario.first_step + FORK + 4
    assert suspects["r0-c"] == changed.scenario.first_step + FORK


@pytest.mark.parametrize("lost", ["gap", "dropped"])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_nothing_is_counted_where_records_are_missing(
    lost: str, form: Form, tmp_path: Path, counted: list[int]
) -> None:
    changed = forked().copy()
    for rank in changed.ranks:
        if lost == "gap":
            for record in changed.records[rank]:
                record["seq"] += (record.get("step") or 0) >= _late_step(changed)
        else:
            changed.metas[rank]["dropped"] = 1

    sieved, loaded = reports(changed, tmp_path, form=form)

    assert encode(sieved) == encode(loaded)
    assert set(counted) == {0}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("late", [0, 1])
def test_one_request_of_many_that_parted_is_answered_as_by_loading(
    late: int, form: Form, tmp_path: Path, counted: list[int]
) -> None:
    """Also one that parts only where the findings of the others are counted: then all of them are judged."""
    folder = write_run(forked(late=late), tmp_path, form)
    for req in ("r0-a", "r0-b", "r0-c"):
        with no_way_around():
            sieved = first_divergence([folder], req, Options(sieve_from=0, jobs=1, max_findings=MOST))

        assert counted[0]
        assert (counted[-1] == 0) is (late == 1 and req == "r0-a" and form == "jsonl")
        counted.clear()
        assert sieved == first_divergence([folder], req, Options(sieve_from=1 << 60))
        assert sieved.diverged
