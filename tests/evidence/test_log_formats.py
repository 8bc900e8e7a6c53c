# ruff: noqa: E501 - log lines keep their length
"""Log formats of collectives (watchdogs, desync report, gloo): two real shapes each with values of our own, and a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtrace.evidence.coordinates import Coordinates
from evidence.log_rows import Rows, check, read, row

WATCHDOG: dict[str, tuple[str, Rows]] = {
    "generation 1": (
        (
            "[E ProcessGroupNCCL.cpp:458] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7312, "
            "OpType=ALLREDUCE, Timeout(ms)=900000) ran for 901221 milliseconds before timing out.\n"
        ),
        [row(rank=None, group_rank=3, number=7312, op="all_reduce", numel_in=None, timeout_ms=900000, ran_ms=901221)],
    ),
    "generation 2": (
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=4417, OpType=GATHER, NumelIn=81920, NumelOut=0, Timeout(ms)=600000) ran for 600041 "
            "milliseconds before timing out.\n"
            "[rank1]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 1] Timeout at NCCL work: 4417, last enqueued NCCL work: "
            "4419, last completed NCCL work: 4416.\n"
        ),
        [
            row(rank=1, group_rank=1, number=4417, op="gather", numel_in=81920, numel_out=0, comm=None),
            row(rank=1, number=4417, comm=("1", ""), last_enqueued=4419, last_completed=4416, op=None),
        ],
    ),
    "generation 3": (
        (
            "[rank12]:[E1023 11:04:40.718003551 ProcessGroupNCCL.cpp:1785] [PG 3 Rank 4] Exception (either an error or "
            "timeout) detected by watchdog at work: 512, last enqueued NCCL work: 514, last completed NCCL work: 511.\n"
            "[rank0]:[E1023 11:04:41.018003551 ProcessGroupNCCL.cpp:1785] [PG 0 (default_pg) Rank 0] Exception (either an "
            "error or timeout) detected by watchdog at work: 77, last enqueued NCCL work: 77, last completed NCCL work: 76.\n"
        ),
        [
            row(rank=12, group_rank=4, comm=("3", ""), number=512, last_enqueued=514, time="1023 11:04:40"),
            row(rank=0, group_rank=0, comm=("0", "default_pg"), number=77, last_completed=76),
        ],
    ),
    "generation 4": (
        (
            "[rank6]:[E209 07:41:17.000000001 ProcessGroupNCCL.cpp:1895] [PG ID 2 PG GUID 5 Rank 2] Exception (either an "
            "error or timeout) detected by watchdog at work: 90211, last enqueued NCCL work: 90300, last completed NCCL "
            "work: 90210.\n"
            "[rank3]:[E209 07:41:17.100000001 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 3] Exception "
            "(either an error or timeout) detected by watchdog at work: 9, last enqueued NCCL work: 9, last completed NCCL "
            "work: 8.\n"
        ),
        [
            row(rank=6, group_rank=2, comm=("5", ""), number=90211, last_enqueued=90300),
            row(rank=3, group_rank=3, comm=("0", "default_pg"), number=9),
        ],
    ),
    "generation 5": (
        (
            "[rank5]:[E714 23:10:09.100000000 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=3310, OpType=_ALLGATHER_BASE, NumelIn=20480, NumelOut=40960, Timeout(ms)=300000) ran "
            "for 300012 milliseconds before timing out.\n"
            "[rank5]:[E714 23:10:09.100500000 ProcessGroupNCCL.cpp:2252] [PG ID 4 PG GUID 7(attention_tp:device) Rank 1]  "
            "failure detected by watchdog at work sequence id: 3310 PG status: last enqueued work: 3342, last completed "
            "work: 3309\n"
        ),
        [
            row(rank=5, group_rank=1, number=3310, op="all_gather", numel_in=20480, numel_out=40960),
            row(rank=5, number=3310, comm=("7", "attention_tp:device"), last_enqueued=3342, last_completed=3309),
        ],
    ),
    "dump signals": (
        (
            "[rank7]:[E714 23:10:10.1 ProcessGroupNCCL.cpp:1536] [PG ID 0 PG GUID 0(default_pg) Rank 7] Received a dump "
            "signal due to a collective timeout from  rank 6 and we will try our best to dump the debug info. Last enqueued "
            "NCCL work: 460, last completed NCCL work: 459.This is most likely caused by incorrect usages of collectives.\n"
            "[rank6]:[E714 23:10:10.2 ProcessGroupNCCL.cpp:1536] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump "
            "signal due to a collective timeout from this local rank and we will try our best to dump the debug info. Last "
            "enqueued NCCL work: 461, last completed NCCL work: 459.\n"
        ),
        [
            row(rank=7, number=None, last_enqueued=460, last_completed=459, state=None),
            row(rank=6, number=None, last_enqueued=461, state=None),
        ],
    ),
    "torch_npu": (
        (
            "[rank1]:[E324 13:00:25.428029551 compiler_depend.ts:574] [Rank 1] Watchdog caught collective operation "
            "timeout: WorkHCCL(SeqNum=205, OpType=ALLREDUCE, Timeout(ms)=1836000) ran for 1836077 milliseconds before "
            "timing out.\n"
            "[rank0]:[E324 13:00:26.428029551 compiler_depend.ts:574] [Rank 0] Watchdog caught collective operation "
            "timeout: WorkHCCL(SeqNum=206, OpType=BROADCAST, Timeout(ms)=1836000) ran for 1836003 milliseconds before "
            "timing out.\n"
        ),
        [
            row(format="hccl-watchdog", rank=1, number=205, op="all_reduce"),
            row(format="hccl-watchdog", rank=0, number=206, op="broadcast"),
        ],
    ),
}


@pytest.mark.parametrize("case", WATCHDOG)
def test_watchdog(tmp_path: Path, case: str) -> None:
    text, operations = WATCHDOG[case]
    check(read(tmp_path, text), operations, [])


BODY = (
    "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=BROADCAST, NumelIn=7, "
    "NumelOut=7, Timeout(ms)=60000) ran for 60001 milliseconds before timing out."
)
PREFIXES = {
    "torchrun": ("[rank6]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] " + BODY, 6, None, "321 02:07:08"),
    "without rank or time": ("[E ProcessGroupNCCL.cpp:458] " + BODY, None, None, None),
    "ray with a stray colour": ("\x1b[36m(RayWorkerWrapper pid=4009)[0m [rank6]:[E321 02:07:08.4 P.cpp:6] " + BODY, 6, None, "321 02:07:08.4"),
    "ray with a torn colour": ("[36m(RayWorkerWrapper pid=4009) [rank6]:[E321 02:07:08.4 P.cpp:6] " + BODY, 6, None, "321 02:07:08.4"),
    "notebook": ("[80746] [rank6]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:6] " + BODY, 6, None, "321 02:07:08.4"),
    "box": ("│ [rank6]: " + BODY + "   │", 6, None, None),
    "kubernetes": (
        "2026-03-24T12:06:11.850202858+08:00 stderr F [rank6]:[W324 12:06:11.8 ProcessGroupNCCL.cpp:6] " + BODY,
        6, None, "324 12:06:11.8",
    ),
    "pod": ("[pod/wide-ep-prefill-0/vllm] (Worker_DP1_TP2 pid=71) " + BODY, None, Coordinates(dp=1, tp=2), None),
    "docker": ("sglang-1  | [2025-10-29 11:25:58 DP1 TP3 EP3] " + BODY, None, Coordinates(dp=1, tp=3, ep=3), "2025-10-29 11:25:58"),
    "vllm twice": (
        "(APIServer pid=716) (EngineCore_DP0 pid=1101) ERROR 01-29 10:00:01 [core.py:5] " + BODY,
        None, Coordinates(dp=0), "01-29 10:00:01",
    ),
    "mpirun": ("[1,6]<stderr>:" + BODY, 6, None, None),
    "older vllm": ("(VllmWorker rank=6 pid=11) ERROR 05-28 14:44:28 [x.py:1] " + BODY, 6, None, "05-28 14:44:28"),
    "torch_npu wrapper": ("[ERROR] 2025-06-25-10:45:23 (PID:13075, Device:0, RankID:6) " + BODY, 6, None, "2025-06-25-10:45:23"),
    "torch_npu without a rank": ("[ERROR] 2025-06-25-10:45:23 (PID:13075, Device:0, RankID:-1) " + BODY, None, None, "2025-06-25-10:45:23"),
}  # fmt: skip


@pytest.mark.parametrize("case", PREFIXES)
def test_prefixes(tmp_path: Path, case: str) -> None:
    text, rank, place, time = PREFIXES[case]
    want = row(rank=rank, coordinates=place, group_rank=2, number=88, op="broadcast", numel_in=7, time=time, line=2)
    check(read(tmp_path, "starting\n" + text + "\nbye\n"), [want], [])


@pytest.mark.parametrize("cut", range(30, len(BODY) - 12, 7))
def test_lines_wrapped_inside_a_word(tmp_path: Path, cut: int) -> None:
    text = "[rank6]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] " + BODY[:cut] + "\n" + BODY[cut:] + "\nnext\n"
    result = read(tmp_path, text)
    assert [(row.rank, row.number, row.op, row.numel_out) for row in result.operations] == [(6, 88, "broadcast", 7)]


def test_repetitions_count_once(tmp_path: Path) -> None:
    line = "[rank6]:[E321 02:07:0{}.4 ProcessGroupNCCL.cpp:607] " + BODY + "\n"
    what = "[rank6]:   what():  " + BODY + "\n"
    result = read(tmp_path, line.format(1) + line.format(1) + line.format(2) + what)
    assert (len(result.operations), result.duplicates) == (1, 3)


@pytest.mark.parametrize(
    ("family", "line"),
    [
        ("nccl-watchdog", "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=x88, OpType=BROADCAST)"),
        ("nccl-watchdog", "[PG ID 2 PG GUID 3 Rank 0] failure detected by watchdog at work sequence id: eleven"),
        ("nccl-watchdog", "Received a dump signal due to a full moon"),
        ("nccl-desync", "\t - [0] Timeout at collective: ALLREDUCE"),
        ("gloo", "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 18"),
        ("gloo", "Rank one failed to pass monitoredBarrier in 4000 ms"),
        ("gloo", "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(Op"),
        ("hccl", "EI0002: [PID: 29] the notify register"),
        ("deepep", "DeepEP timeout for something new, rank 3"),
        ("sglang", "Scheduler watchdog timeout (self.watchdog_timeout=?)"),
        ("sglang", "self.cur_batch.batch_size()=many"),
        ("py-spy", "Pyspy dump for PID 12:"),
        ("vllm", "No available shared memory broadcast block found in a while"),
        ("vllm", "RPC call to sample_tokens has timed out"),
        ("nccl-ras", "#0-0 (27a079b828ff1a75) MISMATCH"),
        ("failure", "NVRM: Xid (PCI:?)"),
    ],
)  # fmt: skip
def test_almost_lines_are_counted_and_not_guessed(tmp_path: Path, family: str, line: str) -> None:
    result = read(tmp_path, f"hello\n{line}\nbye\n")
    assert (result.not_understood, result.operations, result.facts) == ({family: 1}, [], [])


DESYNC = """[rank0]:[E515 18:36:47.343377708 ProcessGroupNCCL.cpp:1937] Rank 0
\t - [0] Timeout at collective: ALLREDUCE, #{at}
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   [{late}] finished collective #{done}, but didn't join collective #{next} (count from 1)
\t - Snapshot of ranks' latest states:
\t   #{done} finished ranks:
\t     [{late}] finished ALLREDUCE
\t   #{at} started ranks:
\t     [0, 1, 2] started ALLREDUCE
[rank0]: more
"""


def test_desync_report(tmp_path: Path) -> None:
    result = read(tmp_path, DESYNC.format(at=41, late="7", done=38, next=39))
    check(
        result,
        [row(rank=0, group_rank=0, number=41, op="all_reduce", state="timeout", format="nccl-desync")],
        [
            row(kind="missing", rank=0, group_ranks=(7,), number=39, group_rank=0),
            row(kind="snapshot", details={"#38 finished ALLREDUCE": "7", "#41 started ALLREDUCE": "0, 1, 2"}),
        ],
    )


def test_desync_report_with_ranges_and_ranks_that_never_joined(tmp_path: Path) -> None:
    text = (
        "[rank3]:\t - [3] Timeout at collective: BROADCAST, #2\n"
        "[rank3]:\t - ranks [0-2, 5] are the lagging ranks that caused this timeout. They never joined any collectives\n"
        "[rank3]:\t   [8, 9] joined but didn't finish collective #2 (count from 1)\n"
    )
    check(
        read(tmp_path, text),
        [row(rank=3, group_rank=3, number=2, op="broadcast")],
        [row(kind="missing", group_ranks=(0, 1, 2, 5), rank=3), row(kind="note", group_ranks=(8, 9), number=2)],
    )


FINGERPRINT = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {a} is running collective: "
    "CollectiveFingerPrint({sa}OpType={oa}, TensorShape=[{ta}], TensorDtypes={da}, TensorDeviceTypes=TensorOptions("
    "dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false (default), pinned_memory=false "
    "(default), memory_format=(nullopt))), but Rank {b} is running collective: CollectiveFingerPrint({sb}OpType={ob}, "
    "TensorShape=[{tb}], TensorDtypes={db}, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu))."
    "Collectives differ in the following aspects: \t Tensor Tensor shapes: 6 8vs 5 8"
)
GLOO_PATH = "[/srv/build/pytorch/third_party/gloo/gloo/transport/tcp/"

GLOO: dict[str, tuple[str, Rows]] = {
    "timeouts": (
        (f"[rank2]: RuntimeError: {GLOO_PATH}unbound_buffer.cc:78] Timed out waiting 7000ms for recv operation to complete\n"
        "[trainer22|6]:RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for send "
        "operation to complete\n"),
        [
            row(kind="timeout", rank=2, details={"timeout_ms": 7000, "direction": "recv"}),
            row(kind="timeout", rank=None, details={"timeout_ms": 1800000, "direction": "send"}),
        ],
    ),
    "lost peers": (
        (f"[rank0]: RuntimeError: {GLOO_PATH}pair.cc:537] Read error [10.1.0.7]:23430: Connection reset by peer. This is "
        "typically caused by a remote worker hanging or bugs in the application.\n"
        f"[rank3]: RuntimeError: {GLOO_PATH}pair.cc:553] Connection closed by peer [::1]:1929. This is typically caused "
        "by a remote worker crashing.\n"),
        [
            row(kind="lost-peer", rank=0, details={"peer": "10.1.0.7", "why": "Connection reset by peer"}),
            row(kind="lost-peer", rank=3, details={"peer": "::1", "why": "connection closed"}),
        ],
    ),
    "aborts": (
        ("terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        f"  what():  [enforce fail at {GLOO_PATH[1:]}pair.cc:456] op.preamble.length <= op.nbytes. 48 vs 36. Received "
        "data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
        f"[rank1]:   what():  [enforce fail at {GLOO_PATH[1:]}pair.cc:456] op.preamble.length <= op.nbytes. 4096 vs 16.\n"),
        [
            row(kind="mismatch", rank=None, details={"received_bytes": 48, "expected_bytes": 36}),
            row(kind="mismatch", rank=1, details={"received_bytes": 4096, "expected_bytes": 16}),
        ],
    ),
    "monitored barrier": (
        ("[rank0]:[E1130 08:57:53.470218828 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank 3 failed to pass monitoredBarrier "
        "in 9000 ms\n"
        "[rank0]:[E1130 08:57:53.470328671 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier "
        "in 9000 ms\n"
        "[rank2]:[E1130 08:57:54.483986701 ProcessGroupGloo.cpp:67] Rank 2 successfully reached monitoredBarrier, but "
        "received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"),
        [
            row(kind="missing", rank=0, group_rank=0, group_ranks=(3,)),
            row(kind="missing", rank=0, group_rank=0, group_ranks=(1, 3)),
            row(kind="waiting", rank=2, group_rank=2, group_ranks=(0,)),
        ],
    ),
    "fingerprints": (
        "[rank0]: "
        + FINGERPRINT.format(
            a=0, sa="SequenceNumber=29, ", oa="ALLREDUCE", ta="6, 8", da="Float",
            b=1, sb="SequenceNumber=29, ", ob="ALLREDUCE", tb="5, 8", db="Float",
        )
        + "\n[rank1]: "
        + FINGERPRINT.format(a=1, sa="", oa="ALLGATHER", ta="", da="Long", b=0, sb="", ob="BROADCAST", tb="2", db="Int")
        + "\n",
        [
            row(
                kind="mismatch", rank=0, group_rank=0, group_ranks=(1,), number=30,
                details={
                    "own": {"op": "all_reduce", "shape": [6, 8], "dtype": "Float"},
                    "peer": {"op": "all_reduce", "shape": [5, 8], "dtype": "Float"},
                },
            ),
            row(kind="mismatch", rank=1, number=None, details={"own": {"op": "all_gather", "shape": [], "dtype": "Long"}}),
        ],
    ),
}  # fmt: skip


def test_a_stuck_watchdog(tmp_path: Path) -> None:
    text = (
        "[rank3]:[F ProcessGroupNCCL.cpp:1366] [PG ID 0 PG GUID 0(default_pg) Rank 3] [PG ID 0 PG GUID 0(default_pg) Rank 3] "
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n"
        "[rank5]:[F ProcessGroupNCCL.cpp:1366] [PG ID 2 PG GUID  Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 "
        "seconds without making progress in monitoring enqueued collectives.\n"
    )
    check(
        read(tmp_path, text),
        [],
        [
            row(kind="watchdog", rank=3, group_rank=3, comm=("0", "default_pg"), details={"seconds": 480}),
            row(kind="watchdog", rank=5, group_rank=1, comm=None, details={"seconds": 600}),
        ],
    )


@pytest.mark.parametrize("case", GLOO)
def test_gloo(tmp_path: Path, case: str) -> None:
    text, facts = GLOO[case]
    check(read(tmp_path, text), [], facts)


def test_a_fingerprint_in_a_box_and_wrapped(tmp_path: Path) -> None:
    whole = "[rank0]: " + FINGERPRINT.format(
        a=0, sa="SequenceNumber=3, ", oa="ALLREDUCE", ta="4", da="Float", b=2, sb="SequenceNumber=3, ", ob="ALLREDUCE",
        tb="4", db="Double",
    )  # fmt: skip
    text = "".join(f"│ {whole[at : at + 300]} │\n" for at in range(0, len(whole), 300))
    result = read(tmp_path, text)
    assert [fact.group_ranks for fact in result.facts] == [(2,)]
