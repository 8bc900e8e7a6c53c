"""The recorder exists for processes that die: what was recorded has to be there afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from divtrace.api import validate
from divtrace.record import Recorder, Settings, parts
from record.reading import Written, child, finish, read

UNDER_LOAD = """
import sys, threading
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
say = threading.Lock()
def work(name):
    seq, step = -1, 0
    while True:
        for _ in range(40):
            step += 1
            tokens = list(range(step % 50))
            seq = recorder.event("accept", "greedy", req=f"{name}", round=step, step=step, out_tokens=tokens)
            recorder.event("collective", "forward", step=step, comm="tp", comm_seq=step, state="enqueued")
        recorder.flush()
        with say:
            print(seq, flush=True)
threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in "ab"]
print("ready", flush=True)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def kill_under_load(directory: Path, seed: int, **variables: str) -> int:
    """Kills a recording process at a random moment; returns how many events it had acknowledged."""
    moment = random.Random(seed).uniform(0, 0.15)
    process = child(UNDER_LOAD, str(directory), **variables)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(moment)
    process.kill()
    # Not `communicate`: it would pass over what `readline` has taken from the pipe already.
    assert process.stderr is not None
    with process:
        out, err = process.stdout.read(), process.stderr.read()
    # The last line may be cut by the kill itself.
    acknowledged = [int(line) for line in out.split("\n")[:-1]]
    written = read(directory)
    present = set(written.seqs)
    assert len(written.bad) <= 1, (seed, written.bad[:3])
    assert not err, (seed, err)
    if written.events:
        check_with_the_reader(directory, written)
    # A closed file may be there twice, plain and compressed, if the kill came between the two.
    twice = {path.name for path in directory.glob("*")} & {path.stem for path in directory.glob("*.jsonl.*")}
    assert len(present) == len(written.events) or twice, f"run {seed}: an event was written twice"
    # A ring keeps the newest; two threads hand over their events in an order that is nearly that of `seq`.
    oldest = min(present, default=0) + 100 if "DIVTRACE_RING" in variables else -1
    missing = [seq for seq in acknowledged if seq > oldest and seq not in present]
    assert not missing, (seed, missing[:5])
    return len(acknowledged)


def check_with_the_reader(directory: Path, written: Written) -> None:
    """What `divtrace validate` says of the directory."""
    traces = validate([directory])
    assert sum(len(trace.records) for trace in traces.ranks.values()) == len(set(written.seqs))
    assert len(traces.damage) == traces.bad_lines == len(written.bad), traces.damage
    assert not traces.unknown_fields


each_kind_of_file = pytest.mark.parametrize(
    "variables",
    [
        {},
        {"DIVTRACE_FILE_MB": "0.0625", "DIVTRACE_TOTAL_MB": "512"},
        {"DIVTRACE_RING": "50", "DIVTRACE_FILE_MB": "0.25"},
    ],
    ids=["files", "rotating files", "ring"],
)


@each_kind_of_file
def test_a_kill_loses_nothing_that_was_flushed(tmp_path: Path, variables: dict[str, str]) -> None:
    runs = [kill_under_load(tmp_path / str(seed), seed, **variables) for seed in range(4)]
    assert sum(runs) > 0, "no run was ever acknowledged: the test says nothing"


def test_a_killed_ring_holds_its_rounds(tmp_path: Path) -> None:
    process = child(UNDER_LOAD, str(tmp_path), DIVTRACE_RING="50", DIVTRACE_FILE_MB="1")
    assert process.stdout is not None
    for _ in range(60):
        process.stdout.readline()
    process.kill()
    with process:
        pass
    written = read(tmp_path)
    steps = {event.step for event in written.events}
    assert len(written.bad) <= 1
    assert 50 <= len(steps) < 500
    check_with_the_reader(tmp_path, written)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("DIVTRACE_SLOW_TESTS") != "1", reason="takes a minute; DIVTRACE_SLOW_TESTS=1")
@each_kind_of_file
def test_two_hundred_kills_lose_nothing_that_was_flushed(tmp_path: Path, variables: dict[str, str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda seed: kill_under_load(tmp_path / str(seed), seed, **variables), range(200)))
    assert sum(runs) > 200


# `usleep` through PyDLL keeps the GIL, through CDLL it lets it go.
BLOCKS_IN_C = """
import ctypes, sys
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
recorder.event("host", "warm")
recorder.flush()
library = getattr(ctypes, sys.argv[2])(None)
library.usleep(1)
recorder.event("verify", "enter", req="A", round=7, step=3, about_to_block=True)
print("blocking", flush=True)
library.usleep(30_000_000)
"""


# A mutex that its own thread locks a second time: no signal interrupts that, unlike a sleep.
BLOCKS_FOR_GOOD = BLOCKS_IN_C.replace(
    "library.usleep(30_000_000)",
    "mutex = ctypes.create_string_buffer(64); library.pthread_mutex_lock(mutex); library.pthread_mutex_lock(mutex)",
)


def start_blocked(directory: Path, library: str, **variables: str) -> subprocess.Popen[str]:
    process = child(BLOCKS_IN_C, str(directory), library, **variables)
    assert process.stdout is not None
    assert process.stdout.readline() == "blocking\n"
    return process


