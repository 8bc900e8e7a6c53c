"""`divtrace topology`: groups from sizes, without any trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.command import Call


def groups(call: Call, *arguments: str, **variables: str) -> dict[str, Any]:
    run = call("topology", *arguments, "--format", "json", cwd=None, **variables)
    assert (run.returncode, run.stderr) == (0, "")
    document: dict[str, Any] = json.loads(run.stdout)
    return document


def test_dp_attention_makes_replicas_of_two_ranks(call: Call) -> None:
    document = groups(call, "--tp", "16", "--dp", "8", "--dp-attention")

    pairs = [[first, first + 1] for first in range(0, 16, 2)]
    assert [replica["ranks"] for replica in document["replicas"]] == pairs
    assert document["sync_groups"][1] == {"ranks": [2, 3], "source": 2}
    assert document["communicators"]["attn_tp"] == pairs
    assert document["communicators"]["tp"] == [list(range(16))]


def test_the_text_names_the_same_groups_in_ranges(call: Call) -> None:
    run = call("topology", "--tp", "8", "--cp", "2", "--pp", "2")

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[:4] == [
        "16 ranks, 1 replica",
        "tp 8, dp 1 without DP attention, cp 2, pp 2",
        "",
        "replica  ranks  attn_tp groups",
    ]
    assert "0        0-15   0-3 4-7 8-11 12-15" in run.stdout
    assert max(len(line) for line in run.stdout.splitlines()) <= 80


def test_explicit_groups_need_no_sizes_and_win_over_them(call: Call) -> None:
    alone = groups(call, "--attn-tp-group", "0,2", "--attn-tp-group", "1,3")
    over = groups(call, "--tp", "4", "--attn-tp-group", "0,2", "--attn-tp-group", "1,3")

    assert [replica["ranks"] for replica in alone["replicas"]] == [[0, 2], [1, 3]]
    assert over["communicators"]["attn_tp"] == [[0, 2], [1, 3]]


def test_the_environment_gives_sizes_and_repeated_options(call: Call) -> None:
    sizes = groups(call, DIVTRACE_TP="4", DIVTRACE_DP="2", DIVTRACE_DP_ATTENTION="1")
    explicit = groups(call, DIVTRACE_ATTN_TP_GROUP="0,2 1,3")
    switched_off = groups(call, "--no-dp-attention", DIVTRACE_TP="4", DIVTRACE_DP="2", DIVTRACE_DP_ATTENTION="1")

    assert [replica["ranks"] for replica in sizes["replicas"]] == [[0, 1], [2, 3]]
    assert [replica["ranks"] for replica in explicit["replicas"]] == [[0, 2], [1, 3]]
    assert [replica["ranks"] for replica in switched_off["replicas"]] == [[0, 1, 2, 3]]


def test_worlds_without_dp_attention_are_told_apart(call: Call) -> None:
    run = call("topology", "--tp", "4", "--dp", "2")

    assert "note: dp 2 without DP attention makes 2 worlds of these ranks" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "no sizes are given"),
        (("--tp", "6", "--dp", "4", "--dp-attention"), "tp 6 is not divisible by attention dp 4"),
        (("--attn-tp-group", "0,x"), "'0,x' is not a list of ranks"),
        (("--attn-tp-group", "0,1", "--attn-tp-group", "1,2"), "rank 1 twice"),
        (("--tp", "2", "--format", "xml"), "does not write 'xml'"),
    ],
)
def test_impossible_sizes_are_named(call: Call, arguments: tuple[str, ...], named: str) -> None:
    run = call("topology", *arguments)

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("divtrace: error: ")
    assert named in run.stderr.splitlines()[0]
