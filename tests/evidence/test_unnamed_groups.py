"""Members of process groups that dumps do not name, and the ranks that log lines name by their number inside one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evidence.jobs import LEFT, RIGHT, START, WORLD, Job, Op, analyse, as_json, as_pickle

WIDTH = 8


def detail_dump(operations: Sequence[tuple[int, int]], sizes: Mapping[int, int]) -> dict[str, Any]:
    """A dump as the wrapper of DETAIL makes it: (group, width of the fingerprint) per operation, sizes by group.

    Before each operation the helper group, one number behind the group's own, counts two barrier messages and gathers
    twice.
    """
    entries: list[dict[str, Any]] = []
    counters: dict[int, int] = {}

    def add(pg_id: int, op: str, given: list[int], taken: list[int], step: int) -> None:
        counters[pg_id] = counters.get(pg_id, 0) + step
        entries.append(
            {
                "record_id": len(entries),
                "pg_id": pg_id,
                "process_group": ("", ""),
                "collective_seq_id": counters[pg_id],
                "p2p_seq_id": 0,
                "op_id": counters[pg_id],
                "profiling_name": f"gloo:{op}",
                "input_sizes": [given],
                "output_sizes": [taken],
                "input_dtypes": ["Float"],
                "output_dtypes": ["Float"],
                "state": "scheduled",
                "time_created_ns": START + len(entries),
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": True,
                "timeout_ms": 5000,
                "is_p2p": False,
                "thread_id": "1",
            }
        )

    for group, width in operations:
        size = sizes[group]
        add(2 * group + 1, "all_gather", [1], [size, 1], 3)
        add(2 * group + 1, "all_gather", [width], [size, width], 1)
        add(2 * group, "all_reduce", [4, 8], [4, 8], 1)
    return {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
        "comm_lib_version": "",
        "pg_status": {},
        "entries": entries,
    }


def write(folder: Path, dumps: Mapping[int, dict[str, Any]], form: str = "pickle", **logs: str) -> Path:
    for rank, dump in dumps.items():
        name = f"trace_rank_{rank}" + (".json" if form == "json" else "")
        (folder / name).write_bytes(as_pickle(dump) if form == "pickle" else as_json(dump))
    for name, text in logs.items():
        (folder / f"{name}.err").write_text(text)
    return folder


def failed(rank: int, index: int, own: int = 0) -> str:
    return f"[rank{rank}]: [Rank {own}]: Ranks {index} failed to pass monitoredBarrier in 5000 ms\n"


def job(rounds: Sequence[int], sizes: Mapping[int, int], widths: Sequence[int] = (WIDTH,) * 4) -> dict[int, Any]:
    """Per rank: one operation of each group in every round; ranks with fewer rounds stop earlier."""
    return {
        rank: detail_dump([(group, widths[rank]) for _ in range(count) for group in sizes], sizes)
        for rank, count in enumerate(rounds)
    }


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_ranks_that_went_on_are_in_one_group(tmp_path: Path, form: str) -> None:
    dumps = job((3, 3, 3, 3), {0: 4, 1: 2})
    for rank in (2, 3):
        dumps[rank] = detail_dump([(0, 8), (1, 8)] * 3 + [(1, 8)], {0: 4, 1: 2})
    found = analyse(write(tmp_path, dumps, form, rank0=failed(0, 1)))
    assert (found.verdict, found.behind) == ("rank_silent", (1,))
    assert any(
        "taken for rank 1, which has that number in every group that rank 0 used" in note for note in found.notes
    )


def test_groups_of_every_second_rank(tmp_path: Path) -> None:
    """Number 1 of rank 0's group is rank 2, whichever way the ranks lie."""
    dumps = job((2, 3, 2, 3), {0: 2})
    found = analyse(write(tmp_path, dumps, rank0=failed(0, 1)))
    assert (found.verdict, found.behind) == ("rank_silent", (2,))


