# ruff: noqa: E501 - log lines keep their length
"""Every log format, in at least two real shapes with values of our own, and in a damaged one.

A case is the text of a log and what must come out: for each row the attributes that matter, in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from divtrace.evidence.coordinates import Coordinates
from divtrace.evidence.facts import Fact, Operation
from divtrace.evidence.logs.registry import FAMILIES, LITERALS
from divtrace.evidence.logs.scan import ScanResult, scan

Rows = list[dict[str, Any]]


def row(**attributes: Any) -> dict[str, Any]:
    """What is expected of one row."""
    return attributes


def read(tmp_path: Path, text: str) -> ScanResult:
    path = tmp_path / "server.log"
    path.write_text(text)
    return scan(path, "server.log")


def shown(found_row: Operation | Fact, names: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        if name == "comm":
            found[name] = (found_row.comm.name, found_row.comm.desc) if found_row.comm else None
        elif name == "line":
            found[name] = found_row.place.line
        elif name == "details" and isinstance(found_row, Fact):
            found[name] = {key: found_row.details.get(key) for key in names["details"]}
        else:
            found[name] = getattr(found_row, name)
    return found


def check(result: ScanResult, operations: Rows, facts: Rows) -> None:
    assert result.not_understood == {}
    assert [shown(found, want) for found, want in zip(result.operations, operations, strict=True)] == operations
    assert [shown(found, want) for found, want in zip(result.facts, facts, strict=True)] == facts


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
        [row(group_rank=0, number=41, op="all_reduce", state="timeout", format="nccl-desync")],
        [
            row(kind="missing", group_ranks=(7,), number=39, group_rank=0),
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
                kind="mismatch", rank=0, group_rank=0, group_ranks=(1,), number=29,
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


HCCL: dict[str, tuple[str, Rows]] = {
    "EI0002 with a remote rank": (
        ("EI0002: [PID: 3001] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times out. Reason: The "
        "Notify register has not received the Notify record from remote rank: [12]. base information: [streamID:[109], "
        "taskID[38], taskType[Notify Wait], tag[AllReduce_group_name_165NHRAllReduceComm_device], AlgType(level 0-1-2):"
        "[ring-NHR-NHR].]. task information: [notify id:[0x0000000000000213], stage:[0], remote rank:[12]]. group "
        "information: [group:[group_name_165], user define information[Unspecified], rankSize[16], rankId[13 12]]\n"),
        [
            row(
                kind="waiting", format="hccl-ei0002", group_rank=13, group_ranks=(12,), comm=("group_name_165", ""),
                time="2025-10-11-15:09:34.713.335", details={"op": "all_reduce", "rank_size": 16},
            )
        ],
    ),
    "EI0002 without one": (
        ("[rank3]: EI0002: [PID: 77] 2025-03-26-13:01:02.003.004 The wait execution of the Notify register times out. "
        "Reason: The Notify register has not received the Notify record from remote rank: [unknown]. base information: "
        "[streamID:[3], taskID[8], tag[Broadcast_172.16.38.219%eth0_60000_0_1742963775856197], AlgType(level 0-1-2):"
        "[fullmesh-H-D-ring].] group information: [rankSize[8], rankId[3].]\n"),
        [row(kind="timeout", rank=3, group_rank=3, group_ranks=(), details={"op": "broadcast", "rank_size": 8})],
    ),
    "EI0006, device and stream": (
        ("EI0006: [PID: 129] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: Remote Rank did not send the "
        "data in time.\n"
        "The error from device(chipId:4, dieId:0), serial number is 9, hccl fftsplus task timeout occurred during task "
        "execution, stream_id:7, sq_id:7, task_id:9861, stuck notify num:2, timeout:1836.\n"
        "The error from device(chipId:6, dieId:0), serial number is 1, hccl fftsplus task timeout occurred during task "
        "execution, stream_id:2, sq_id:2, task_id:11, stuck notify num:1, timeout:30min(default).\n"
        "EE1002: 2024-09-03-16:50:00.041.231 Stream synchronize timeout. rtDeviceSynchronize execute failed, "
        "reason=[stream sync timeout]\n"),
        [
            row(kind="timeout", format="hccl-ei0006", details={"why": "Remote Rank did not send the data in time."}),
            row(kind="timeout", format="hccl-device", details={"chip": 4, "task": 9861}),
            row(kind="timeout", format="hccl-device", details={"chip": 6, "task": 11}),
            row(kind="timeout", format="hccl-ee1002", time="2024-09-03-16:50:00.041.231"),
        ],
    ),
    "EI0002 wrapped": (
        ("EI0002: [PID: 3001] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times out. Reason: The "
        "Notify register has not received the Notify rec\nord from remote rank: [12]. base information: [streamID:[1]]\n"),
        [row(kind="waiting", group_ranks=(12,), group_rank=None, comm=None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HCCL)
def test_hccl(tmp_path: Path, case: str) -> None:
    text, facts = HCCL[case]
    check(read(tmp_path, text), [], facts)


DEEPEP: dict[str, tuple[str, Rows]] = {
    "host": (
        "RuntimeError: DeepEP error: CPU recv timeout\n[2026-01-02 03:04:05 DP1 TP3] DeepEP error: timeout (dispatch CPU)\n",
        [row(kind="timeout", coordinates=None), row(kind="timeout", coordinates=Coordinates(dp=1, tp=3))],
    ),
    "low latency names the peer": (
        (
            "Warning: DeepEP timeout for dispatch receive, rank 2, local_expert_idx 1, src_rank 6\n"
            "Warning: DeepEP timeout for barrier, rank 3, dst_rank 6\n"
        ),
        [
            row(kind="waiting", group_rank=2, group_ranks=(6,), rank=None),
            row(kind="waiting", group_rank=3, group_ranks=(6,), details={"what": "barrier"}),
        ],
    ),
    "the stray bracket": (
        (
            "DeepEP timeout check failed: rank = 5, thread = 0, value = 1024)\n"
            "DeepEP timeout check failed: rank = 5, thread = 3, value = 0)\n"
        ),
        [row(kind="waiting", group_rank=5, group_ranks=(0,)), row(kind="waiting", group_rank=5, group_ranks=(3,))],
    ),
    "channels": (
        (
            "DeepEP timeout for dispatch senders, rank 4, responsible_channel = 7\n"
            "DeepEP timeout for combine receivers, rank 1, responsible_channel = 2, expect = 31\n"
        ),
        [
            row(kind="timeout", group_rank=4, details={"what": "dispatch senders", "channel": 7}),
            row(kind="timeout", group_rank=1, details={"what": "combine receivers", "channel": 2}),
        ],
    ),
    "between nodes": (
        (
            "DeepEP dispatch NVL receiver timeout, channel: 0, RDMA: 1, nvl: 3, src RDMA: 0, src nvl: 5, start: 0, end: 0\n"
            "DeepEP dispatch forwarder timeout (RDMA meta), channel: 0, RDMA: 0, nvl: 7, src RDMA lane: 1, dst NVL: 1, meta: "
            "0, 0, 0, 0\n"
        ),
        [
            row(kind="waiting", group_rank=11, group_ranks=(5,)),
            row(kind="timeout", group_rank=7, group_ranks=()),
        ],
    ),
    "elastic": (
        (
            "DeepEP notify timeout, rank: 6, thread: 2, count: 0\n"
            "DeepEP combine (scale-up wait) timeout, scale-out: 1/2, scale-up: 3/8, channel: 1\n"
        ),
        [row(kind="timeout", group_rank=6), row(kind="timeout", group_rank=11)],
    ),
    "vllm's mask": (
        (
            "(Worker_DP2 pid=9) ERROR 02-03 04:05:06 [all2all.py:9] Fault detected in EP all2all communication: one or more "
            "ranks timed out during dispatch/combine. Mask: [0, 0, 1, 0, 1]\n"
        ),
        [row(kind="missing", group_ranks=(2, 4), coordinates=Coordinates(dp=2))],
    ),
    "docker and colour": (
        "sglang-0  | \x1b[31mWarning: DeepEP timeout for combine receive, rank 2, local_expert_idx 1, src_rank 0\x1b[0m\n",
        [row(kind="waiting", group_rank=2, group_ranks=(0,))],
    ),
}


@pytest.mark.parametrize("case", DEEPEP)
def test_deepep(tmp_path: Path, case: str) -> None:
    text, facts = DEEPEP[case]
    check(read(tmp_path, text), [], facts)


REQ = "Req(rid={}, input_ids=array('q', [1, 2]), output_ids=array('q', [{}]), finished=None)"
SGLANG: dict[str, tuple[str, Rows]] = {
    "watchdogs": (
        ("[2026-08-01 10:00:00 DP0 TP1] Scheduler watchdog timeout (self.watchdog_timeout=240.0, self.soft=False)\n"
        "[2025-03-09 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)\n"),
        [
            row(kind="watchdog", coordinates=Coordinates(dp=0, tp=1), details={"seconds": 240.0, "soft": False}),
            row(kind="watchdog", coordinates=Coordinates(tp=4), details={"seconds": 300.0}),
        ],
    ),
    "batch of today": (
        "[2026-08-01 10:00:00 DP0 TP1] Scheduler debug info:\n"
        "scheduler.cur_batch_for_debug.batch_size()=2\n"
        "scheduler.cur_batch_for_debug.reqs=[" + REQ.format("'a1'", "5, 6") + ", " + REQ.format("'b2'", "") + "]\n",
        [
            row(
                kind="batch",
                line=1,
                coordinates=Coordinates(dp=0, tp=1),
                details={"batch_size": 2, "rids": ["a1", "b2"], "complete": True, "output_lengths": [2, 0]},
            )
        ],
    ),
    "batches of old": (
        ("[2025-06-05 08:28:03 DP3 TP7] self.cur_batch.batch_size()=1, self.cur_batch.reqs=[Req(rid=713f, input_ids=[0, "
        "671], output_ids=[11, 12])], self.token_to_kv_pool_allocator.available_size()=191715\n"
        "[2025-06-22 16:13:55 TP0] self.cur_batch.batch_size()=26,  self.cur_batch.reqs=[Req(rid=77, input_ids=[1\n"),
        [
            row(kind="batch", coordinates=Coordinates(dp=3, tp=7), details={"rids": ["713f"], "complete": True}),
            row(kind="batch", coordinates=Coordinates(tp=0), details={"batch_size": 26, "complete": False}),
        ],
    ),
    "batch of a short line": (
        "TP2: batch_size()=25, first_req=f224663e\n[2026-08-01 10:00:00 TP0] batch_size()=24, first_req=86e5957d\n",
        [
            row(kind="batch", details={"batch_size": 25, "first_rid": "f224663e"}),
            row(kind="batch", coordinates=Coordinates(tp=0), details={"batch_size": 24}),
        ],
    ),
    "consensus and canary": (
        ("[2026-08-01 10:00:00 TP1] Found rank divergence for 3 events(s)! local hash: 0xdeadbeef, events = [('a', 1)]\n"
        "[2026-08-01 10:00:01 TP1] kv_canary violation: launch_tag=verify fail_reason=verify_token+position slot_idx=120 "
        "position=36 stored_token=7 expected_token=9 stored_chain_hash=0x1 expected_aux=0x2\n"),
        [
            row(kind="divergence-reported", details={"count": 3, "hash": "0xdeadbeef"}),
            row(kind="divergence-reported", details={"slot_idx": "120", "position": "36", "expected_token": "9"}),
        ],
    ),
    "plans and graph keys": (
        ("[2026-08-01 10:00:00 TP1] [DSPARK-CPS] num_reqs=3 budget=11 gamma=5 verify_len_range=[1,6]\n"
        "[2026-08-01 10:00:00 TP1] [DSPARK-CPS]   req=2 prefix=4 verify_len=5 sort_survival=[0.9, 0.4]\n"
        "[2026-08-01 10:00:00 TP1] Decode graph replay: worker=target key_size=16 (tokens) mode=VERIFY raw_bs=3\n"),
        [
            row(kind="note", format="sglang-dspark", details={"budget": 11, "low": 1, "high": 6}),
            row(kind="note", details={"req": 2, "verify_len": 5}),
            row(kind="note", format="sglang-graph-key", details={"size": "16", "mode": "VERIFY", "batch": "3"}),
        ],
    ),
    "kubernetes around": (
        ("2026-03-24T12:06:11.850202858Z stderr F [2026-08-01 10:00:00 DP0 PP1 TP1] Scheduler watchdog timeout "
        "(self.watchdog_timeout=240.0, self.soft=True)\n"),
        [row(kind="watchdog", coordinates=Coordinates(dp=0, pp=1, tp=1), details={"soft": True})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SGLANG)
def test_sglang(tmp_path: Path, case: str) -> None:
    text, facts = SGLANG[case]
    check(read(tmp_path, text), [], facts)


PYSPY = """{p}Pyspy dump for PID {pid}:
{p}Process {pid}: sglang::scheduler_DP1_TP3
{p}Python v3.11.4 (/usr/bin/python3.11)

