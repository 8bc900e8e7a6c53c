"""A conversion analyses to the report of what was converted, damage, places and all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyarrow import parquet
from simulator.files import write_run
from simulator.run import simulate
from simulator.scenarios import scenario
from trace_files import event, meta, write

from divtrace.convert import writer
from divtrace.convert.run import convert
from divtrace.errors import UsageError
from divtrace.trace.load import load
from sieve.sieving import changed, loaded, sieved

FIXTURES = Path(__file__).parents[2] / "fixtures"
FOLDERS = sorted(folder.name for folder in FIXTURES.iterdir() if folder.is_dir())


def converted(folder: Path, out: Path) -> Path:
    convert([folder], out)
    return out


@pytest.mark.parametrize("name", FOLDERS)
def test_fixtures_keep_their_report(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    shutil.copytree(FIXTURES / name, folder)
    assert loaded(converted(folder, tmp_path / "out")) == loaded(folder)


@pytest.mark.parametrize("seed", range(3))
def test_small_windows_are_sieved(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "WINDOW", 30)
    monkeypatch.setattr(writer, "ROW_GROUP", 8)
    write_run(changed(("tp2-dp2", "eagle"), seed), tmp_path / "in")
    out = converted(tmp_path / "in", tmp_path / "out")
    assert len(parquet.ParquetFile(out / "rank0.parquet").metadata.to_dict()["row_groups"]) > 3
    assert sieved(out) == loaded(tmp_path / "in")


def test_damage_travels(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    head = meta(rank=0, parallel={"tp_size": 1}, dropped=3)
    write(
        folder, "rank0.jsonl",
        head, event(0, rank=0), b"{not json", event(3, rank=0, unheard_of=1), event(5, rank=0), event(5, rank=0),
        event(4, rank=0, decided_on=7), event(6, rank=0, decided_on=7.0, extra={"control.x": [1, "<b>"]}),
    )  # fmt: skip
    (folder / "notes.txt").write_text("ignored")
    out = converted(folder, tmp_path / "out")
    before, after = load([folder]), load([out])
    assert after == before
    assert before.duplicates == before.bad_lines == before.ignored_files == 1
    assert loaded(out) == loaded(folder)


def test_a_stream_in_order_keeps_its_damage(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(
        folder,
        "a.jsonl",
        meta(rank=2),
        event(4, rank=2, step=4),
        b"garbage",
        *(event(seq, rank=2, step=seq, new=seq) for seq in (6, 9, 10)),
    )
    out = converted(folder, tmp_path / "out")
    assert load([out]) == load([folder])
    assert sieved(out) == loaded(folder)


def test_records_without_seq_keep_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "rank0.jsonl", *(event(None, rank=0, req=req) for req in "BAC"), b"garbage")
    assert load([converted(folder, tmp_path / "out")]) == load([folder])


def test_hostile_ids_and_large_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    ids = ["", "::error::", "</script>\x00\x1b[31m", "ü" * 5000, '"\\']
    tokens = [[2**64 - 1], [-(2**63)], [1], [], [2**63]]
    lines = [
        event(seq, rank=0, round=seq, req=req, stage="draft", draft_tokens=token, correct_len=None)
        for seq, (req, token) in enumerate(zip(ids, tokens, strict=True))
    ]
    write(folder, "rank0.jsonl", *lines)
    out = converted(folder, tmp_path / "out")
    assert load([out]) == load([folder])


def test_others_read_a_plain_trace(tmp_path: Path) -> None:
    run = simulate(scenario("tp2", "eagle"))
    write_run(run, tmp_path / "in")
    table = parquet.read_table(converted(tmp_path / "in", tmp_path / "out") / "rank1.parquet")
    rows = sorted(table.to_pylist(), key=lambda row: row["seq"])
    assert [row["site"] for row in rows] == [record.get("site") for record in run.records[1]]
    assert {row["rank"] for row in rows} == {1}


def test_requests_lie_together(tmp_path: Path) -> None:
    write_run(simulate(scenario("tp2", "eagle")), tmp_path / "in")
    column = parquet.read_table(converted(tmp_path / "in", tmp_path / "out") / "rank0.parquet")["req"].to_pylist()
    changes = [req for before, req in zip([object(), *column], column, strict=False) if before != req]
    assert len(changes) == len(set(column))


def test_a_conversion_is_converted_again(tmp_path: Path) -> None:
    write_run(simulate(scenario("tp2", "eagle")), tmp_path / "in")
    first = converted(tmp_path / "in", tmp_path / "first")
    assert loaded(converted(first, tmp_path / "second")) == loaded(tmp_path / "in")


def test_nothing_is_overwritten_or_left_behind(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "rank0.jsonl", event(0), event(1))
    out = tmp_path / "out"
    out.mkdir()
    (out / "rank0.parquet").write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already"):
        convert([folder], out)
    assert [path.name for path in out.iterdir()] == ["rank0.parquet"]
    with pytest.raises(UsageError, match="lies in the input"):
        convert([folder], folder / "out")
