"""Memory, disk and time have limits, and reaching one never stops the engine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from divtrace.record import Recorder, Settings, compress, from_environment
from divtrace.record import parts as files
from divtrace.record.settings import MEGABYTE
from record.reading import ROOT, child, content, read, rounds

pytestmark = pytest.mark.usefixtures("fresh")


def test_files_rotate_and_the_oldest_go(tmp_path: Path) -> None:
    settings = Settings(file_bytes=20_000, total_bytes=100_000, compression="off")
    with Recorder(tmp_path, rank=0, run="r", settings=settings) as recorder:
        for start in range(0, 3000, 100):
            rounds(recorder, 100, start)
            recorder.flush()
    written = read(tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) <= 100_000
    assert max(sizes) <= 70_000
    assert len(sizes) >= 2
    assert not written.bad
    assert {meta.run for meta in written.metas} == {"r"}
    assert len(written.metas) >= len(sizes)
    # What stays is the newest, without a hole.
    assert written.seqs == list(range(written.seqs[0], 3001))
    assert written.seqs[0] > 0
    assert "part0000" not in " ".join(written.files)


@pytest.mark.parametrize(("method", "ending"), [("gzip", ".jsonl.gz"), ("zstd", ".jsonl.zst")])
def test_closed_files_are_compressed(tmp_path: Path, method: str, ending: str) -> None:
    settings = Settings(file_bytes=40_000, compression=method)
    with Recorder(tmp_path, rank=0, settings=settings) as recorder:
        for start in range(0, 1200, 100):
            rounds(recorder, 100, start)
            recorder.flush()
            time.sleep(0.02)
    written = read(tmp_path)
    packed = [path for path in tmp_path.iterdir() if path.name.endswith(ending)]
    assert len(packed) >= 3
    assert not list(tmp_path.glob("*.tmp"))
    assert written.seqs == list(range(1201))
    assert all(content(path).startswith(b'{"kind":"meta"') for path in packed)


def test_the_ring_keeps_the_last_rounds_in_bounded_files(tmp_path: Path) -> None:
    settings = Settings(ring_rounds=100, file_bytes=MEGABYTE)
    with Recorder(tmp_path, rank=0, settings=settings) as recorder:
        for start in range(0, 2000, 10):
            rounds(recorder, 10, start)
            recorder.flush()
    written = read(tmp_path)
    steps = [event.step for event in written.events if event.step is not None]
    assert not written.bad
    assert min(steps) <= 1900
    assert min(steps) > 1700
    assert max(steps) == 1999
    assert len(written.files) <= 7
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < MEGABYTE


def test_the_ring_is_there_after_a_kill(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
for step in range(500):
    recorder.event("accept", "greedy", req="A", round=step, step=step)
print(recorder.flush(), flush=True)
os.kill(os.getpid(), signal.SIGABRT)
"""
    process = child(script, str(tmp_path), DIVTRACE_RING="100", DIVTRACE_FILE_MB="1")
    out, _ = process.communicate(timeout=60)
    written = read(tmp_path)
    assert process.returncode < 0
    assert out.strip() == "499"
    assert not written.bad
    assert written.seqs == list(range(written.seqs[0], 500))
    assert written.seqs[0] <= 400


@pytest.mark.parametrize("ring_rounds", [0, 20], ids=["files", "ring"])
def test_no_file_holds_a_meta_and_nothing_else(tmp_path: Path, ring_rounds: int) -> None:
    for count in range(1, 40):
        directory = tmp_path / str(count)
        recorder = Recorder(
            directory, rank=0, settings=Settings(ring_rounds=ring_rounds, file_bytes=5000, compression="off")
        )
        for step in range(count):
            rounds(recorder, 1, start=step)
            recorder.flush()
        # As at the end of a process that did not close its trace.
        recorder.stop()
        for path in directory.iterdir():
            assert b'"stage"' in path.read_bytes(), (count, path.name)