def test_groups_are_told_apart_by_what_they_did(tmp_path: Path) -> None:
    dumps = job((3, 3, 3, 3), {0: 2}, widths=(7, 8, 8, 7))
    found = analyse(write(tmp_path, dumps, rank0=failed(0, 1)))
    assert found.behind == (3,)


def test_a_number_that_means_two_ranks_names_none(tmp_path: Path) -> None:
    """In the group of all, number 1 is rank 1; in rank 0's own group of two it is rank 2."""
    dumps = job((3, 3, 3, 3), {0: 4, 1: 2}, widths=(8, 8, 8, 8))
    for rank in (1, 3):
        dumps[rank] = detail_dump([(0, 8), (1, 8)] * 3 + [(1, 8)], {0: 4, 1: 2})
    found = analyse(write(tmp_path, dumps, rank0=failed(0, 1)))
    assert (found.verdict, found.behind) == ("insufficient", ())
    assert any("whose members are not known" in note for note in found.notes)


def test_where_all_ranks_did_the_same_nothing_tells_the_groups_apart(tmp_path: Path) -> None:
    found = analyse(write(tmp_path, job((3, 3, 3, 3), {0: 2}), rank0=failed(0, 1)))
    assert (found.verdict, found.behind) == ("insufficient", ())


def test_a_rank_without_a_dump_may_be_a_member(tmp_path: Path) -> None:
    dumps = job((2, 2, 3, 3), {0: 2})
    del dumps[1]
    found = analyse(write(tmp_path, dumps, rank0=failed(0, 1)))
    assert found.behind == ()


def test_a_group_that_left_the_ring_may_be_the_one(tmp_path: Path) -> None:
    dumps = job((2, 2, 3, 3), {0: 2})
    for entry in dumps[0]["entries"]:
        entry["record_id"] += 40
    found = analyse(write(tmp_path, dumps, rank0=failed(0, 1)))
    assert found.behind == ()


def test_operations_without_a_helper_leave_groups_open(tmp_path: Path) -> None:
    """Somebody else's unnamed groups: that they gather in pairs does not make the others theirs."""
    dumps = job((2, 2, 3, 3), {0: 2})
    extra = dict(dumps[0]["entries"][-1], pg_id=9)
    dumps[0]["entries"] += [dict(extra, record_id=100 + i, collective_seq_id=1 + i) for i in range(2)]
    found = analyse(write(tmp_path, dumps, rank0=failed(0, 1)))
    assert found.behind == ()


@pytest.mark.parametrize(
    ("line", "behind"), [(failed(2, 1), (3,)), (failed(2, 3, own=2), (3,)), (failed(2, 1, 2), (1,))]
)
def test_a_line_names_no_group_but_the_dumps_do(tmp_path: Path, line: str, behind: tuple[int, ...]) -> None:
    """The rank's own number tells the group: rank 2 is number 0 of its pair and number 2 of all."""
    groups = {WORLD: [0, 1, 2, 3], LEFT: [0, 1], RIGHT: [2, 3]}
    gather = Op(WORLD, "all_gather", (2, 8), output=(4, 2, 8))
    ranks = {rank: [Op(LEFT if rank < 2 else RIGHT), gather] * 3 for rank in range(4)}
    folder = Job(groups, ranks, backend="gloo").write(tmp_path)
    (folder / "rank2.err").write_text(line)
    assert analyse(folder).behind == behind


def test_groups_of_another_backend_tell_nothing_of_gloo_lines(tmp_path: Path) -> None:
    """Engines have a gloo group beside each NCCL group; one that no dump shows may have other members."""
    groups = {WORLD: [0, 1, 2, 3], LEFT: [0, 1], RIGHT: [2, 3]}
    folder = Job(groups, {rank: [Op(LEFT if rank < 2 else RIGHT)] * 3 for rank in range(4)}).write(tmp_path)
    (folder / "rank2.err").write_text(failed(2, 1))
    assert analyse(folder).behind == ()
