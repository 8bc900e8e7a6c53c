"""The queue has a limit, whatever the disk does, and what does not fit is counted."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from divtrace.record import Recorder, Settings
from divtrace.record import parts as files
from divtrace.record.deferred import record_later
from divtrace.record.device import CpuDevice
from divtrace.record.settings import MEGABYTE
from record.reading import child, finish, read, rounds

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A disk that takes nothing before this is set."""
    going_on = threading.Event()
    real_write = files.Part.write

    def write(self: files.Part, data: bytes) -> None:
        going_on.wait(30)
        real_write(self, data)

    monkeypatch.setattr(files.Part, "write", write)
    return going_on


def test_a_full_queue_drops_events_and_counts_them(tmp_path: Path, stalled: threading.Event) -> None:
    recorder = Recorder(tmp_path, rank=0, settings=Settings(queue_bytes=200_000))
    started = time.monotonic()
    rounds(recorder, 2000)
    assert time.monotonic() - started < 5
    assert recorder.dropped > 1000
    stalled.set()
    recorder.flush()
    lost = recorder.dropped
    rounds(recorder, 5, start=2000)
    recorder.close()
    written = read(tmp_path)
    assert not written.bad
    assert written.metas[-1].dropped == lost
    assert len(set(range(2006)) - set(written.seqs)) == lost
    assert written.seqs[-6:] == list(range(2000, 2006))


def test_a_drained_queue_weighs_nothing(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as recorder:
        rounds(recorder, 1000)
        recorder.flush()
        writer = recorder._writer
        assert writer is not None
        assert writer.weight_in == writer.weight_out > 0


def test_a_stalled_disk_does_not_fill_the_memory(tmp_path: Path) -> None:
    script = """
import os, sys, threading, resource
from divtrace.record import Recorder, parts
threading_event = threading.Event()
parts.Part.write = lambda self, data: threading_event.wait(60)
recorder = Recorder(sys.argv[1], rank=0)
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
before = resident()
for step in range(60_000):
    recorder.event("verify", "layout", req="request-%d" % step, round=step, step=step,
                   positions=list(range(1000 + step, 1032 + step)),
                   extra={"info.step": step, "info.text": "x" * 50 + str(step)})
print(resident() - before, recorder.dropped)
os._exit(0)
"""
    out, _ = finish(child(script, str(tmp_path), DIVTRACE_QUEUE_MB="16"))
    grown, dropped = map(int, out.split())
    assert dropped > 10_000
    assert grown < 16 * MEGABYTE


def test_a_stalled_disk_does_not_keep_the_copies_of_tensors(tmp_path: Path) -> None:
    script = """
import os, sys, threading, resource
from divtrace.record import Recorder, parts
from divtrace.record.deferred import record_later
from divtrace.record.device import CpuDevice
class Tensor:
    def __init__(self, values):
        self.values = values
    def detach(self):
        return self
    def clone(self):
        return Tensor(list(self.values))
    def numel(self):
        return len(self.values)
parts.Part.write = lambda self, data: threading.Event().wait(60)
recorder = Recorder(sys.argv[1], rank=0)
device = CpuDevice()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
recorder.event("host", "stalled", about_to_block=True)
before = resident()
for step in range(20_000):
    keys = [{"req": f"request-{row}", "step": step, "stage": "verify", "site": "layout"} for row in range(4)]
    tensors = [Tensor(range(step, step + 64)) for _ in range(2)]
    record_later(recorder, device, tensors, 4, lambda *values, keys=keys: keys)
print(resident() - before, recorder.dropped, recorder.reserve(1)[0])
os._exit(0)
"""
    out, _ = finish(child(script, str(tmp_path), DIVTRACE_QUEUE_MB="16"))
    grown, dropped, number = map(int, out.split())
    assert number == 4 * 20_000 + 1, "what is dropped leaves a gap"
    assert dropped > 10_000
    assert grown < 16 * MEGABYTE


def test_deferred_events_that_were_dropped_are_counted_and_the_rest_arrives(
    tmp_path: Path, stalled: threading.Event
) -> None:
    recorder = Recorder(tmp_path, rank=0, settings=Settings(queue_bytes=200_000))
    for step in range(1000):
        event = {"stage": "host", "site": "deferred", "step": step}
        record_later(recorder, CpuDevice(), [], 1, lambda event=event: [event])
    lost = recorder.dropped
    assert 0 < lost < 1000
    stalled.set()
    recorder.flush()
    writer = recorder._writer
    assert writer is not None
    assert writer.weight_in == writer.weight_out
    recorder.close()
    written = read(tmp_path)
    assert written.metas[-1].dropped == lost
    assert len(written.events) == 1000 - lost + 1