{p}Thread 99 (idle): "Thread-4"
{p}    wait (threading.py:331)
{p}Thread {pid} (active): "MainThread"
{p}    all_reduce (distributed_c10d.py:2806)
{p}    draft (eagle_worker.py:397)
{p}    run_batch (scheduler.py:1480)
"""


@pytest.mark.parametrize("prefix", ["", "sglang-1  | "])
def test_pyspy(tmp_path: Path, prefix: str) -> None:
    result = read(tmp_path, PYSPY.format(p=prefix, pid=231811).replace("\n\n", "\n" + prefix + "\n"))
    (fact,) = result.facts
    assert (fact.kind, fact.coordinates) == ("stack", Coordinates(dp=1, tp=3))
    assert fact.details["frames"] == [
        "all_reduce (distributed_c10d.py:2806)",
        "draft (eagle_worker.py:397)",
        "run_batch (scheduler.py:1480)",
    ]


def test_pyspy_alone(tmp_path: Path) -> None:
    result = read(tmp_path, 'Process 5: python serve.py\nThread 5 (active): "MainThread"\n    verify (worker.py:7)\n')
    assert [fact.details["frames"] for fact in result.facts] == [["verify (worker.py:7)"]]


VLLM: dict[str, tuple[str, Rows]] = {
    "shared memory": (
        (
            "(EngineCore_DP0 pid=77352) INFO 10-22 09:43:49 [shm_broadcast.py:466] No available shared memory broadcast block "
            "found in 60 seconds. This typically happens when some processes are hanging.\n"
            "(EngineCore_DP1 pid=77353) INFO 10-22 09:43:59 [shm_broadcast.py:681] No available shared memory broadcast block "
            "found in 120 seconds. This typically happens (e.g. compilation, weight/kv cache quantization).\n"
        ),
        [
            row(kind="note", coordinates=Coordinates(dp=0), details={"seconds": 60}),
            row(kind="note", coordinates=Coordinates(dp=1), details={"seconds": 120}),
        ],
    ),
    "RPC": (
        (
            "TimeoutError: RPC call to sample_tokens timed out.\n(EngineCore pid=1) ERROR 01-02 03:04:05 [core.py:9] "
            "TimeoutError: RPC call to execute_model timed out.\n"
        ),
        [
            row(kind="timeout", rank=None, details={"method": "sample_tokens"}),
            row(kind="timeout", rank=None, details={"method": "execute_model"}),
        ],
    ),
    "dead workers": (
        (
            "(EngineCore pid=377) ERROR 11-30 09:13:47 [multiproc_executor.py:315] Worker proc VllmWorker-3 died unexpectedly "
            "(exit code: -6), shutting down executor.\n"
            "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.\n"
            "[2026-08-01 10:00:00] Subprocess scheduler_0 (pid=41) crashed with exit code -3. Triggering SIGQUIT for "
            "cleanup...\nSubprocess scheduler_1 crashed with exit code -9. Triggering SIGQUIT for cleanup...\n"
        ),
        [
            row(kind="exited", rank=3, details={"exit_code": -6}),
            row(kind="killed", rank=1, details={"exit_code": -9}),
            row(kind="exited", rank=None, process="scheduler_0", details={"exit_code": -3}),
            row(kind="killed", rank=None, process="scheduler_1"),
        ],
    ),
    "in a pod, coloured": (
        "[pod/vllm-0/vllm] \x1b[33m(EngineCore pid=377) WARNING 11-30 09:13:47 [x.py:3] No available shared memory "
        "broadcast block found in 60 second(s).\x1b[0m\n".replace("second(s)", "seconds"),
        [row(kind="note", process="EngineCore pid=377", details={"seconds": 60})],
    ),
}


@pytest.mark.parametrize("case", VLLM)
def test_vllm(tmp_path: Path, case: str) -> None:
    text, facts = VLLM[case]
    check(read(tmp_path, text), [], facts)


FAILURES: dict[str, tuple[str, Rows]] = {
    "traceback": (
        ('[rank1]: Traceback (most recent call last):\n[rank1]:   File "/srv/a.py", line 3, in step\n[rank1]:     go()\n'
        "[rank1]:     ^^^^\n[rank1]: mylib.errors.NoSuchRow: 17\n"),
        [
            row(
                kind="exception", rank=1, line=5, text="mylib.errors.NoSuchRow: 17",
                details={"symptom": False, "frames": ["step (/srv/a.py:3)"]},
            )
        ],
    ),
    "traceback of a vllm worker, interleaved": (
        ('(Worker_TP1 pid=5) ERROR 01-02 03:04:05 [m.py:1] Traceback (most recent call last):\n'
        '(Worker_TP0 pid=4) ERROR 01-02 03:04:05 [m.py:1] unrelated\n'
        '(Worker_TP1 pid=5) ERROR 01-02 03:04:05 [m.py:1]   File "/srv/b.py", line 9, in sample\n'
        '(Worker_TP1 pid=5) ERROR 01-02 03:04:05 [m.py:1] RuntimeError: bad probabilities\n'),
        [row(kind="exception", coordinates=Coordinates(tp=1), process="Worker_TP1 pid=5", line=4)],
    ),
    "traceback of a timeout is a symptom": (
        ('Traceback (most recent call last):\n  File "/srv/a.py", line 3, in step\n'
        "TimeoutError: RPC call to sample_tokens timed out.\n"),
        [
            row(kind="exception", details={"symptom": True}),
            row(kind="timeout", details={"method": "sample_tokens"}),
        ],
    ),
    "memory": (
        ("[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB (NPU 3; 60.97 GiB total capacity)\n"
        "kernel: Out of memory: Killed process 4711 (python3) total-vm:9kB\n"),
        [
            row(kind="out-of-memory", rank=2),
            row(kind="out-of-memory", rank=None),
            row(kind="killed", details={"pid": 4711}),
        ],
    ),
    "devices": (
        ("kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=99, GPU has fallen off the bus.\n"
        "[  12.3] NVRM: Xid (PCI:0000:5e:00): 31, pid=100, name=python3, Ch 00000008\n"
        "HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang\n"),
        [
            row(kind="device-fault", details={"xid": 79}),
            row(kind="device-fault", details={"xid": 31}),
            row(kind="device-fault", details={"node": 9}),
        ],
    ),
    "kills": (
        ("torch.distributed.elastic: failed (exitcode: -9) local_rank: 1 (pid: 7)\n"
        "worker 4 received SIGKILL\n"),
        [row(kind="killed"), row(kind="killed")],
    ),
    "a traceback in a box": (
        ('│ [rank1]: Traceback (most recent call last): │\n│ [rank1]:   File "/srv/a.py", line 3, in step │\n'
        "│ [rank1]: ValueError: no │\n"),
        [row(kind="exception", rank=1, text="ValueError: no")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_failures(tmp_path: Path, case: str) -> None:
    text, facts = FAILURES[case]
    check(read(tmp_path, text), [], facts)


RAS_MISMATCH = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different {}collective operation counts
  6 ranks have launched up to operation {}
  2 ranks have launched up to operation {}
  Rank 1 -- GPU 1 managed by process 48 on node 10.0.0.1
  Rank 5 -- GPU 5 managed by process 49 on node 10.0.0.1

"""