def test_a_batch_that_is_larger_than_a_ring_segment_is_parted(tmp_path: Path) -> None:
    settings = Settings(ring_rounds=1000, file_bytes=100_000, flush_seconds=3600)
    with Recorder(tmp_path, rank=0, settings=settings) as recorder:
        rounds(recorder, 256, width=200)
        recorder.event("host", "too large for any segment", note="x" * 200_000)
        rounds(recorder, 10, start=256)
        recorder.flush()
        assert recorder.dropped == 1
    written = read(tmp_path)
    assert not written.bad
    assert written.seqs == [*range(256), *range(257, 268)]


def test_a_ring_segment_takes_its_blocks_before_it_is_mapped(tmp_path: Path) -> None:
    part = files.MappedPart(str(tmp_path / "x.jsonl"), 3 * MEGABYTE)
    part.write(b"x" * 1000 + b"\n")
    assert (tmp_path / "x.jsonl").stat().st_blocks * 512 == MEGABYTE
    part.write(b"y" * MEGABYTE + b"\n")
    assert (tmp_path / "x.jsonl").stat().st_blocks * 512 == 2 * MEGABYTE
    content = (tmp_path / "x.jsonl").read_bytes()
    assert content.rstrip(b"\n") == b"x" * 1000 + b"\n" + b"y" * MEGABYTE
    assert not content.strip(b"\nxy")
    with pytest.raises(OSError, match="full"):
        part.write(b"x" * (2 * MEGABYTE))
    part.close()
    assert (tmp_path / "x.jsonl").stat().st_size == 1002 + MEGABYTE


def test_a_file_has_no_name_before_its_first_event(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    part = files.Part(str(path), lambda: str(tmp_path / "y.jsonl"))
    part.begin(b"meta\n")
    assert part.hidden
    assert not path.exists()
    path.write_text("somebody else's\n")
    part.write(b"mine\n")
    part.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.jsonl", "y.jsonl"]
    assert (path.read_text(), (tmp_path / "y.jsonl").read_text()) == ("somebody else's\n", "meta\nmine\n")
    files.Part(str(tmp_path / "z.jsonl")).close()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_disk_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_source: str, _target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with Recorder(tmp_path, rank=0) as recorder:
        rounds(recorder, 3)
    assert read(tmp_path).seqs == [0, 1, 2, 3]
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]


