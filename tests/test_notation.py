"""The notation of traces that other tests are written in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from notation import parse, ranks_of, write_trace


def test_line_holds_for_all_ranks() -> None:
    traces = parse("ranks 0-2\n5 A.3 draft draft_tokens=5,6,7 draft_root=4")

    assert [traces.events[rank] for rank in (0, 1, 2)] == [
        [
            {
                "rank": rank,
                "seq": 0,
                "step": 5,
                "req": "A",
                "round": 3,
                "stage": "draft",
                "site": "draft",
                "draft_tokens": [5, 6, 7],
                "draft_root": 4,
            }
        ]
        for rank in (0, 1, 2)
    ]


def test_one_line_holds_a_round_of_several_events() -> None:
    traces = parse("5 A+1.3 draft draft_tokens=5; verify/plan:local#2 verify_len=2; accept correct_len=1 bonus=9")
    keys = [(e["stage"], e["site"], e.get("phase"), e.get("n"), e["attempt"]) for e in traces.events[1]]

    assert keys == [
        ("draft", "draft", None, None, 1),
        ("verify", "plan", "local", 2, 1),
        ("accept", "accept", None, None, 1),
    ]


def test_variant_changes_the_events_that_have_the_field() -> None:
    traces = parse(
        "5 A.3 accept correct_len=2 bonus=9; commit commit_len=3 | 1: correct_len=1 commit_len=2 finished=stop"
    )

    assert [(e.get("correct_len"), e.get("commit_len"), e.get("finished")) for e in traces.events[0]] == [
        (2, None, None),
        (None, 3, None),
    ]
    assert [(e.get("correct_len"), e.get("commit_len"), e.get("finished")) for e in traces.events[1]] == [
        (1, None, None),
        (None, 2, "stop"),
    ]


def test_missing_event_takes_no_number_and_lost_event_leaves_a_gap() -> None:
    traces = parse("ranks 0-2\n1 - schedule batch=A | 1: - | 2: lost\n2 - schedule batch=A")

    assert [[e["seq"] for e in traces.events[rank]] for rank in (0, 1, 2)] == [[0, 1], [0], [1]]


def test_values_follow_the_type_of_the_field() -> None:
    (event,) = parse(
        'ranks 0\n- - init gate=true batch= graph=t8 decided_on=1.5 error=null extra={"info.a":[1]}'
    ).events[0]

    assert "step" not in event
    assert (event["gate"], event["batch"], event["graph"], event["decided_on"]) == (True, [], "t8", 1.5)
    assert (event["error"], event["extra"]) == (None, {"info.a": [1]})


def test_meta_sorts_sizes_from_the_rest() -> None:
    traces = parse("ranks 0-1\nmeta tp_size=2 enable_dp_attention=false algorithm=EAGLE | 1: algorithm=NGRAM")

    assert traces.metas[0]["parallel"] == {"tp_size": 2, "enable_dp_attention": False}
    assert [traces.metas[rank]["algorithm"] for rank in (0, 1)] == ["EAGLE", "NGRAM"]


def test_files_hold_meta_and_events(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "case", "# a comment\nmeta tp_size=2\n\n1 - host/end")
    lines = [json.loads(line) for line in (folder / "rank1.jsonl").read_text().splitlines()]

    assert [line.get("kind", line.get("site")) for line in lines] == ["meta", "end"]
    assert sorted(path.name for path in folder.iterdir()) == ["rank0.jsonl", "rank1.jsonl"]


@pytest.mark.parametrize("text", ["x A.1 draft", "1 A.1 nostage", "1 A.1 draft tokens", "1 - schedule | bonus=2"])
def test_nonsense_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"draft|nostage|schedule"):
        parse(text)


def test_ranks_are_ranges_and_numbers() -> None:
    assert ranks_of("0-2,5") == [0, 1, 2, 5]