def test_ras_text(tmp_path: Path) -> None:
    (fact,) = read(tmp_path, "Warnings\n========\n\n" + RAS_MISMATCH.format("", 665, 664) + "end\n").facts
    assert fact.details["launched"] == {"664": [1, 5], "665": []}
    assert fact.details["ranks_at"] == {"664": 2, "665": 6}
    text = (
        "#1-2 (cf264af53edbe986) INCOMPLETE\n  Missing communicator data from 3 ranks\n  The missing ranks: 3, 6-7\n"
        "#1-3 (cf264af53edbe987) MISMATCH\n  Communicator ranks have different AllGather operation counts\n"
        "  Rank 1 has launched up to operation 288\n  Rank 0 has launched up to operation 287\n"
    )
    first, second = read(tmp_path, text).facts
    assert (first.kind, first.group_ranks) == ("missing", (3, 6, 7))
    assert second.details["counts_of"] == "AllGather"
    assert second.details["launched"] == {"287": [0], "288": [1]}


def test_ras_text_in_docker(tmp_path: Path) -> None:
    text = "".join(f"node-1  | {line}\n" for line in RAS_MISMATCH.format("", 9, 8).splitlines())
    result = read(tmp_path, text)
    assert result.not_understood or result.facts[0].details["ranks_at"] == {"8": 2, "9": 6}


