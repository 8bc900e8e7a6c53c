"""Two RAS snapshots of one job: what did not move between them is stuck."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from evidence.jobs import analyse

SUMMARY = """NCCL version 2.26.2 compiled with CUDA 12.6

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      {nodes}          4            1          {gpus}        {gpus}

Communicators... (0.0{seconds}s)
=============

Warnings
========

"""
WARNING = """#0-0 ({hash}) MISMATCH
  Communicator ranks have different AllGather operation counts
  {many} ranks have launched up to operation {usual}
  2 ranks have launched up to operation {other}
  Rank 2 -- GPU 2 managed by process 323032 on node 10.1.1.4
  Rank 5 -- GPU 1 managed by process 323033 on node 10.1.1.5

"""


def text(
    usual: int, other: int, *, gpus: int = 8, size: int = 8, seconds: int = 1, comm: str = "fa93daea854b060b"
) -> str:
    summary = SUMMARY.format(nodes=gpus // 4, gpus=gpus, seconds=seconds)
    return summary + WARNING.format(hash=comm, many=size - 2, usual=usual, other=other)


def write(folder: Path, *texts: str) -> Path:
    for place, content in enumerate(texts):
        (folder / f"ras{place}.txt").write_text(content)
    return folder


def test_ranks_that_stay_behind_are_waited_for(tmp_path: Path) -> None:
    found = analyse(write(tmp_path, text(641, 640), text(641, 640, seconds=4)))
    assert (found.verdict, found.behind) == ("rank_silent", (2, 5))
    assert {wait.comm for stall in found.waits.stalls for wait in stall.waiters} == {
        "communicator fa93daea854b060b (AllGather)"
    }
    assert any("did not move (AllGather: its ranks 2, 5 at 640, 6 ranks at 641)" in note for note in found.notes)


def test_the_ranks_that_are_listed_may_be_the_ones_ahead(tmp_path: Path) -> None:
    """The report lists the few, and these wait: the many are behind."""
    found = analyse(write(tmp_path, text(640, 641), text(640, 641)))
    assert (found.behind, found.ahead) == ((0, 1, 3, 4, 6, 7), (2, 5))


def test_one_snapshot_shows_nothing(tmp_path: Path) -> None:
    found = analyse(write(tmp_path, text(641, 640)))
    assert (found.verdict, found.behind, len(found.facts)) == ("insufficient", (), 2)


@pytest.mark.parametrize("later", [(651, 650), (651, 640), (642, 641)])
def test_counts_that_moved(tmp_path: Path, later: tuple[int, int]) -> None:
    found = analyse(write(tmp_path, text(*later), text(641, 640)))
    assert found.behind == ()
    assert any("moved between them" in note for note in found.notes)


def test_of_three_snapshots_the_latest_two_count(tmp_path: Path) -> None:
    """Their names tell no order: the highest counts are the latest."""
    found = analyse(write(tmp_path, text(641, 640), text(630, 629), text(641, 640)))
    assert found.behind == (2, 5)
    found = analyse(write(tmp_path, text(641, 640), text(641, 640), text(642, 641)))
    assert found.behind == ()


def test_both_snapshots_in_one_log(tmp_path: Path) -> None:
    found = analyse(write(tmp_path, text(641, 640) + "\n" + text(641, 640)))
    assert found.behind == (2, 5)


def test_numbers_of_a_smaller_communicator_are_not_those_of_the_job(tmp_path: Path) -> None:
    part = [text(641, 640, gpus=16, size=8, comm="27a079b8")] * 2
    found = analyse(write(tmp_path, *part))
    assert (found.behind, found.ranks) == ((), tuple(range(16)))
    assert any("its ranks 2, 5 at 640" in note for note in found.notes)


def test_snapshots_of_two_communicators_are_no_pair(tmp_path: Path) -> None:
    found = analyse(write(tmp_path, text(641, 640, comm="fa93daea"), text(641, 640, comm="27a079b8")))
    assert (found.behind, [note for note in found.notes if "RAS snapshots" in note]) == ((), [])


def report(counts: dict[int, dict[str, int]], missing: tuple[int, ...] = ()) -> dict[str, Any]:
    size = len(counts) + len(missing)
    place = {rank: {"rank": rank, "host": "10.0.0.1", "pid": 700 + rank, "cuda_dev": rank} for rank in range(size)}
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    return {
        "nccl_version": "2.28.9",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xae94423cfbb2ef4a",
                "size": size,
                "ranks_count": len(counts),
                "missing_ranks_count": len(missing),
                "ranks": [{**place[rank], "status": status, "collective_counts": own} for rank, own in counts.items()],
                "missing_ranks": [
                    {**place[rank], "status": {"unresponsive": True, "considered_dead": False}} for rank in missing
                ],
            }
        ],
        "ras": {"collection_time_sec": 0.125, "timeouts_count": 0},
    }


def counts(own: int, *others: int) -> dict[int, dict[str, int]]:
    return {rank: {"Broadcast": 3, "AllReduce": count} for rank, count in enumerate((own, *others))}


def test_a_pair_as_json(tmp_path: Path) -> None:
    snapshot = json.dumps(report(counts(288686, 288685, 288686)), indent=2).encode()
    (tmp_path / "first").write_bytes(snapshot)
    (tmp_path / "second").write_bytes(gzip.compress(snapshot))
    found = analyse(tmp_path)
    assert (found.verdict, found.behind) == ("rank_silent", (1,))
    assert any("(AllReduce: its rank 1 at 288685, its ranks 0, 2 at 288686)" in note for note in found.notes)


def test_equal_counts_that_did_not_move_are_stuck_or_idle(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text(json.dumps(report(counts(7, 7))))
    found = analyse(tmp_path)
    assert (found.verdict, found.behind) == ("insufficient", ())
    assert any("did not move (equal on all ranks): it is stuck or idle" in note for note in found.notes)


def test_a_missing_rank_is_unobserved_and_not_behind(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text(json.dumps(report(counts(8, 7), (2,))))
    found = analyse(tmp_path)
    assert (found.behind, [wait.awaited for wait in found.waits.unobserved]) == ((1,), [(0, 2)])


def test_the_comma_that_one_version_leaves_out(tmp_path: Path) -> None:
    whole = json.dumps(report(counts(8, 7), (2,)), indent=2)
    broken = whole.replace('"cuda_dev": 2,\n', '"cuda_dev": 2\n')
    assert broken != whole
    (tmp_path / "ras.json").write_text(broken)
    found = analyse(tmp_path)
    assert (found.unreadable, [fact.group_ranks for fact in found.facts if fact.kind == "missing"]) == ((), [(2,)])
