"""Files are told by their first bytes, ranks by what a name or the content states."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtrace.evidence.coordinates import Coordinates, coordinates, global_rank
from divtrace.evidence.logs import scan
from divtrace.evidence.logs.registry import LITERALS
from divtrace.evidence.recognise import rank_in_name, ranks_by_varying_number, recognise
from evidence.jobs import LEFT, WORLD, Job, Op, analyse, as_json, as_pickle, four_ranks


@pytest.mark.parametrize("version", ["2.3", "2.4", "2.9", "2.10"])
def test_dumps_of_all_versions(version: str) -> None:
    job = four_ranks()
    job.version = version
    assert recognise(as_pickle(job.dump(0))) == "dump-pickle"
    assert recognise(as_json(job.dump(0))) == "dump-json"
    empty = as_json(job.dump(0) | {"entries": []})
    assert recognise(empty) == "dump-json"


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b'{"entries":[{"collective_seq_id":1,', "dump-json"),
        (b'\xef\xbb\xbf{ "version": "2.4",\n "pg_config": {}', "dump-json"),
        (b'{"hccl_comm_state":{},"pg_status":{}}', "dump-json"),
        (b'{"version": 3, "models": []}', "text"),
        (b'{"nccl_version":"2.28.7","communicators_count":1,"communicators":[', "ras-json"),
        (
            b'{"header":{"id":"0x7","rank":3},"metadata":{"inspector_output_format_version":"v4.0"},"coll_perf":{',
            "inspector",
        ),
        (b'{"seq":1,"stage":"draft"}', "other"),
        (b'{"level":"error","stage":"draft","message":"Watchdog"}', "text"),
        (b'{"schema":"divtrace.report/1","verdict":"clean"}', "other"),
        (b"divtrace 0.1.0: 2 files, 2 ranks, 154 events\n", "other"),
        (b"divtrace hung, see below\n", "text"),
        (b"[rank0]: hello\n", "text"),
        (b"   \n\n", "other"),
        (b"", "other"),
        (b"\x7fELF\x02\x01\x01\x00", "other"),
        (b"\x80\x02cos\nsystem\n", "foreign-pickle"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x07version\x94", "dump-pickle"),
    ],
)
def test_heads(first: bytes, kind: str) -> None:
    assert recognise(first) == kind


@pytest.mark.parametrize(
    ("name", "dump", "log"),
    [
        ("comm_lib_trace_rank_12", 12, 12),
        ("nccl_trace_rank_gpu-node02_5", 5, None),
        ("_dump_14", 14, None),
        ("00_trace_rank_3.json", 3, 3),
        ("traces/rank_7.json.gz", 7, 7),
        ("rank10.err", 10, 10),
        ("rank2host5_rank-11.zst", 11, 11),
        ("frank3", None, None),
        ("server.log", None, None),
        ("trace", None, None),
    ],
)
def test_ranks_in_names(name: str, dump: int | None, log: int | None) -> None:
    assert rank_in_name(name, dump=True) == dump
    assert rank_in_name(name, dump=False) == log


def test_ranks_by_the_number_that_varies() -> None:
    assert ranks_by_varying_number(["n2-gpu0.fr7x", "n2-gpu1.fr7x"]) == {"n2-gpu0.fr7x": 0, "n2-gpu1.fr7x": 1}
    assert ranks_by_varying_number(["n0-gpu0.x", "n1-gpu1.x"]) == {}, "two numbers vary"
    assert ranks_by_varying_number(["a0.x", "b1.x"]) == {}


def test_the_process_groups_settle_the_rank(tmp_path: Path) -> None:
    """A dump lists the groups that its process is in; what they have in common is the process."""
    job = Job({WORLD: [0, 1, 2, 3], LEFT: [0, 1], "dp": [1, 3]}, {1: [Op(LEFT)]})
    (tmp_path / "some dump").write_bytes(as_pickle(job.dump(1)))
    assert [file.rank for file in analyse(tmp_path).files] == [1]


def test_a_name_that_the_process_groups_contradict(tmp_path: Path) -> None:
    job = Job({WORLD: [0, 1, 2, 3], LEFT: [0, 1]}, {1: [Op(LEFT)]})
    (tmp_path / "trace_rank_3").write_bytes(as_pickle(job.dump(1)))
    found = analyse(tmp_path)
    assert "named for rank 3" in found.unreadable[0].what
    assert not found.windows.get(3) or found.windows[3].file is None


def test_coordinates_and_global_ranks() -> None:
    place = coordinates("[2026-08-01 10:00:00 DP1 PP1 ATTN_CP0 MOE_DP2 TP3 EP4] x")
    assert place == Coordinates(dp=1, pp=1, attn_cp=0, moe_dp=2, tp=3, ep=4)
    assert str(place) == "DP1 PP1 ATTN_CP0 MOE_DP2 TP3 EP4"
    assert global_rank(place, tp=8, pp=2) == 11
    assert global_rank(place, tp=None) is None, "the stage needs the tensor-parallel size"
    assert global_rank(place, tp=2, pp=2) is None, "outside the sizes"
    assert global_rank(Coordinates(dp=1, tp=3), tp=None) == 3
    assert coordinates("sglang::scheduler_DP1_TP3_EP3") == Coordinates(dp=1, tp=3, ep=3)
    assert coordinates("HTTP1 STEP2") is None


def test_small_and_large_logs_are_searched_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two searches find the same places, also where one literal begins another or lies inside it."""
    text = "".join(f"x{literal}{literal[:-1]}\u00e9 {literal} y\n" for literal in LITERALS).encode()
    small = scan._offsets(text, list(LITERALS))
    monkeypatch.setattr(scan, "SMALL", 0)
    assert scan._offsets(text, list(LITERALS)) == small
    assert len(small) > len(LITERALS)