def test_positions_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are found and numbered alike whatever the size of the blocks; text outside ASCII moves nothing."""
    filler = "".join(f"[2026-08-01 10:00:00 TP{i % 8}] Decode batch — größer {i} 🏖️\n" for i in range(300))
    text = "".join(f"{filler}[rank{i}]: {BODY}\n{filler}" for i in range(4))
    expected = [(row.rank, row.place.line) for row in read(tmp_path, text).operations]
    assert expected == [(0, 301), (1, 902), (2, 1503), (3, 2104)]
    for block, ahead in ((4096, 512), (10_000, 3_000), (70, 50)):
        monkeypatch.setattr("divtrace.evidence.logs.scan.BLOCK", block)
        monkeypatch.setattr("divtrace.evidence.logs.scan.LOOK_AHEAD", ahead)
        monkeypatch.setattr("divtrace.trace.compression._READ", 64)
        assert [(row.rank, row.place.line) for row in read(tmp_path, text).operations] == expected


def test_a_log_without_line_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divtrace.evidence.logs.scan.BLOCK", 4096)
    monkeypatch.setattr("divtrace.evidence.logs.scan.LOOK_AHEAD", 512)
    assert read(tmp_path, "x" * 100_000 + BODY).operations[0].number == 88


def test_debug_output_of_every_step_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("divtrace.evidence.logs.scan.MAXIMUM_LINES", 5)
    plan = "[2026-08-01 10:00:00 TP1] [DSPARK-CPS] num_reqs={} budget=11 gamma=5 verify_len_range=[1,6]\n"
    result = read(tmp_path, "".join(plan.format(i) for i in range(12)) + "[rank3]: " + BODY + "\n")
    assert (len(result.facts), result.left_out) == (5, {"[DSPARK-CPS]": 7})
    assert result.operations[0].rank == 3


def test_every_family_has_its_own_literals() -> None:
    assert len(LITERALS) == sum(len(family.literals) for family in FAMILIES)
    assert all(literal.isascii() and len(literal) >= 5 for literal in LITERALS)