def test_the_event_before_a_block_in_c_is_in_the_file_50_ms_later(tmp_path: Path) -> None:
    # Without the wake-up the event would wait for the next flush; an hour makes that plain.
    process = child(
        BLOCKS_IN_C.replace("rank=0)", "rank=0, settings=Settings(flush_seconds=3600))").replace(
            "import Recorder", "import Recorder, Settings"
        ),
        str(tmp_path),
        "CDLL",
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "blocking\n"
    time.sleep(0.05)
    process.kill()
    process.communicate()
    assert [event.site for event in read(tmp_path).events] == ["warm", "enter"]


def test_any_event_is_in_the_file_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, rank=0)
    recorder.event("host", "warm")
    recorder.flush()
    path = next(tmp_path.iterdir())
    waited = []
    for number in range(11):
        # At another point of the writer's rhythm every time.
        time.sleep(0.013 * number)
        size, started = path.stat().st_size, time.monotonic()
        recorder.event("accept", "greedy", correct_len=number)
        while path.stat().st_size == size and time.monotonic() - started < 10:
            time.sleep(0.001)
        waited.append(time.monotonic() - started)
    recorder.close()
    # The machine may be busy with other work, but not every time.
    assert sorted(waited)[7] <= 0.1, waited


def test_with_sync_the_event_is_there_although_the_block_keeps_the_gil(tmp_path: Path) -> None:
    process = start_blocked(tmp_path, "PyDLL", DIVTRACE_SYNC="1")
    time.sleep(0.05)
    process.kill()
    process.communicate()
    assert [event.site for event in read(tmp_path).events] == ["warm", "enter"]


def test_an_enqueued_collective_is_about_to_block(tmp_path: Path) -> None:
    script = BLOCKS_IN_C.replace(
        'recorder.event("verify", "enter", req="A", round=7, step=3, about_to_block=True)',
        'recorder.event("collective", "x", comm="tp", comm_seq=1, op="all_reduce", state="enqueued")',
    )
    process = child(script, str(tmp_path), "PyDLL", DIVTRACE_SYNC="1")
    assert process.stdout is not None
    assert process.stdout.readline() == "blocking\n"
    process.kill()
    process.communicate()
    assert [event.state for event in read(tmp_path).events] == [None, "enqueued"]


def wait_for(directory: Path, pattern: str, text: str, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(text in path.read_text() for path in directory.glob(pattern)):
            return True
        time.sleep(0.02)
    return False


def test_a_dump_by_signal_works_while_the_main_thread_is_blocked_in_c(tmp_path: Path) -> None:
    settings = {"DIVTRACE_DUMP_SIGNAL": "USR2", "DIVTRACE_RING": "100", "DIVTRACE_FILE_MB": "1"}
    process = child(BLOCKS_FOR_GOOD, str(tmp_path), "CDLL", **settings)
    assert process.stdout is not None
    assert process.stdout.readline() == "blocking\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGUSR2)
    try:
        assert wait_for(tmp_path, "*-stacks.txt", "signal SIGUSR2")
        assert wait_for(tmp_path, "*-stacks.txt", "<string>")
        assert wait_for(tmp_path, "*-dump01.jsonl", '"site":"dump"')
        assert process.poll() is None, "the signal killed the engine"
    finally:
        process.kill()
        process.communicate()
    dumped = read(tmp_path, "*-dump01.jsonl")
    assert [event.site for event in dumped.events] == ["warm", "enter", "dump"]
    assert dumped.metas


def test_a_dump_by_touching_a_file_works_while_the_main_thread_is_blocked_in_c(tmp_path: Path) -> None:
    process = start_blocked(tmp_path, "CDLL")
    (tmp_path / "dump-request").touch()
    try:
        assert wait_for(tmp_path, "*-stacks.txt", "dump-request was touched")
    finally:
        process.kill()
        process.communicate()
    assert "dump" in [event.site for event in read(tmp_path).events]


def test_a_signal_that_reaches_another_thread_does_not_kill_the_engine(tmp_path: Path) -> None:
    script = """
import signal, sys, threading, time
# A thread that is there before the recorder does not block the signal.
threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
print("blocking", flush=True)
time.sleep(20)
"""
    process = child(script, str(tmp_path), DIVTRACE_DUMP_SIGNAL="SIGUSR2")
    assert process.stdout is not None
    assert process.stdout.readline() == "blocking\n"
    process.send_signal(signal.SIGUSR2)
    time.sleep(0.3)
    try:
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_a_flush_inside_a_write_leaves_the_work_to_the_one_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a signal handler would do in the middle of a line.
    real_write = parts.Part.write
    inside: list[int] = []

    def write(self: parts.Part, data: bytes) -> None:
        half = len(data) // 2
        os.write(self._file, data[:half])
        recorder.event("host", "inside")
        inside.append(recorder.flush())
        os.write(self._file, data[half:])
        self.size += len(data)
        monkeypatch.setattr(parts.Part, "write", real_write)

    recorder = Recorder(tmp_path, rank=0, settings=Settings(flush_seconds=3600))
    recorder.event("host", "first")
    recorder.flush()
    monkeypatch.setattr(parts.Part, "write", write)
    recorder.event("host", "outside", note="x" * 200)
    assert recorder.flush() >= 1
    recorder.close()
    written = read(tmp_path)
    assert inside == [-1]
    assert not written.bad
    assert [event.site for event in written.events] == ["first", "outside", "inside", "end"]


def test_a_signal_handler_that_records_inside_a_flush_does_not_deadlock(tmp_path: Path) -> None:
    script = """
import signal, sys, time
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
def handler(*_):
    recorder.event("host", "signal", about_to_block=True)
    recorder.flush(timeout=0.05)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
deadline = time.monotonic() + 1.5
while time.monotonic() < deadline:
    recorder.event("accept", "greedy", correct_len=1)
    recorder.flush()
signal.setitimer(signal.ITIMER_REAL, 0)
recorder.close()
print("done")
"""
    out, _ = finish(child(script, str(tmp_path), DIVTRACE_SYNC="1"), timeout=20)
    assert out == "done\n"
    written = read(tmp_path)
    assert not written.bad
    assert len(set(written.seqs)) == len(written.seqs)
