"""`divtrace first-divergence` and `divtrace show`: one request of many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import traces
from cli.command import Call

HOSTILE = "\x1b]0;owned\x07 [red]--req ::error:: \u202e</script>"


def two_requests(folder: Path) -> Path:
    """Request A diverges in round 2, request B is served before it and agrees."""
    ranks = []
    for rank, tokens in ((0, {}), (1, {2: [11, 99, 13]})):
        before = traces.events(rank, req="B", rounds=1)
        after = traces.events(rank, req="A", tokens=tokens)
        for record in after:
            record["seq"] += len(before)
            record["step"] += 1
        ranks.append([*before, *after])
    return traces.write(folder, ranks)


def test_the_exit_status_is_that_of_the_request_alone(call: Call, tmp_path: Path) -> None:
    folder = two_requests(tmp_path)

    assert call("analyze", folder).returncode == 1
    assert call("first-divergence", "--req", "A", folder).returncode == 1
    agreed = call("first-divergence", "--req", "B", folder)
    assert (agreed.returncode, agreed.stderr) == (0, "")
    assert agreed.stdout == "Request B, replica 0\n  no divergence of this request\n"


def test_the_finding_is_that_of_analyze(call: Call, tmp_path: Path) -> None:
    folder = two_requests(tmp_path)

    report = json.loads(call("analyze", folder, "--format", "json").stdout)
    answer = json.loads(call("first-divergence", "--req", "A", folder, "--format", "json").stdout)

    assert answer["schema"] == "divtrace.first-divergence/1"
    (result,) = answer["results"]
    assert result["finding"] == report["first"]
    assert result["origin"] == report["first"]


def test_the_text_names_rule_place_and_every_value(call: Call, tmp_path: Path) -> None:
    run = call("first-divergence", "--req", "A", two_requests(tmp_path))

    assert "target-tokens (control)" in run.stdout
    assert "request A, round 2, step 3, verify/target" in run.stdout
    assert "rank0.jsonl:9" in run.stdout
    assert "[11, >99<, 13]" in run.stdout
    assert max(len(line) for line in run.stdout.splitlines()) <= 80


def test_a_request_of_another_attempt_has_no_finding(call: Call, tmp_path: Path) -> None:
    folder = two_requests(tmp_path)

    assert call("first-divergence", "--req", "A", "--attempt", "0", folder).returncode == 1
    assert call("first-divergence", "--req", "A", "--attempt", "1", folder).returncode == 0


@pytest.mark.parametrize("command", ["first-divergence", "show"])
def test_an_unknown_request_exits_2_and_lists_the_nearest(call: Call, tmp_path: Path, command: str) -> None:
    folder = traces.clean(tmp_path / "traces")
    traces.write(folder, [traces.events(0, req="chatcmpl-17"), traces.events(1, req="chatcmpl-17")])

    run = call(command, "--req", "chatcmpl-18", folder)

    assert (run.returncode, run.stdout) == (2, "")
    assert "chatcmpl-18" in run.stderr.splitlines()[0]
    assert "chatcmpl-17" in run.stderr.splitlines()[1]


@pytest.mark.parametrize("command", ["first-divergence", "show"])
def test_an_unknown_replica_exits_2(call: Call, tmp_path: Path, command: str) -> None:
    run = call(command, "--req", "A", "--replica", "7", traces.clean(tmp_path))

    assert (run.returncode, run.stdout) == (2, "")
    assert "no replica 7" in run.stderr


@pytest.mark.parametrize("command", ["first-divergence", "show"])
def test_the_request_has_to_be_named(call: Call, tmp_path: Path, command: str) -> None:
    run = call(command, traces.clean(tmp_path))

    assert (run.returncode, run.stdout) == (2, "")
    assert "--req" in run.stderr.splitlines()[0]


@pytest.mark.parametrize("req", [HOSTILE, "--help", "-q", "a b", "=", "请求", "*", "line\nbreak"])
@pytest.mark.parametrize("command", ["first-divergence", "show"])
def test_any_id_can_be_asked_for_and_none_is_printed_raw(call: Call, tmp_path: Path, command: str, req: str) -> None:
    folder = traces.diverged(tmp_path, req=req)

    run = call(command, "--req", req, folder)
    as_json = call(command, "--req", req, folder, "--format", "json")
    from_environment = call(command, folder, DIVTRACE_REQ=req)

    assert (run.returncode, run.stderr) == (1 if command == "first-divergence" else 0, "")
    assert from_environment.stdout == run.stdout
    assert json.loads(as_json.stdout)["req"] == req
    for written in (run.stdout, as_json.stdout):
        assert not {"\x1b", "\x07", "\u202e"} & set(written)


def test_show_puts_the_ranks_side_by_side_and_marks_what_differs(call: Call, tmp_path: Path) -> None:
    run = call("show", "--req", "A", "--round", "2", traces.diverged(tmp_path))

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [
        "Request A, round 2",
        "",
        "step 2, draft/draft",
        "  draft_tokens  ranks 0-1  [11, 12]",
        "  at rank0.jsonl:5; rank1.jsonl:5",
        "",
        "step 2, verify/target: ranks differ in target_tokens",
        "! target_tokens  rank 0  [11, >12<, 13]",
        "!                rank 1  [11, >99<, 13]",
        "  at rank0.jsonl:6; rank1.jsonl:6",
        "",
        "step 2, accept/accept",
        "  correct_len  ranks 0-1  2",
        "  bonus        ranks 0-1  13",
        "  at rank0.jsonl:7; rank1.jsonl:7",
    ]


def test_show_without_a_round_shows_all_of_them(call: Call, tmp_path: Path) -> None:
    run = call("show", "--req", "A", traces.diverged(tmp_path))

    assert [line for line in run.stdout.splitlines() if line.startswith("Request")] == [
        f"Request A, round {number}" for number in (1, 2, 3)
    ]


def test_show_says_which_ranks_have_no_such_event(call: Call, tmp_path: Path) -> None:
    shorter = traces.events(1, rounds=2)
    run = call("show", "--req", "A", "--round", "3", traces.write(tmp_path, [traces.events(0), shorter]))

    assert "no such event on rank 1" in run.stdout


def test_show_does_not_mark_what_may_differ(call: Call, tmp_path: Path) -> None:
    ranks = [traces.events(0), traces.events(1)]
    for rank, records in enumerate(ranks):
        records[1]["margin"] = rank / 2
    run = call("show", "--req", "A", "--round", "1", traces.write(tmp_path, ranks))

    assert "  margin         rank 0     0.0" in run.stdout
    assert "                 rank 1     0.5" in run.stdout
    assert "!" not in run.stdout


def test_show_counts_values_beyond_a_few_unless_asked_for_all(call: Call, tmp_path: Path) -> None:
    ranks = [traces.events(rank, rounds=1) for rank in range(12)]
    for rank, records in enumerate(ranks):
        records[1]["margin"] = float(rank)
    folder = traces.write(tmp_path, ranks)

    brief = call("show", "--req", "A", "--tp", "12", folder)
    full = call("show", "--req", "A", "--tp", "12", folder, "-v")

    assert "and 4 other values" in brief.stdout
    assert "and 8 more" in brief.stdout
    assert "11.0" not in brief.stdout
    assert "11.0" in full.stdout
    assert "rank11.jsonl:3" in full.stdout


def test_an_unknown_round_exits_2_and_names_those_there_are(call: Call, tmp_path: Path) -> None:
    run = call("show", "--req", "A", "--round", "99", traces.clean(tmp_path))

    assert (run.returncode, run.stdout) == (2, "")
    assert "has no round 99" in run.stderr
    assert "1, 2, 3" in run.stderr
