"""Plain torch: collectives of a real job, and a real collective timeout.

Run by `.ci/run` in an environment with torch: `pytest -m torch`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from record.reading import ROOT, free_port, read

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(os.environ.get("DIVTRACE_TORCH_TESTS") == "0", reason="switched off"),
]
torch = pytest.importorskip("torch", reason="needs torch")

JOB = Path(__file__).with_name("torch_job.py")


def run_job(script: Path | str, directory: Path, *arguments: str) -> list[tuple[int, str]]:
    """Runs a job of two processes; returns exit status and standard error of each."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIVTRACE_")}
    start = [sys.executable, str(script)] if isinstance(script, Path) else [sys.executable, "-c", script]
    processes = [
        subprocess.Popen(
            [*start, str(rank), port, str(directory), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | {"PYTHONPATH": str(ROOT)},
        )
        for rank in range(2)
    ]
    ended = []
    for process in processes:
        _, err = process.communicate(timeout=120)
        ended.append((process.returncode, err))
    return ended


def analyze(directory: Path) -> dict[str, Any]:
    pytest.importorskip("polars", reason="the analysis needs divtrace's own requirements")
    done = subprocess.run(
        [sys.executable, "-m", "divtrace", "analyze", "--format", "json", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode in (0, 1, 3), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_an_honest_job_is_clean(tmp_path: Path) -> None:
    ended = run_job(JOB, tmp_path)
    assert [status for status, _ in ended] == [0, 0], ended
    written = read(tmp_path)
    assert not written.bad
    collectives = [event for event in written.events if event.stage == "collective"]
    assert len(collectives) > 20
    assert {event.state for event in collectives} == {"enqueued", "completed"}
    assert all(event.numel == 480 and event.shape == [15, 32] for event in collectives if event.state == "enqueued")
    report = analyze(tmp_path)
    assert report["verdict"] == "clean"


def test_a_wrong_token_ends_in_a_timeout_and_is_named_first(tmp_path: Path) -> None:
    # Whether a wrong token makes the ranks end at different steps hangs on the tokens that follow, and so on the
    # arithmetic of the machine: the first of these that does is taken.
    for step, request in ((3, "r0"), (4, "r2"), (2, "r0"), (5, "r0"), (6, "r0")):
        directory = tmp_path / f"{step}-{request}"
        ended = run_job(JOB, directory, str(step), request)
        if any("Timed out waiting" in err for _, err in ended):
            break
    else:
        pytest.fail("no wrong token ended in a collective timeout")
    written = read(directory)
    assert [event.state for event in written.events if event.state == "timeout"] == ["timeout"]
    report = analyze(directory)
    first = report["first"]
    assert report["verdict"] == "divergence"
    assert (first["rule"], first["req"], first["step"]) == ("target-tokens", request, step)
    assert (first["stage"], first["site"], first["field"], first["index"]) == ("verify", "target", "target_tokens", 0)
    assert report["timeouts"]
    assert report["precedence"] == "shown"


EVERY_OPERATION = """
import sys
from datetime import timedelta
import torch, torch.distributed as dist
from divtrace.record import Recorder
from divtrace.record.torch import watch
rank, port, directory = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
                        timeout=timedelta(seconds=30))
other = dist.new_group([0, 1])
plain = dist.all_reduce
with Recorder(directory, rank=rank) as recorder:
    log = watch(recorder, name="tp")
    x = torch.ones(4)
    dist.all_reduce(x)
    dist.all_reduce(x, group=other)
    dist.broadcast(x, 1)
    dist.broadcast(tensor=x, src=0)
    dist.all_gather([torch.empty(4), torch.empty(4)], x)
    dist.all_gather_into_tensor(torch.empty(8), x)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert work.is_completed()
    (dist.send(x, 1) if rank == 0 else dist.recv(x, 0))
    dist.barrier()
    log.stop()
    dist.all_reduce(x)
    assert dist.all_reduce is plain
dist.destroy_process_group()
"""


def test_every_operation_is_recorded_with_its_sizes(tmp_path: Path) -> None:
    ended = run_job(EVERY_OPERATION, tmp_path)
    assert [status for status, _ in ended] == [0, 0], ended
    for rank in range(2):
        written = read(tmp_path, f"*rank{rank}-*")
        started = [event for event in written.events if event.state == "enqueued"]
        done = [event for event in written.events if event.state == "completed"]
        kinds = ["all_reduce", "broadcast", "broadcast", "all_gather", "all_gather", "all_reduce"]
        assert [event.op for event in started] == [*kinds, "send" if rank == 0 else "recv", "barrier"]
        assert [event.comm_seq for event in started] == [0, 1, 2, 3, 4, 5, 0, 6]
        assert [event.numel for event in started] == [4, 4, 4, 4, 4, 4, 4, None]
        assert [event.src for event in started[1:3]] == [1, 0]
        assert [(event.comm, event.comm_seq) for event in done] == [(event.comm, event.comm_seq) for event in started]
        assert started[6].comm == "tp-0-1"
