"""A round of which every record may be another occurrence than it seems is not judged, and breaks nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from divtrace import analyze


def test_round_that_the_start_of_every_trace_hides(tmp_path: Path) -> None:
    """Both traces begin in the middle, with one key twice: a third occurrence may have come before."""
    for rank in (0, 1):
        accept = {"step": 7, "req": "A", "round": 3, "stage": "accept", "site": "greedy", "correct_len": 1}
        records = [
            {"kind": "meta", "rank": rank, "parallel": {"tp_size": 2}},
            accept | {"seq": 50},
            accept | {"seq": 51},
            {"seq": 52, "step": 8, "stage": "schedule", "site": "batch", "batch": ["A"]},
            {"seq": 53, "stage": "host", "site": "end"},
        ]
        (tmp_path / f"rank{rank}.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, records)) + b"\n")

    report = analyze(tmp_path)

    assert (report.verdict, report.findings) == ("clean", ())
