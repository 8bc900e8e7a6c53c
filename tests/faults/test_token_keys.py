"""Token ids that were hashed under different keys are not comparable, and are not compared."""

from __future__ import annotations

from pathlib import Path

import msgspec

from divtrace import analyze
from divtrace.report.model import Report


def _write(folder: Path, rank: int, key: str, token: int, bonus_len: int = 1) -> None:
    meta = {"kind": "meta", "rank": rank, "parallel": {"tp_size": 3}, "tokens": {"mode": "hash", "key": key}}
    events = [
        {"seq": 0, "step": 1, "stage": "schedule", "site": "batch", "batch": ["A"]},
        {
            "seq": 1,
            "step": 1,
            "req": "A",
            "round": 1,
            "stage": "accept",
            "site": "greedy",
            "correct_len": 0,
            "bonus": token,
        },
        {"seq": 2, "step": 1, "req": "A", "round": 1, "stage": "commit", "site": "commit", "commit_len": bonus_len},
        {"seq": 3, "stage": "host", "site": "end"},
    ]
    lines = b"\n".join(msgspec.json.encode(record) for record in (meta, *events))
    (folder / f"rank{rank}.jsonl").write_bytes(lines + b"\n")


def _report(folder: Path, *ranks: tuple[str, int, int]) -> Report:
    for rank, (key, token, length) in enumerate(ranks):
        _write(folder, rank, key, token, length)
    return analyze(folder)


def test_hashes_under_another_key_are_not_compared(tmp_path: Path) -> None:
    report = _report(tmp_path, ("k1", 11, 1), ("k1", 11, 1), ("k2", 99, 1))

    assert (report.verdict, report.findings) == ("clean", ())
    assert any("token ids in different ways" in note for note in report.notes)


def test_hashes_under_one_key_are_compared(tmp_path: Path) -> None:
    report = _report(tmp_path, ("k1", 11, 1), ("k1", 12, 1), ("k2", 99, 1))

    assert report.first is not None
    assert (report.first.rule, report.first.ranks) == ("bonus-token", (0, 1))


def test_what_is_no_token_is_compared_under_any_key(tmp_path: Path) -> None:
    report = _report(tmp_path, ("k1", 11, 1), ("k1", 11, 1), ("k2", 99, 2))

    assert report.first is not None
    assert (report.first.rule, report.first.odd_ranks) == ("commit-length", (2,))
