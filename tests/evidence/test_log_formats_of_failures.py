# ruff: noqa: E501 - log lines keep their length
"""Log formats of stacks, vLLM, failures and RAS, and what holds for all of them: two real shapes each with values of our own, and a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtrace.evidence.coordinates import Coordinates
from divtrace.evidence.logs.registry import FAMILIES, LITERALS
from evidence.log_rows import Rows, check, read, row
from evidence.test_log_formats import BODY

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


SCHEDULED: dict[str, tuple[str, Rows]] = {
    "decode with placeholders": (
        (
            "(EngineCore_DP1 pid=77) ERROR 06-15 13:57:57 [dump_input.py:79] Dumping scheduler output for model execution: "
            "SchedulerOutput(scheduled_new_reqs=[], scheduled_cached_reqs=CachedRequestData(req_ids=['cmpl-1','cmpl-2'],"
            "resumed_req_ids=set(),new_token_ids_lens=[],all_token_ids_lens={},new_block_ids=[None, None],"
            "num_computed_tokens=[29622, 17],num_output_tokens=[2, 5]), num_scheduled_tokens={cmpl-1: 4, cmpl-2: 3}, "
            "total_num_scheduled_tokens=7, scheduled_spec_decode_tokens={cmpl-1: [-1, -1, -1], cmpl-2: [-1, -1]}, "
            "scheduled_encoder_inputs={}, num_common_prefix_blocks=[0, 0], finished_req_ids=[])\n"
        ),
        [
            row(
                kind="batch", format="vllm-scheduler", rank=None, coordinates=None, process="EngineCore_DP1 pid=77",
                details={
                    "batch_size": 2, "rids": ["cmpl-1", "cmpl-2"], "scheduled": {"cmpl-1": 4, "cmpl-2": 3}, "total": 7,
                    "complete": True, "new": [], "drafts": {"cmpl-1": 3, "cmpl-2": 2}, "placeholders": True,
                },
            )
        ],
    ),
    "a new request with a colon in its id": (
        (
            "(EngineCore pid=176) ERROR 04-23 21:09:12 [dump_input.py:79] Dumping scheduler output for model execution: "
            "SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=cmpl-_addr_10.254.5.122:21001_8-0,prompt_token_ids_len=6,"
            "mm_features=[],block_ids=([1],),num_computed_tokens=0,lora_request=None)], scheduled_cached_reqs="
            "CachedRequestData(req_ids=[], new_token_ids=[]), num_scheduled_tokens={cmpl-_addr_10.254.5.122:21001_8-0: 6}, "
            "total_num_scheduled_tokens=6, scheduled_spec_decode_tokens={}, finished_req_ids=[])\n"
        ),
        [
            row(
                kind="batch", process="EngineCore pid=176",
                details={"batch_size": 1, "new": ["cmpl-_addr_10.254.5.122:21001_8-0"], "drafts": {}, "placeholders": False},
            )
        ],
    ),
    "over several lines, with tensors": (
        (
            "ERROR 11-05 09:18:38 [dump_input.py:79] Dumping scheduler output for model execution:\n"
            "ERROR 11-05 09:18:38 [dump_input.py:79] SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=0,mm_features="
            "[MultiModalFeatureSpec(data=tensor([[-0.5430, -0.3730],\n"
            "ERROR 11-05 09:18:38 [dump_input.py:79]         [-0.4453, -0.1953]]))],num_computed_tokens=0)], "
            "num_scheduled_tokens={0: 225}, total_num_scheduled_tokens=225, scheduled_spec_decode_tokens={0: [17, 4]})\n"
        ),
        [row(kind="batch", details={"rids": ["0"], "total": 225, "new": ["0"], "drafts": {"0": 2}, "placeholders": False})],
    ),
    "a worker's": (
        (
            "(Worker_TP1 pid=9) ERROR 11-05 09:18:38 [dump_input.py:79] Dumping scheduler output for model execution: "
            "SchedulerOutput(num_scheduled_tokens={'a': 1}, total_num_scheduled_tokens=2)\n"
        ),
        [row(kind="batch", coordinates=Coordinates(tp=1), details={"rids": ["a"], "complete": False})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEDULED)
def test_vllm_scheduler_output(tmp_path: Path, case: str) -> None:
    text, facts = SCHEDULED[case]
    check(read(tmp_path, text), [], facts)


@pytest.mark.parametrize(
    "broken", ["{a: x}, total_num_scheduled_tokens=3", "{a: 3}", "{a 3}, total_num_scheduled_tokens=3"]
)
def test_a_damaged_scheduler_output_is_counted(tmp_path: Path, broken: str) -> None:
    result = read(
        tmp_path, f"Dumping scheduler output for model execution: SchedulerOutput(num_scheduled_tokens={broken})\n"
    )
    assert (result.facts, result.not_understood) == ([], {"vllm": 1})


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
    "torchrun's summary": (
        ("Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-30_10:00:00\n  host      : n1\n"
        "  rank      : 5 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n  error_file: <N/A>\n"
        "[1]:\n  rank      : 6 (local_rank: 2)\n  exitcode  : 1 (pid: 8)\n"),
        [
            row(kind="killed", rank=5, details={"exit_code": -9}),
            row(kind="exited", rank=6, details={"exit_code": 1}),
        ],
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
    assert result.facts[0].details["ranks_at"] == {"8": 2, "9": 6}


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
