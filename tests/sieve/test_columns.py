"""Parquet that passes through the sieve gives the report that loading it gives, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from simulator.files import write_run
from simulator.run import simulate
from simulator.scenarios import scenario

from divtrace.sieve.columnar.alike import different_rows
from divtrace.sieve.columnar.judge import Judge
from sieve.sieving import changed, loaded, sieved

PLACES = [
    *(("tp2", algorithm) for algorithm in ("eagle", "eagle-tree", "dspark", "dspark-unsynced", "ngram")),
    *((topology, "eagle") for topology in ("tp3", "cp2", "tp2-dp2", "tp2-pp2")),
]


@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_clean_runs_pass_as_they_are_loaded(place: tuple[str, str], tmp_path: Path) -> None:
    write_run(simulate(scenario(*place)), tmp_path, "parquet")
    assert sieved(tmp_path) == loaded(tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_value_is_found_as_by_loading(seed: int, tmp_path: Path) -> None:
    write_run(changed(PLACES[seed % len(PLACES)], seed), tmp_path, "parquet")
    assert sieved(tmp_path) == loaded(tmp_path)


def test_rounds_of_a_chain_are_checked_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    real = Judge.take_in

    def counting(judge: Judge) -> None:
        judged.append(judge._rounds.count)
        real(judge)

    monkeypatch.setattr(Judge, "take_in", counting)
    write_run(simulate(scenario("tp2", "eagle")), tmp_path, "parquet")
    sieved(tmp_path)
    assert sum(judged) > 5


BROKEN = [
    *(("commit", name) for name in ("commit_len", "new_seq_len", "seq_len", "out_tokens")),
    *(("accept", name) for name in ("correct_len", "bonus")),
    *(("verify", name) for name in ("target_tokens", "positions", "seq_len", "kv_positions", "kv_slots")),
    *(("draft", name) for name in ("draft_root", "draft_tokens")),
]


@pytest.mark.parametrize(("stage", "name"), BROKEN)
def test_what_breaks_alike_on_all_ranks_is_found(stage: str, name: str, tmp_path: Path) -> None:
    run = simulate(scenario("tp2", "eagle"))
    others = {
        rank: next(one["kv_slots"] for one in records if one.get("kv_slots")) for rank, records in run.records.items()
    }
    for rank, records in run.records.items():
        hit = [one for one in records if one["stage"] == stage and one.get("round") == 3 and one.get(name) is not None]
        value = hit[-1][name]
        if name == "kv_slots":
            hit[-1][name] = others[rank][: len(value)]
        else:
            hit[-1][name] = [item + 1 for item in value] if isinstance(value, list) else value + 1
    write_run(run, tmp_path, "parquet")
    whole = loaded(tmp_path)
    assert sieved(tmp_path) == whole
    if name != "kv_positions":
        assert b'"verdict":"divergence"' in whole.replace(b": ", b":")


@pytest.mark.parametrize("rows", [3, 50])
def test_row_groups_of_any_size(rows: int, tmp_path: Path) -> None:
    write_run(changed(("tp2", "eagle"), 3), tmp_path, "parquet")
    for index, path in enumerate(sorted(tmp_path.iterdir())):
        table = parquet.read_table(path)
        parquet.write_table(table, path, row_group_size=rows + index)
    assert sieved(tmp_path) == loaded(tmp_path)


def test_lost_events_shift_the_rows_of_one_rank(tmp_path: Path) -> None:
    run = simulate(scenario("tp2", "eagle"))
    del run.records[1][40:43]
    write_run(run, tmp_path, "parquet")
    assert sieved(tmp_path) == loaded(tmp_path)


@pytest.mark.parametrize(
    ("one", "two", "unequal", "uneven"),
    [
        ([1, None, 3], [1, 2, 4], [2], [1]),
        ([[1, 2], [3], None, []], [[1, 2], [3, 4], [5], []], [1], [2]),
        ([[1, 2], [1, 2]], [[1, 2], [1, 9]], [1], []),
        (["a", "b", None], ["a", "c", None], [1], []),
    ],
)
def test_rows_that_differ(one: list[object], two: list[object], unequal: list[int], uneven: list[int]) -> None:
    columns = [pa.array(values) for values in (one, two)]
    if pa.types.is_string(columns[0].type):
        columns = [column.dictionary_encode() for column in columns]
    found = [[] if rows is None else rows.to_pylist() for rows in different_rows(*columns)]
    assert found == [unequal, uneven]


def test_large_unsigned_numbers_are_compared_exactly() -> None:
    signed = pa.array([-1, 5], pa.int64())
    unsigned = pa.array([2**64 - 1, 5], pa.uint64())
    rows, _ = different_rows(signed, unsigned)
    assert rows is not None
    assert rows.to_pylist() == [0]
