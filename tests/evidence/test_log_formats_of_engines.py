# ruff: noqa: E501 - log lines keep their length
"""Log formats of HCCL, DeepEP and SGLang: two real shapes each with values of our own, and a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtrace.evidence.coordinates import Coordinates
from evidence.log_rows import Rows, check, read, row

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
    "EI9999 by its text": (
        ("RuntimeError: ACL stream synchronize failed.\nEI9999: Inner Error!\n"
        "EI9999: 2024-10-21-10:42:00.358.410  The error from device(chipId:3, dieId:0), serial number is 9, hccl fftsplus task "
        "timeout occurred during task execution, stream_id:5, sq_id:5, task_id:388, stuck notify num:1, timeout:30min(default).\n"
        "[rank6]: EI9999: [PID: 4021] 2026-02-03-04:05:06.007.008 Call HcclAllReduce failed, wait for the remote timed out.\n"
        "EI9999: [PID: 4022] 2026-02-03-04:05:07.007.008 Memory_Allocation_Failure(EL0004): Failed to allocate memory.\n"
        "The error from device(chipId:7, dieId:0), serial number is 4, hccl fftsplus task timeout occurred during task "
        "execution, stream_id:9, sq_id:9, task_id:51, stuck notify num:1, timeout=1836s.\n"),
        [
            row(kind="timeout", format="hccl-device", time="2024-10-21-10:42:00.358.410", details={"chip": 3, "task": 388}),
            row(kind="timeout", format="hccl-ei9999", rank=6, time="2026-02-03-04:05:06.007.008"),
            row(kind="note", format="hccl-ei9999", details={"what": "Memory_Allocation_Failure(EL0004): Failed to allocate memory."}),
            row(kind="timeout", format="hccl-device", details={"chip": 7, "task": 51}),
        ],
    ),
    "EI9999 wrapped": (
        ("EI9999: [PID: 31] 2024-10-21-10:42:00.358.410  The error from device(chipId:3, dieId:0), serial number is 9, hccl "
        "fftsplus task time\nout occurred during task execution, stream_id:5, sq_id:5, task_id:388\n"),
        [row(kind="timeout", format="hccl-device", details={"chip": 3, "task": 388})],
    ),
    "EI0002 wrapped": (
        ("EI0002: [PID: 3001] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times out. Reason: The "
        "Notify register has not received the Notify rec\nord from remote rank: [12]. base information: [streamID:[1]]\n"),
        [row(kind="waiting", group_ranks=(12,), group_rank=None, comm=None)],
    ),
}  # fmt: skip


def test_a_device_timeout_is_no_failure_of_the_rank_that_raises_it(tmp_path: Path) -> None:
    """torch_npu prints HCCL's text on the lines behind the exception."""
    text = (
        'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in step\n    dist.broadcast(x)\n'
        "RuntimeError: ACL stream synchronize failed.\nEI9999: Inner Error!\n{}\n"
    )
    expired = "EI9999: 2024-10-21-10:42:00.358.410 The error from device(chipId:3, dieId:0), hccl fftsplus task timeout occurred"
    for behind, symptom in ((expired, True), ("Segmentation fault", False)):
        raised = next(f for f in read(tmp_path, text.format(behind)).facts if f.kind == "exception")
        assert raised.details["symptom"] is symptom


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
