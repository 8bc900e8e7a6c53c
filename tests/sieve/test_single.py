"""The answer for one request that is read alone is that of the whole analysis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulator.files import Form, write_run
from trace_files import event, write

from divtrace.api import Options, first_divergence
from divtrace.convert.run import convert
from divtrace.sieve.single import without_finding
from divtrace.trace.discover import discover
from divtrace.trace.load import load
from divtrace.walk.world import GroupFlags
from sieve.sieving import changed

WHOLE = Options(sieve_from=1 << 60)


def alone(folder: Path, req: str) -> object:
    return without_finding(discover([folder]), req, None, GroupFlags(), attempt=None, replica=None)


def requests_in(folder: Path) -> list[str]:
    return sorted(
        {record.event.req for trace in load([folder]).ranks.values() for record in trace.records if record.event.req}
    )


@pytest.mark.parametrize("form", ["jsonl", "parquet", "converted"])
@pytest.mark.parametrize("seed", range(4))
def test_answers_alone_are_those_of_the_whole(seed: int, form: str, tmp_path: Path) -> None:
    place = [("tp2", "eagle"), ("tp2-dp2", "eagle"), ("tp2", "eagle-tree"), ("tp3", "dspark-unsynced")][seed % 4]
    folder = write_run(changed(place, seed), tmp_path / "in", "parquet" if form == "parquet" else "jsonl")
    if form == "converted":
        convert([folder], tmp_path / "out")
        folder = tmp_path / "out"
    for req in requests_in(folder):
        found = alone(folder, req)
        whole = first_divergence([folder], req, WHOLE)
        assert found in (None, whole)
        assert first_divergence([folder], req, Options(sieve_from=0)) == whole


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_clean_request_is_answered_alone(form: Form, tmp_path: Path) -> None:
    folder = write_run(changed(("tp2", "eagle"), 1).edited(without_slots), tmp_path, form)
    answered = [req for req in requests_in(folder) if alone(folder, req) is not None]
    assert answered


def without_slots(_rank: int, record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "kv_slots"}


def test_a_request_with_slots_is_left_to_the_whole_by_columns(tmp_path: Path) -> None:
    folder = write_run(changed(("tp2", "eagle"), 1), tmp_path, "parquet")
    with_slots = {
        record.event.req
        for trace in load([folder]).ranks.values()
        for record in trace.records
        if record.event.kv_slots is not None
    }
    assert with_slots
    assert all(alone(folder, req) is None for req in with_slots if req is not None)


def test_a_request_with_slots_is_left_to_the_whole(tmp_path: Path) -> None:
    """Another request may hold one of its slots, which its own records do not show."""
    for rank in (0, 1):
        write(
            tmp_path,
            f"rank{rank}.jsonl",
            event(0, rank=rank, req="A", round=1, step=1, stage="verify", kv_positions=[5], kv_slots=[40]),
            event(1, rank=rank, req="B", round=1, step=1, stage="verify", kv_positions=[7], kv_slots=[40]),
            event(2, rank=rank, req="A", round=1, step=1, stage="accept", correct_len=0),
        )
    assert alone(tmp_path, "B") is None
    answer = first_divergence([tmp_path], "B", Options(sieve_from=0))
    assert answer == first_divergence([tmp_path], "B", WHOLE)
    assert answer.results[0].finding is not None
    assert answer.results[0].finding.rule == "kv-alias"


@pytest.mark.parametrize("written", [rb"\u0041", rb"A", rb"\u0041\u002dB"])
def test_escaped_ids_are_found(written: bytes, tmp_path: Path) -> None:
    req = "A-B" if b"002d" in written else "A"
    for rank in (0, 1):
        line = b'{"rank":%d,"seq":0,"stage":"accept","site":"x","req":"%s","round":1,"correct_len":2}' % (rank, written)
        write(tmp_path, f"rank{rank}.jsonl", line)
    found = alone(tmp_path, req)
    assert found is not None
    assert found == first_divergence([tmp_path], req, WHOLE)


def test_ids_that_hold_another_are_told_apart(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(
            tmp_path, f"rank{rank}.jsonl", event(0, rank=rank, req="A1"), event(1, rank=rank, req="A", correct_len=rank)
        )
    assert alone(tmp_path, "A1") is not None
    assert alone(tmp_path, "A") is None


def test_a_damaged_line_of_the_request_is_left_to_the_whole(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path, f"rank{rank}.jsonl", event(0, rank=rank), b'{"req":"A",' if rank else b"")
    assert alone(tmp_path, "A") is None
