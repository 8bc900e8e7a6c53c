"""What a recorder writes, and what it does with calls it cannot make sense of."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

from divtrace.record import Recorder, Settings
from record.reading import child, finish, read

pytestmark = pytest.mark.usefixtures("fresh")


def test_events_keep_their_values_and_their_order(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=3, world=1, run="r", parallel={"tp_size": 4}, engine=("mine", "1.0")) as recorder:
        first = recorder.event("verify", "target", req="A", round=7, step=307, target_tokens=[311, 42, 2**64 - 1])
        second = recorder.event("accept", "greedy", req="A", round=7, step=307, correct_len=2, phase="local")
    written = read(tmp_path)
    assert (first, second) == (0, 1)
    assert not written.bad
    assert [(event.seq, event.stage, event.site) for event in written.events] == [
        (0, "verify", "target"),
        (1, "accept", "greedy"),
        (2, "host", "end"),
    ]
    assert written.events[0].target_tokens == [311, 42, 2**64 - 1]
    assert written.events[1].phase == "local"
    meta = written.metas[0]
    assert (meta.format, meta.run, meta.world, meta.rank) == ("divtrace.trace/1", "r", 1, 3)
    assert meta.engine is not None
    assert (meta.engine.name, meta.engine.version) == ("mine", "1.0")
    assert meta.parallel == {"tp_size": 4}
    assert meta.pid == os.getpid()
    assert written.metas[-1].dropped == 0


def test_the_name_of_a_file_tells_run_world_rank_pid_and_part(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=3, world=1, run="a/../b\n") as recorder:
        recorder.event("host", "heartbeat")
    assert [path.name for path in tmp_path.iterdir()] == [f"a_.._b_-world1-rank3-pid{os.getpid()}-part0000.jsonl"]


def test_a_file_that_is_there_is_never_touched(tmp_path: Path) -> None:
    for content in (1, 2):
        with Recorder(tmp_path, rank=0, run="r") as recorder:
            recorder.event("accept", "greedy", req="A", round=1, correct_len=content)
    written = read(tmp_path)
    assert len(written.files) == 2
    assert [event.correct_len for event in written.events if event.stage == "accept"] == [1, 2]


def test_a_wrong_field_moves_under_extra_and_is_counted(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as recorder:
        recorder.event("accept", "greedy", correct_len="three", invented=[1], bonus=2**64, row=5)
        recorder.event("no-such-stage", "x", row=6)
        recorder.event("verify", "x", phase="someday", extra={"control.a": object(), "\ud800": "\ud800"})
        recorder.flush()
        assert recorder.wrong_fields == 6
    written = read(tmp_path)
    assert not written.bad
    accept, unknown, verify = written.events[:3]
    assert (accept.row, accept.correct_len, accept.bonus) == (5, None, None)
    assert accept.extra == {"info.correct_len": "three", "info.invented": [1], "info.bonus": str(2**64)}
    assert (unknown.stage, unknown.row, unknown.extra) == ("host", 6, {"info.stage": "no-such-stage"})
    assert verify.phase is None
    assert verify.extra == {"control.a": "<object>", "\\udcd800": "\\ud800"} or verify.extra is not None
    assert written.raw_metas[-1]["wrong_fields"] == 6


def test_an_integer_out_of_range_is_a_wrong_field(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as recorder:
        recorder.event("accept", "greedy", bonus=2**64 - 1, row=-(2**63))
        recorder.event("accept", "greedy", bonus=2**64)
        recorder.event("accept", "greedy", out_tokens=[-(2**63) - 1])
    fits, high, low = read(tmp_path).events[:3]
    assert (fits.bonus, fits.row) == (2**64 - 1, -(2**63))
    assert (high.bonus, high.extra) == (None, {"info.bonus": str(2**64)})
    assert (low.out_tokens, low.extra) == (None, {"info.out_tokens": [str(-(2**63) - 1)]})


def test_one_wrong_event_costs_its_neighbours_nothing(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as recorder:
        for row in range(300):
            recorder.event("verify", "layout", row=row if row != 150 else "150")
    written = read(tmp_path)
    assert not written.bad
    assert [event.row for event in written.events[:300]] == [None if row == 150 else row for row in range(300)]


def test_numbers_of_other_libraries_do_not_reach_the_file_as_objects(tmp_path: Path) -> None:
    class Tensor:
        __module__ = "torch"

        def __index__(self) -> int:
            raise AssertionError("asked a tensor for its value")

        __repr__ = __str__ = __index__  # type: ignore[assignment]

    with Recorder(tmp_path, rank=0) as recorder:
        recorder.event("accept", "greedy", correct_len=Tensor(), out_tokens=[Tensor()])
    event = read(tmp_path).events[0]
    assert event.extra == {"info.correct_len": "<Tensor>", "info.out_tokens": ["<Tensor>"]}


def test_debug_names_every_wrong_field(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Recorder(tmp_path, rank=0, settings=Settings(debug=True)) as recorder:
        recorder.event("accept", "greedy", invented=1)
        recorder.event("draft", "chain", bonus="x")
        recorder.flush()
    text = caplog.text
    assert "wrong field accept/greedy: invented" in text
    assert "wrong field draft/chain: bonus" in text


def test_meta_that_comes_later_is_written_before_the_next_event(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as recorder:
        recorder.meta(algorithm="EAGLE3")
        recorder.event("host", "a")
        recorder.flush()
        recorder.meta(device="npu")
        recorder.event("host", "b")
    metas = read(tmp_path).metas
    assert [meta.algorithm for meta in metas] == ["EAGLE3"] * 3
    assert [meta.device for meta in metas] == [None, "npu", "npu"]


def test_threads_share_one_recorder(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=0) as recorder:

        def work(name: int) -> None:
            for round_number in range(500):
                recorder.event("accept", "greedy", req=str(name), round=round_number)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = read(tmp_path)
    assert written.seqs == list(range(8 * 500 + 1))
    for name in range(8):
        rounds = [event.round for event in written.events if event.req == str(name)]
        assert rounds == list(range(500))


def test_an_exception_leaves_its_text_and_no_end(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boom"), Recorder(tmp_path, rank=0):
        raise ValueError("boom ::error </script>")
    event = read(tmp_path).events[-1]
    assert (event.stage, event.site, event.error_type) == ("host", "error", "ValueError")
    assert event.error == "boom ::error </script>"


def test_a_process_that_ends_without_closing_has_its_events_and_no_end(tmp_path: Path) -> None:
    script = """
