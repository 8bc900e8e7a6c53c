"""`divtrace validate`: every problem by file and line."""

from __future__ import annotations

import json
from pathlib import Path

from cli import traces
from cli.command import Call


def damaged(folder: Path) -> Path:
    """A bad line, an unknown field, a record that stands twice, and a file without any record."""
    traces.clean(folder)
    file = folder / "rank1.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[1] = lines[1].replace('"draft_tokens"', '"draft_token"')
    file.write_text("".join([*lines, lines[3], '{"stage": "verify", "seq": "nine"}\n']), encoding="utf-8")
    (folder / "rank2.jsonl").write_bytes(b"\x00\x01\n")
    return folder


def test_traces_as_they_should_be_exit_0(call: Call, tmp_path: Path) -> None:
    run = call("validate", traces.clean(tmp_path))

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "2 files, 2 ranks, 20 events; 0 problems, 0 bad lines, 0 unknown fields, 0 duplicates\n"


def test_every_problem_is_named_and_exits_2(call: Call, tmp_path: Path) -> None:
    run = call("validate", damaged(tmp_path))

    assert (run.returncode, run.stderr) == (2, "")
    starts = [line.partition(": ")[0] for line in run.stdout.splitlines()]
    assert "rank1.jsonl:13" in starts
    assert "rank2.jsonl:1" in starts
    assert "unknown field draft_token in 1 record" in run.stdout
    assert run.stdout.splitlines()[-1].endswith("2 bad lines, 1 unknown field, 1 duplicate")


def test_an_unknown_field_alone_exits_2(call: Call, tmp_path: Path) -> None:
    file = traces.clean(tmp_path) / "rank0.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace('"bonus"', '"bonuss"'), encoding="utf-8")

    run = call("validate", tmp_path)

    assert run.returncode == 2
    assert "unknown field bonuss in 3 records" in run.stdout


def test_the_json_counts_and_lists_the_same(call: Call, tmp_path: Path) -> None:
    document = json.loads(call("validate", damaged(tmp_path), "--format", "json").stdout)

    assert document["schema"] == "divtrace.validation/1"
    assert (document["files"], document["ranks"], document["events"]) == (3, 2, 20)
    assert document["unknown_fields"] == {"draft_token": 1}
    assert document["duplicates"] == 1
    assert {(one["file"], one["line"]) for one in document["damage"]} >= {("rank1.jsonl", 13), ("rank2.jsonl", 1)}


def test_one_run_of_several_is_picked(call: Call, tmp_path: Path) -> None:
    traces.clean(tmp_path / "monday", run="monday")
    file = traces.clean(tmp_path / "tuesday", run="tuesday") / "rank0.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace('"bonus"', '"bonuss"'), encoding="utf-8")

    assert call("validate", tmp_path, "--run", "monday").returncode == 0
    assert "bonuss" in call("validate", tmp_path, "--run", "tuesday").stdout
    mixed = call("validate", tmp_path)
    assert (mixed.returncode, mixed.stdout) == (2, "")
    assert "monday" in mixed.stderr


def test_hostile_names_and_values_are_not_printed_raw(call: Call, tmp_path: Path) -> None:
    traces.clean(tmp_path)
    (tmp_path / "\x1b[31mrank7.jsonl").write_text('{"stage": "\\u001b[2J", "\\u001b]0;x": 1}\n', encoding="utf-8")

    run = call("validate", tmp_path)

    assert run.returncode == 2
    assert "\x1b" not in run.stdout
    assert "\\x1b[31mrank7.jsonl" in run.stdout
