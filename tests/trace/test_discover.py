"""Which files are traces, what they are called, and what an input may hold besides."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from trace_files import event, jsonl, only, places, seqs, write

from divtrace.errors import NoTraceError, UsageError
from divtrace.trace.discover import discover
from divtrace.trace.load import load
from divtrace.trace.model import Damage


def names(*paths: Path) -> list[str]:
    return [source.name for source in discover(paths).sources]


def test_names_decide_in_a_folder_and_everything_else_is_counted(tmp_path: Path) -> None:
    traces = [
        "a.jsonl",
        "b.NDJSON",
        "c.jsonl.gz",
        "d.ndjson.zst",
        "e.Parquet",
        "f.parquet.GZ",
        "deep/er/g.jsonl",
        ".h.jsonl",
    ]
    others = ["a.jsonl.bak", "rank1.json", "notes.txt", "jsonl", "x.jsonl.xz", "deep/er/README", "y.jsonl~", "z.gz"]
    for name in traces + others:
        write(tmp_path, name, event(0))

    found = discover([tmp_path])

    assert [source.name for source in found.sources] == sorted(traces)
    assert found.ignored_files == len(others)


def test_a_file_named_itself_is_read_whatever_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, "rank7.jsonl.bak", event(0))

    assert list(load([path]).ranks) == [(0, 7)]


def test_a_folder_may_have_the_name_of_a_trace(tmp_path: Path) -> None:
    write(tmp_path, "run.jsonl/rank0.jsonl", event(0))

    assert names(tmp_path) == ["run.jsonl/rank0.jsonl"]


def test_names_are_relative_to_what_all_arguments_share(tmp_path: Path) -> None:
    first = write(tmp_path, "node-a/rank0.jsonl", event(0))
    second = write(tmp_path, "node-b/rank1.jsonl", event(0))

    assert names(tmp_path) == ["node-a/rank0.jsonl", "node-b/rank1.jsonl"]
    assert names(first) == ["rank0.jsonl"]
    assert names(first.parent) == ["rank0.jsonl"]
    assert names(first.parent, second.parent) == names(second, first) == ["node-a/rank0.jsonl", "node-b/rank1.jsonl"]
    assert names(first, second.parent) == ["node-a/rank0.jsonl", "node-b/rank1.jsonl"]


def test_relative_arguments_give_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "run/rank0.jsonl", event(0))
    monkeypatch.chdir(tmp_path / "run")

    assert names(Path()) == names(Path("rank0.jsonl")) == names(Path("../run")) == ["rank0.jsonl"]


def test_a_file_is_read_once_however_many_ways_lead_to_it(tmp_path: Path) -> None:
    path = write(tmp_path, "run/rank0.jsonl", event(0), event(1))
    (tmp_path / "run" / "latest.jsonl").symlink_to("rank0.jsonl")
    (tmp_path / "run" / "again").symlink_to(".")
    (tmp_path / "alias").symlink_to("run")

    traces = load([tmp_path, path, tmp_path / "run", tmp_path / "alias", tmp_path / "run/latest.jsonl", path])

    assert traces.files == ("run/rank0.jsonl",)
    assert (traces.duplicates, seqs(only(traces))) == (0, [0, 1])


@pytest.mark.parametrize("link", ["a-rank9.jsonl", "z-rank9.jsonl"])
def test_the_real_name_wins_over_a_link(tmp_path: Path, link: str) -> None:
    write(tmp_path, "m-rank0.jsonl", event(0))
    (tmp_path / link).symlink_to("m-rank0.jsonl")

    assert load([tmp_path]).files == ("m-rank0.jsonl",)


def test_links_that_form_a_loop_do_not_hang(tmp_path: Path) -> None:
    write(tmp_path, "a/rank0.jsonl", event(0))
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")

    found = discover([tmp_path])

    assert [source.name for source in found.sources] == ["a/rank0.jsonl"]
    assert [(one.file, one.line) for one in found.damage] == [("loop.jsonl", None)]


def test_a_link_to_a_folder_outside_is_followed(tmp_path: Path) -> None:
    write(tmp_path, "elsewhere/rank0.jsonl", event(0))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "node").symlink_to("../elsewhere")

    assert names(tmp_path / "run") == ["node/rank0.jsonl"]


def test_an_unreadable_file_costs_only_itself(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    (tmp_path / "rank1.jsonl").symlink_to("nowhere")

    traces = load([tmp_path])

    assert traces.damage == [Damage("rank1.jsonl", None, "the file cannot be read: No such file or directory")]
    assert (list(traces.ranks), traces.bad_lines) == ([(0, 0)], 0)


def test_what_cannot_be_opened_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    write(tmp_path, "rank1.jsonl", event(0))
    write(tmp_path, "rank3.jsonl", event(0))
    write(tmp_path, "locked/rank2.jsonl", event(0))
    real_open, real_scandir = open, os.scandir

    def refuse_open(path: str, mode: str) -> object:
        if path.endswith("rank1.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, mode)

    def refuse_scandir(path: str) -> object:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return real_scandir(path)

    # The superuser of a container may read everything, so refusal is played.
    monkeypatch.setattr("divtrace.trace.discover.os.access", lambda path, _mode: not path.endswith("rank3.jsonl"))
    monkeypatch.setattr("divtrace.trace.discover.open", refuse_open, raising=False)
    monkeypatch.setattr("divtrace.trace.discover.os.scandir", refuse_scandir)

    traces = load([tmp_path])

    assert traces.damage == [
        Damage("locked", None, "the folder cannot be listed: Permission denied"),
        Damage("rank1.jsonl", None, "the file cannot be read: Permission denied"),
        Damage("rank3.jsonl", None, "the file cannot be read: Permission denied"),
    ]
    assert list(traces.ranks) == [(0, 0)]
    assert "rank3.jsonl" not in traces.files


def test_pipes_and_sockets_in_a_folder_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    os.mkfifo(tmp_path / "rank1.jsonl")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("rank2.jsonl")

    traces = load([tmp_path])

    assert (list(traces.ranks), traces.ignored_files, traces.damage) == ([(0, 0)], 2, [])


def test_a_pipe_named_itself_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "rank4.pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(jsonl([event(0), event(1)])))
    writer.start()

    traces = load([pipe])

    writer.join()
    assert {rank: seqs(trace) for rank, trace in traces.ranks.items()} == {(0, 4): [0, 1]}


def test_names_that_are_no_text_do_not_break_anything(tmp_path: Path) -> None:
    hostile = os.fsencode(tmp_path) + b"/\xff\n::error::-rank3.jsonl"
    Path(os.fsdecode(hostile)).write_bytes(jsonl([event(0)]) + b"garbage\n")

    traces = load([tmp_path])

    name = "\\xff\n::error::-rank3.jsonl"
    assert traces.files == (name,)
    assert places(only(traces)) == [(name, 1)]
    assert [(one.file, one.line) for one in traces.damage] == [(name, 2)]
    assert name.encode()


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace was given"):
        load([])
    with pytest.raises(UsageError, match=r"missing: No such file"):
        load([tmp_path / "missing"])
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(NoTraceError, match=r"no trace in .*; 1 other file ignored") as raised:
        load([tmp_path])
    assert ".jsonl" in (raised.value.hint or "")


def test_no_usable_record_anywhere(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", b"garbage")
    (tmp_path / "rank1.jsonl").touch()

    with pytest.raises(NoTraceError, match=r"no usable record in .*; rank0.jsonl: no usable record"):
        load([tmp_path])


def test_a_file_without_a_usable_record_is_named(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    (tmp_path / "rank1.jsonl").touch()
    write(tmp_path, "rank2.jsonl", b"garbage")
    write(tmp_path, "rank3.jsonl", {"kind": "meta", "rank": 3})
    write(tmp_path, "rank4.jsonl", b"", b"  ")

    traces = load([tmp_path])

    assert [(one.file, one.line, one.what.partition(":")[0]) for one in traces.damage] == [
        ("rank1.jsonl", None, "the file is empty"),
        ("rank2.jsonl", None, "no usable record in this file"),
        ("rank2.jsonl", 1, "not JSON"),
        ("rank3.jsonl", None, "no usable record in this file"),
        ("rank4.jsonl", None, "no usable record in this file"),
    ]
    assert traces.bad_lines == 1
    assert len(traces.files) == 5


def test_progress_rises_to_the_size_of_the_input(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", *(event(seq) for seq in range(3_000)))
    write(tmp_path, "rank1.jsonl.gz", event(0))
    told: list[tuple[int, int]] = []

    load([tmp_path], progress=lambda done, total: told.append((done, total)))

    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert told == sorted(told)
    assert len(told) > 4