def test_a_ring_on_a_full_disk_is_an_error_and_no_sigbus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(_file: int, _start: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    recorder = Recorder(tmp_path, rank=0, settings=Settings(ring_rounds=10, file_bytes=MEGABYTE))
    recorder.event("host", "heartbeat")
    assert recorder.flush() == -1
    recorder.close()
    assert list(tmp_path.iterdir()) == []
    assert "No space left" in caplog.text


def full_disk(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Makes `os.write` behave as on a disk with so many bytes left."""
    real_write = os.write
    left = room

    def write(file: int, data: bytes) -> int:
        nonlocal left
        if len(data) < 200 and bytes(data[:1]) != b"{":
            return real_write(file, data)
        count = min(len(data), left)
        if count == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= count
        return real_write(file, data[:count])

    monkeypatch.setattr(os, "write", write)


def test_a_full_disk_ends_the_recording_with_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full_disk(monkeypatch, 5_000)
    recorder = Recorder(tmp_path, rank=0)
    rounds(recorder, 500)
    assert recorder.flush() == -1
    assert recorder.event("host", "later") == -1
    recorder.close()
    written = read(tmp_path)
    assert not written.bad
    assert written.seqs == list(range(len(written.seqs)))
    assert len(written.seqs) > 5
    assert [record.message for record in caplog.records if "recording stops" in record.message] == [
        record.message for record in caplog.records if record.name == "divtrace.record"
    ]
    assert len(caplog.records) == 1


SMALL_DISK = """
import sys, time
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
deadline = time.monotonic() + 30
step = 0
while recorder.active and time.monotonic() < deadline:
    for _ in range(100):
        step += 1
        recorder.event("accept", "greedy", req="A", round=step, step=step, out_tokens=list(range(40)))
    time.sleep(0.001)
after = recorder.event("host", "later")
recorder.close()
print(recorder.active, after)
"""


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ("size=1m", {"DIVTRACE_COMPRESS": "off"}),
        ("size=1m", {"DIVTRACE_FILE_MB": "0.25"}),
        ("size=1m", {"DIVTRACE_RING": "100000", "DIVTRACE_FILE_MB": "0.25"}),
        ("size=1m,ro", {}),
    ],
    ids=["full", "full while it compresses", "full ring", "read-only"],
)
def test_a_real_disk_that_takes_no_more_ends_the_recording(
    tmp_path: Path, options: str, variables: dict[str, str]
) -> None:
    # In a mount namespace of its own, so that nothing stays behind; what was written is copied out.
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    kept.mkdir()
    script = """
import subprocess, sys
options, disk, kept, code = sys.argv[1:]
if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", disk], capture_output=True).returncode:
    print("no mount")
    sys.exit()
print(subprocess.run([sys.executable, "-c", code, disk], check=True, stdout=subprocess.PIPE, text=True).stdout, end="")
subprocess.run(["cp", "-r", f"{disk}/.", kept], check=True)
"""
    try:
        probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no unshare")
    if probe.returncode:
        pytest.skip("no mount namespaces here")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", script, options, str(disk), str(kept), SMALL_DISK],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("DIVTRACE_")}
        | {"PYTHONPATH": str(ROOT)}
        | variables,
    )
    if "no mount" in done.stdout:
        pytest.skip("nothing can be mounted here")
    assert done.stdout == "False -1\n"
    assert done.stderr.count("recording stops") == 1
    assert "Traceback" not in done.stderr
    written = read(kept)
    assert not written.bad
    assert written.seqs == list(range(len(written.seqs)))
    assert (len(written.seqs) > 1000) is ("ro" not in options)


def test_a_removed_directory_ends_the_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "logs"
    recorder = Recorder(directory, rank=0)
    rounds(recorder, 5)
    recorder.flush()
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    deadline = time.monotonic() + 10
    while recorder.active and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not recorder.active
    # Its thread says so behind that: `close` waits for it.
    recorder.close()
    assert "was removed" in caplog.text


def test_a_file_that_goes_while_it_is_compressed_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The oldest file may be the one that is being compressed: its other form would then escape the cap for good.
    reached, go_on = threading.Event(), threading.Event()
    real_compressor = compress._compressor

    def slow(raw: BinaryIO, method: str) -> object:
        reached.set()
        go_on.wait(30)
        return real_compressor(raw, method)

    monkeypatch.setattr(compress, "_compressor", slow)
    written = files.Parts(str(tmp_path), "x", Settings(file_bytes=1000, total_bytes=2000))
    written.open().write(b"x" * 999 + b"\n")
    written.finish_current()
    assert reached.wait(30)
    for _ in range(2):
        written.open().write(b"x" * 999 + b"\n")
        written.finish_current()
    go_on.set()
    written.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x-part0002.jsonl"]
    assert caplog.text == ""


def test_settings_that_make_no_sense_fall_back_and_are_named() -> None:
    settings = from_environment(
        {
            "DIVTRACE_QUEUE_MB": "many",
            "DIVTRACE_FILE_MB": "-3",
            "DIVTRACE_COMPRESS": "rar",
            "DIVTRACE_TOKENS": "hsah",
            "DIVTRACE_LAYERS": "base,everything",
        }
    )
    assert settings.queue_bytes == settings.file_bytes == 64 * MEGABYTE
    assert settings.compression == "gzip"
    assert settings.token_mode == "off", "a typo in the privacy mode must not open it"
    assert settings.layers == ("base",)
    assert len(settings.problems) == 5


def test_settings_come_from_the_environment() -> None:
    settings = from_environment(
        {"DIVTRACE_QUEUE_MB": "1.5", "DIVTRACE_RING": "200", "DIVTRACE_SYNC": "1", "DIVTRACE_COMPRESS": "ZSTD"}
    )
    assert (settings.queue_bytes, settings.ring_rounds) == (int(1.5 * MEGABYTE), 200)
    assert (settings.synchronous, settings.compression, settings.problems) == (True, "zstd", ())
