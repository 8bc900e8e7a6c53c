"""The answer for one request that is read alone is that of the whole analysis."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from simulator.files import Form, write_run
from trace_files import event, write

from divtrace.api import Options, first_divergence
from divtrace.convert.run import convert
from divtrace.sieve.single import without_finding
from divtrace.trace.discover import discover
from divtrace.trace.load import load
from divtrace.walk.settings import GroupFlags
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


def lays(req: str, number: int, slots: list[int]) -> dict[str, Any]:
    positions = list(range(5, 5 + len(slots)))
    return {"req": req, "round": number, "stage": "verify", "kv_positions": positions, "kv_slots": slots}


def ends(req: str, number: int) -> dict[str, Any]:
    return {"req": req, "round": number, "stage": "commit", "commit_len": 1, "new_seq_len": 6, "finished": "stop"}


def cuts(req: str, number: int) -> dict[str, Any]:
    """A commit behind which no row is left."""
    return {"req": req, "round": number, "stage": "commit", "commit_len": 1, "new_seq_len": 5, "finished": ""}


SHARING = {
    "slots of its own": ([lays("A", 1, [40, 41]), lays("B", 1, [50, 51])], True),
    "behind the end of the other": ([lays("A", 1, [40]), ends("A", 1), lays("B", 1, [40])], True),
    "in front of the other": ([lays("B", 1, [40]), lays("A", 1, [40])], True),
    "while the other holds it": ([lays("A", 1, [40]), lays("B", 1, [40]), ends("A", 1)], False),
    "again, while the other holds it": (
        [lays("B", 1, [40]), cuts("B", 1), lays("A", 1, [40]), lays("B", 2, [40]), ends("A", 1)],
        False,
    ),
    "twice in one record": ([lays("B", 1, [40, 40])], False),
    "with a long prefix": ([lays("A", 1, [41, 40]), ends("A", 1), lays("A", 2, [40]), lays("B", 1, [40])], False),
}


@pytest.mark.parametrize("form", ["plain", "with spaces", "escaped", "compressed", "parquet", "converted"])
@pytest.mark.parametrize("how", SHARING)
def test_a_slot_that_another_may_hold_is_left_to_the_whole(how: str, form: str, tmp_path: Path) -> None:
    """Another request may hold one of its slots, which its own records do not show."""
    records, is_sure = SHARING[how]
    folder = tmp_path / "in"
    folder.mkdir()
    for rank in (0, 1):
        whole = [{"seq": seq, "step": 1, **record} for seq, record in enumerate([*records, {"stage": "host"}])]
        lines = [json.dumps(one, separators=None if form == "with spaces" else (",", ":")) + "\n" for one in whole]
        text = "".join(lines).replace("kv_slots", "kv\\u005fslots" if form == "escaped" else "kv_slots").encode()
        if form == "compressed":
            (folder / f"rank{rank}.jsonl.gz").write_bytes(gzip.compress(text))
        elif form == "parquet":
            columns = {name: [record.get(name) for record in whole] for name in set().union(*whole)}
            pq.write_table(pa.table(columns), folder / f"rank{rank}.parquet")
        else:
            (folder / f"rank{rank}.jsonl").write_bytes(text)
    if form == "converted":
        convert([folder], tmp_path / "out")
        folder = tmp_path / "out"
    whole_answer = first_divergence([folder], "B", WHOLE)

    assert alone(folder, "B") == (whole_answer if is_sure else None)
    assert first_divergence([folder], "B", Options(sieve_from=0)) == whole_answer
    assert (whole_answer.results[0].finding is None) or not is_sure


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


PARALLEL = {"tp_size": 2, "dp_size": 1, "attn_cp_size": 1, "pp_size": 1, "ep_size": 1}
BATCHES: dict[str, list[dict[str, Any]]] = {
    "alike": [{}, {}],
    "without it on one rank": [{}, {"batch": ["B"]}],
    "in another order": [{}, {"batch": ["B", "A"]}],
    "of another length": [{}, {"batch_size": 3}],
    "synced over its group": [{"comm_ranks": [0, 1], "src": 0}] * 2,
    "synced over another group": [{"comm_ranks": [0], "src": 0}] * 2,
    "synced from another rank": [{"comm_ranks": [0, 1], "src": 1}, {"comm_ranks": [0, 1], "src": 0}],
}


@pytest.mark.parametrize("form", ["jsonl", "converted"])
@pytest.mark.parametrize("what", BATCHES)
def test_findings_of_its_batches_are_left_to_the_whole(what: str, form: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for rank, more in enumerate(BATCHES[what]):
        here = {"rank": rank, "step": 1}
        batch = event(0, **here, req=None, stage="schedule", correct_len=None, batch=["A", "B"], batch_size=2)
        meta = {"kind": "meta", "format": "divtrace.trace/1", "rank": rank, "parallel": PARALLEL}
        write(folder, f"rank{rank}.jsonl", meta, batch | more, event(1, **here, req="A", correct_len=1))
    if form == "converted":
        convert([folder], tmp_path / "out")
        folder = tmp_path / "out"
    whole = first_divergence([folder], "A", WHOLE)
    assert (whole.results[0].finding is not None) == (what == "without it on one rank")
    assert alone(folder, "A") in ((None,) if whole.results[0].finding is not None else (None, whole))
    assert alone(folder, "A") is not None or what not in ("alike", "synced over its group")
    assert first_divergence([folder], "A", Options(sieve_from=0)) == whole
