# ruff: noqa: E501 - log lines keep their length
"""What logs alone, or logs beside dumps, support."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard

from divtrace.evidence.coordinates import Coordinates, global_rank
from evidence.jobs import LEFT, Op, analyse, four_ranks
from evidence.test_log_formats import FINGERPRINT

TIMEOUT = (
    "RuntimeError: [/b/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete"
)


def logs(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.err").write_text(text)
    return folder


def watchdog(rank: int, group_rank: int, number: int, enqueued: int, group: str = "7(attention_tp:device)") -> str:
    tag = f"[rank{rank}]:[E714 23:10:09.1 ProcessGroupNCCL.cpp:685] "
    return (
        f"{tag}[Rank {group_rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, "
        "OpType=ALLREDUCE, NumelIn=20480, NumelOut=20480, Timeout(ms)=300000) ran for 300012 milliseconds before timing "
        f"out.\n{tag}[PG ID 4 PG GUID {group} Rank {group_rank}]  failure detected by watchdog at work sequence id: "
        f"{number} PG status: last enqueued work: {enqueued}, last completed work: {number - 1}\n"
    )


class Layout:
    """A topology with two groups of two."""

    def members(self, communicator: str, rank: int) -> tuple[int, ...] | None:
        return ((0, 1), (2, 3))[rank // 2] if communicator == "attention_tp" and rank < 4 else None


def test_watchdog_lines_of_one_work_are_one_operation(tmp_path: Path) -> None:
    found = analyse(logs(tmp_path, server=watchdog(2, 0, 331, 340) + watchdog(3, 1, 331, 331)))
    first, second = found.log_operations
    assert (first.rank, first.group_rank, first.number, first.op, first.last_enqueued) == (2, 0, 331, "all_reduce", 340)
    assert first.comm is not None
    assert (first.comm.name, first.comm.desc) == ("7", "attention_tp:device")
    assert second.rank == 3
    assert [t.ranks for t in found.timeouts] == [(2,), (3,)]


def test_without_members_nothing_is_called_behind(tmp_path: Path) -> None:
    found = analyse(logs(tmp_path, server=watchdog(2, 0, 331, 340)))
    assert (found.verdict, found.behind) == ("insufficient", ())


def test_a_member_whose_counter_is_lower_is_behind(tmp_path: Path) -> None:
    signal = (
        "[rank3]:[E714 23:10:10.1 ProcessGroupNCCL.cpp:1536] [PG ID 4 PG GUID 7(attention_tp:device) Rank 1] Received a "
        "dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug info. Last "
        "enqueued NCCL work: 330, last completed NCCL work: 330.\n"
    )
    folder = logs(tmp_path, server=watchdog(2, 0, 331, 340) + signal)
    found = analyse(folder, topology=Layout())
    assert (found.verdict, found.behind, found.ahead) == ("rank_silent", (3,), (2,))


def test_a_silent_member_is_unobserved(tmp_path: Path) -> None:
    found = analyse(logs(tmp_path, server=watchdog(2, 0, 331, 340)), topology=Layout())
    assert (found.verdict, found.behind) == ("insufficient", ())
    assert [wait.awaited for wait in found.waits.unobserved] == [(0, 3)]


def test_log_counters_join_the_dumps_of_the_same_group(tmp_path: Path) -> None:
    """Rank 1 enqueued operation 7 after its dump was written: its log says so, and nobody is behind any more."""
    folder = four_ranks(r0=[Op(LEFT, done=False)]).write(tmp_path)
    assert analyse(folder).behind == (1,)
    logs(folder, rank1=watchdog(1, 1, 7, 7, "1(attention_tp:device)"))
    assert analyse(folder).behind == ()


def test_a_raise_and_a_straggler_have_the_same_timeout_and_other_answers(tmp_path: Path) -> None:
    vllm = "(Worker_TP{} pid=5) ERROR 01-02 03:04:05 [m.py:1] "
    traceback = 'Traceback (most recent call last):\n{}  File "/srv/b.py", line 9, in sample\n{}'
    waiting = vllm.format(0) + traceback.format(*[vllm.format(0)] * 2) + TIMEOUT + "\n"
    raised = vllm.format(1) + traceback.format(*[vllm.format(1)] * 2) + "ValueError: no such row\n"
    straggler = analyse(logs(tmp_path / "a", stdout=waiting))
    failed = analyse(logs(tmp_path / "b", stdout=raised + waiting))
    assert straggler.timeouts == failed.timeouts
    assert straggler.timeouts[0].ranks == (0,)
    assert (straggler.verdict, straggler.failed) == ("insufficient", ())
    assert (failed.verdict, failed.failed) == ("rank_failed", (1,))


def test_a_monitored_barrier_names_who_is_missing(tmp_path: Path) -> None:
    reached = (
        "[rank{0}]: Rank {0} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
        "rank 0. Please check rank 0 logs for faulty rank.\n"
    )
    folder = logs(
        tmp_path,
        rank0="[rank0]: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 5000 ms\n",
        rank1=reached.format(1),
        rank3=reached.format(3),
    )
    found = analyse(folder)
    assert (found.verdict, found.behind) == ("rank_silent", (2,))


def test_a_barrier_of_a_group_that_nobody_knows_names_no_global_rank(tmp_path: Path) -> None:
    text = "[rank4]: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 5000 ms\n"
    found = analyse(logs(tmp_path, rank4=text))
    assert found.behind == ()
    assert [(fact.rank, fact.group_rank, fact.ranks) for fact in found.facts] == [(4, 0, ())]
    assert any("ranks 1 of a process group whose members are not known" in note for note in found.notes)


def test_fingerprints_make_a_finding_with_a_majority(tmp_path: Path) -> None:
    def line(own: int, peer: int, own_op: str, peer_op: str) -> str:
        text = FINGERPRINT.format(
            a=own, sa="SequenceNumber=5, ", oa=own_op, ta="4", da="Float", b=peer, sb="SequenceNumber=5, ", ob=peer_op,
            tb="4", db="Float",
        )  # fmt: skip
        return f"[rank{own}]: {text}\n"

    usual, odd = "ALLREDUCE", "ALLGATHER"
    folder = logs(
        tmp_path,
        rank0=line(0, 2, usual, odd),
        rank1=line(1, 2, usual, odd),
        rank2=line(2, 0, odd, usual),
        rank3=line(3, 2, usual, odd),
    )
    (finding,) = analyse(folder).findings
    assert (finding.rule, finding.ranks, finding.odd_ranks) == ("collective-order", (0, 1, 2, 3), (2,))
    assert finding.values == {0: "all_reduce", 1: "all_reduce", 2: "all_gather", 3: "all_reduce"}


def test_fingerprints_of_two_sub_groups_stay_apart(tmp_path: Path) -> None:
    def line(rank: int, own: int, peer: int, own_shape: str, peer_shape: str) -> str:
        text = FINGERPRINT.format(
            a=own, sa="SequenceNumber=5, ", oa="ALLREDUCE", ta=own_shape, da="Float", b=peer, sb="SequenceNumber=5, ",
            ob="ALLREDUCE", tb=peer_shape, db="Float",
        )  # fmt: skip
        return f"[rank{rank}]: {text}\n"

    folder = logs(tmp_path, rank4=line(4, 0, 1, "6, 8", "5, 8"), rank5=line(5, 1, 0, "5, 8", "6, 8"))
    found = analyse(folder)
    assert not found.findings, "nothing tells that ranks 4 and 5 are in one group"


def test_batches_of_one_replica(tmp_path: Path) -> None:
    def batch(dp: int, tp: int, size: int) -> str:
        rids = ", ".join(f"Req(rid=r{i}, input_ids=[1], output_ids=[2])" for i in range(size))
        return (
            f"[2026-08-01 10:00:0{tp} DP{dp} TP{tp}] Scheduler debug info:\n"
            f"scheduler.cur_batch_for_debug.batch_size()={size}\nscheduler.cur_batch_for_debug.reqs=[{rids}]\n"
        )

    sizes = {0: 24, 1: 24, 2: 25, 3: 24}
    # The lines behind the first carry no prefix of their own.
    (tmp_path / "server.log").write_text("".join(batch(0, tp, size) for tp, size in sizes.items()) + batch(1, 4, 3))
    found = analyse(tmp_path, replicas=[[0, 1, 2, 3], [4, 5]])
    (finding,) = found.findings
    assert (finding.rule, finding.field, finding.odd_ranks) == ("batch-membership", "batch", (2,))
    assert dict(finding.fields)["batch_size"] == sizes
    assert found.verdict == "divergence"


def test_short_batch_lines_compare_sizes_only(tmp_path: Path) -> None:
    lines = [
        f"[2026-08-01 10:00:00 TP{tp}] batch_size()={size}, first_req=r{tp}\n" for tp, size in enumerate((9, 9, 8, 9))
    ]
    (finding,) = analyse(logs(tmp_path, all="".join(lines))).findings
    assert (finding.field, finding.values, finding.odd_ranks) == ("batch_size", {0: 9, 1: 9, 2: 8, 3: 9}, (2,))
    equal = [f"[2026-08-01 10:00:00 TP{tp}] batch_size()=9, first_req=r{tp}\n" for tp in range(3)]
    assert not analyse(logs(tmp_path / "b", all="".join(equal))).findings


def test_coordinates_become_ranks_by_the_sizes(tmp_path: Path) -> None:
    text = "[2026-08-01 10:00:00 PP1 TP2] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
    folder = logs(tmp_path, server=text)
    (unknown,) = analyse(folder).facts
    assert (unknown.rank, unknown.coordinates) == (None, Coordinates(pp=1, tp=2))
    (known,) = analyse(folder, place_rank=lambda place: global_rank(place, tp=4, pp=2)).facts
    assert known.rank == 6


@pytest.mark.parametrize("seconds", ["240..0", ".", "1.2.3", "9" * 12])
def test_what_is_no_number_of_seconds_is_no_watchdog(tmp_path: Path, seconds: str) -> None:
    text = f"[2026-08-01 10:00:00 TP2] Scheduler watchdog timeout (self.watchdog_timeout={seconds}, self.soft=False)\n"
    assert not analyse(logs(tmp_path, server=text)).facts


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_logs_also_when_cut(tmp_path: Path, pack: object) -> None:
    content = ("filler\n" * 5000 + watchdog(2, 0, 331, 340) + "tail\n" * 50000).encode()
    packed = pack(content)  # type: ignore[operator]
    (tmp_path / "whole").write_bytes(packed)
    assert analyse(tmp_path).log_operations[0].number == 331
    (tmp_path / "whole").write_bytes(packed[:-8])
    found = analyse(tmp_path)
    assert [entry.path for entry in found.unreadable] == ["whole"]


def test_text_without_evidence_is_ignored(tmp_path: Path) -> None:
    folder = logs(tmp_path, notes="nothing happened\n", config="a: 1\n")
    found = analyse(folder)
    assert (found.ignored, found.files, found.verdict) == (("config.err", "notes.err"), (), "insufficient")


def test_inspector_and_ras(tmp_path: Path) -> None:
    inspector = (
        '{"header":{"id":"0x7f","rank":3,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0",'
        '"dump_timestamp_us":1,"hostname":"h","pid":1},"coll_perf":{"coll":"AllReduce","coll_sn":%d,'
        '"coll_msg_size_bytes":65536,"coll_exec_time_us":61}}\n'
    )
    (tmp_path / "inspector.log").write_text(inspector % 11 + inspector % 12 + "{broken\n")
    ras = (
        '{"nccl_version":"2.28.7","communicators_count":1,"communicators":[{"hash":"0x27a0","size":3,"ranks":['
        '{"rank":0,"status":{"init_state":"success","async_error":"success"},"collective_counts":{"AllReduce":9}},'
        '{"rank":1,"status":{"init_state":"success","async_error":"remote error"},"collective_counts":{"AllReduce":8}}],'
        '"missing_ranks":[{"rank":2,"status":{"unresponsive":true,"considered_dead":true}}]}]}'
    )
    (tmp_path / "ras.json").write_text(ras)
    found = analyse(tmp_path)
    assert [(o.group_rank, o.number, o.op, o.state) for o in found.log_operations] == [
        (3, 11, "all_reduce", "completed"),
        (3, 12, "all_reduce", "completed"),
    ]
    (fact,) = found.facts
    assert (fact.kind, fact.group_ranks, fact.ranks) == ("missing", (2,), ())
    assert fact.details["differing"] == {"AllReduce": {"9": [0], "8": [1]}}
    assert fact.details["considered_dead"] == [2]
    assert found.not_understood == {"nccl-inspector": 1}
    assert found.behind == ()


def test_a_damaged_ras_report_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "ras.json").write_text('{"nccl_version":"2.28.7","communicators":[{"hash":')
    (entry,) = analyse(tmp_path).unreadable
    assert "cut or no JSON" in entry.what


def test_a_size_that_gloo_refused_is_told(tmp_path: Path) -> None:
    text = (
        "[rank3]:   what():  [enforce fail at /w/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
        "48 vs 40. Received data size doesn't match expected size. Is there a distributed collective mismatch?\n"
    )
    found = analyse(logs(tmp_path, rank3=text))
    assert (found.verdict, found.behind, found.findings) == ("insufficient", (), ())
    assert any(":1: rank 3 received 48 bytes where it expected 40" in note for note in found.notes)


KILLED = "worker 4 received SIGKILL\n"


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ({"rank0": watchdog(0, 0, 31, 31, "0(default_pg)")}, "rank_failed"),
        ({"server": "(EngineCore_DP0 pid=3) ERROR 01-02 03:09:05 [core.py:1] TimeoutError: RPC call to x timed out.\n"}, "rank_failed"),
        ({"rank2": watchdog(2, 0, 31, 31, "0(default_pg)")}, "insufficient"),
        ({"server": "TimeoutError: call to x timed out.\n"}, "insufficient"),
    ],
)  # fmt: skip
def test_who_waits_for_a_rank_that_was_killed(tmp_path: Path, others: dict[str, str], verdict: str) -> None:
    """Another rank's watchdog, or the engine, which waits for all workers; not the rank's own timeout."""
    texts = {"rank2": "", **others}
    texts["rank2"] += KILLED
    found = analyse(logs(tmp_path, **texts))
    assert (found.verdict, found.failing) == (verdict, (2,))


def test_a_timeout_in_a_group_without_the_failed_rank_does_not_wait_for_it(tmp_path: Path) -> None:
    found = analyse(logs(tmp_path, rank0=watchdog(0, 0, 31, 31), rank2=KILLED), topology=Layout())
    assert (found.failing, found.failed) == ((2,), ())


@pytest.mark.parametrize("code", [-6, -15, 0])
def test_an_exit_that_somebody_else_caused_is_no_failure(tmp_path: Path, code: int) -> None:
    text = f"  rank      : 5 (local_rank: 1)\n  exitcode  : {code} (pid: 7)\n"
    found = analyse(logs(tmp_path, server=text, rank0=watchdog(0, 0, 31, 31, "0(default_pg)")))
    assert (found.failing, found.verdict) == ((), "insufficient")