import sys
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
recorder.event("host", "heartbeat")
"""
    finish(child(script, str(tmp_path)))
    assert [event.site for event in read(tmp_path).events] == ["heartbeat"]


def test_nothing_is_recorded_after_the_end(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, rank=0)
    recorder.close()
    recorder.close()
    assert recorder.event("host", "late") == -1
    assert recorder.flush() == -1
    assert not recorder.active
    assert [event.site for event in read(tmp_path).events] == ["end"]


def test_the_run_name_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIVTRACE_RUN", "nightly")
    with Recorder(tmp_path, rank=0) as recorder:
        recorder.event("host", "heartbeat")
    assert read(tmp_path).metas[0].run == "nightly"


def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from divtrace.record import Recorder
recorder = Recorder(sys.argv[1], rank=0)
recorder.event("host", "before")
silent = os.fork()
if silent == 0:
    os._exit(0)
os.waitpid(silent, 0)
child = os.fork()
if child == 0:
    recorder.event("host", "child")
    recorder.close()
    os._exit(0)
os.waitpid(child, 0)
recorder.event("host", "parent")
recorder.close()
print(os.getpid(), child)
"""
    out, _ = finish(child(script, str(tmp_path)))
    parent, forked = out.split()
    assert [e.site for e in read(tmp_path, f"*pid{parent}-*").events] == ["before", "parent", "end"]
    assert [e.site for e in read(tmp_path, f"*pid{forked}-*").events] == ["child", "end"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("directory", ["/proc/nowhere", "/dev/null/x"])
def test_a_directory_that_takes_no_file_stops_the_recording_once(
    directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(directory, rank=0)
    for _ in range(3):
        recorder.event("host", "heartbeat")
        recorder.flush()
    assert not recorder.active
    recorder.close()
    assert [r.levelno for r in caplog.records if r.name == "divtrace.record"] == [logging.WARNING]


def test_senseless_arguments_do_not_raise(tmp_path: Path) -> None:
    recorder = Recorder(object(), rank=object(), parallel=3, engine=7)  # type: ignore[arg-type]
    assert recorder.event(None, None, extra=3) == -1
    recorder.meta(x=object())
    recorder.close()
    other = Recorder(tmp_path, rank=0, algorithm=object())
    other.event(["list"], {"a": 1}, req=5, extra={1: 2})  # type: ignore[arg-type]
    other.event("host", "fine")
    other.close()
    written = read(tmp_path)
    assert not written.bad
    assert [event.site for event in written.events][1:] == ["fine", "end"]
