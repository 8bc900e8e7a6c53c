"""Hooks around an engine's functions, and values that come from a device: nothing may reach the engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from divtrace.record import Recorder
from divtrace.record.collectives import CollectiveLog, watch_communicator
from divtrace.record.deferred import record_later
from divtrace.record.device import CpuDevice, StreamDevice, device_name, open_device
from divtrace.record.hooks import Hook, attach, wrap
from divtrace.record.rounds import Rounds
from divtrace.record.sglang.process import ProcessState
from divtrace.record.sglang.rows import tree_parents
from divtrace.record.sglang.stage import StageHooks
from divtrace.record.sglang.sync import collective_hook
from divtrace.record.source import Source, Target
from record.reading import read

pytestmark = pytest.mark.usefixtures("fresh")


class Engine:
    """Something to hook."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def step(self, number: int) -> int:
        self.calls.append(number)
        if number < 0:
            raise ValueError("negative")
        return number * 2


def test_a_hook_sees_arguments_and_result_and_changes_neither() -> None:
    seen: list[Any] = []
    engine = Engine()

    def before(number: int) -> str:
        seen.append(("before", number))
        return "token"

    def after(token: str, result: int, number: int) -> None:
        seen.append((token, result, number))

    hook = Hook("step", before=before, after=after)
    assert attach(engine, "step", hook)
    assert engine.step(3) == 6
    assert seen == [("before", 3), ("token", 6, 3)]
    assert engine.calls == [3]


def test_an_exception_of_the_engine_goes_through_and_is_seen() -> None:
    seen: list[str] = []
    engine = Engine()
    attach(engine, "step", Hook("step", failed=lambda _token, error, _number: seen.append(str(error))))
    with pytest.raises(ValueError, match="negative"):
        engine.step(-1)
    assert (seen, engine.calls) == (["negative"], [-1])


def test_a_failing_hook_is_swallowed_and_in_the_end_off(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def broken(number: int) -> None:
        tries.append(number)
        raise RuntimeError("bug of ours")

    engine = Engine()
    attach(engine, "step", Hook("step", before=broken))
    assert [engine.step(number) for number in range(50)] == [number * 2 for number in range(50)]
    assert len(tries) == 20
    assert engine.calls == list(range(50))
    assert "bug of ours" in caplog.text


def test_a_missing_target_is_one_line_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    assert not attach(Engine(), "gone", Hook("Engine.gone"))
    assert [record.message for record in caplog.records] == ["Engine.gone is not there; it is not recorded"]


def test_attaching_twice_counts_once() -> None:
    seen: list[int] = []
    engine = Engine()
    for _ in range(2):
        attach(engine, "step", Hook("step", before=seen.append))
    engine.step(1)
    assert seen == [1]


def test_a_wrapped_function_keeps_its_name() -> None:
    assert wrap(Engine.step, Hook("step")).__name__ == "step"


# Devices -------------------------------------------------------------------------------------------------------------


class Tensor:
    """As much of a tensor as the device layer uses; counts what would wait for a device."""

    waits = 0

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.shape = (len(values),)
        self.dtype = "int64"

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(list(self.values))

    def copy_(self, other: Tensor, non_blocking: bool = False) -> None:
        assert non_blocking
        self.values = other.values

    def numel(self) -> int:
        return len(self.values)

    def tolist(self) -> list[int]:
        return self.values

    def item(self) -> int:
        Tensor.waits += 1
        return self.values[0]

    cpu = numpy = item


class Event:
    """An event of a stream; passes when told."""

    everything: ClassVar[list[Event]] = []

    def __init__(self) -> None:
        self.passed = False
        Event.everything.append(self)

    def record(self, stream: object = None) -> None:
        pass

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        raise AssertionError("waited for the device")


class Stream:
    """A stream that is a context."""

    def wait_event(self, event: Event) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def fake_torch(name: str, *, hip: str | None = None, capturing: bool = False) -> Any:
    module = SimpleNamespace(
        is_available=lambda: True,
        Event=Event,
        Stream=Stream,
        stream=lambda stream: stream,
        is_current_stream_capturing=lambda: capturing,
    )
    return SimpleNamespace(
        **{name: module},
        version=SimpleNamespace(hip=hip),
        empty=lambda shape, **_: Tensor([0] * shape[0]),
    )


@pytest.mark.parametrize(
    ("torch", "name"),
    [
        (fake_torch("cuda"), "cuda"),
        (fake_torch("cuda", hip="6.4"), "rocm"),
        (fake_torch("npu"), "npu"),
        (fake_torch("xpu"), "xpu"),
        (SimpleNamespace(version=SimpleNamespace(hip=None)), "cpu"),
    ],
)
def test_every_device_that_torch_offers_is_told_apart(torch: Any, name: str) -> None:
    assert device_name(torch) == name
    assert isinstance(open_device(torch), CpuDevice if name == "cpu" else StreamDevice)


def test_values_of_a_device_are_written_when_they_arrive_and_nobody_waits(tmp_path: Path) -> None:
    Event.everything, Tensor.waits = [], 0
    device = open_device(fake_torch("npu"))
    live = Tensor([7, 8])
    with Recorder(tmp_path, rank=0) as recorder:
        record_later(
            recorder, device, [live], 2, lambda values: [{"stage": "accept", "site": "x", "bonus": v} for v in values]
        )
        live.values[0] = 99
        recorder.event("host", "later")
        recorder.flush()
        assert [event.site for event in read(tmp_path).events] == ["later"]
        for event in Event.everything:
            event.passed = True
        recorder.flush()
    events = sorted(read(tmp_path).events, key=lambda event: event.seq or 0)
    assert [(event.seq, event.site, event.bonus) for event in events] == [
        (0, "x", 7),
        (1, "x", 8),
        (2, "later", None),
        (3, "end", None),
    ]
    assert Tensor.waits == 0


def test_values_that_never_arrive_leave_a_gap_and_no_empty_decision(tmp_path: Path) -> None:
    device = open_device(fake_torch("cuda"))
    with Recorder(tmp_path, rank=0) as recorder:
        record_later(recorder, device, [Tensor([1])], 1, lambda values: [{"stage": "accept", "bonus": values[0]}])
        recorder.event("host", "later")
    assert read(tmp_path).seqs == [1, 2]


class Untouchable(Tensor):
    def clone(self) -> Tensor:
        raise AssertionError("a kernel went into the captured graph")


def test_nothing_is_added_to_a_stream_that_captures_a_graph(tmp_path: Path) -> None:
    device = open_device(fake_torch("cuda", capturing=True))
    with Recorder(tmp_path, rank=0) as recorder:
        log = CollectiveLog(recorder, device, lambda: (1, "x"))
        assert log.begin("all_reduce", "tp", [0, 1]) is None
        log.done(None)
        record_later(recorder, device, [Untouchable([1])], 1, lambda _: [{"stage": "accept"}])
        stage = StageHooks(ProcessState(recorder, device))
        rows = SimpleNamespace(shape=(1,))
        logits = SimpleNamespace(next_token_logits=SimpleNamespace(shape=(2,), argmax=None))
        batch = SimpleNamespace(
            reqs=[SimpleNamespace(rid="A")], sampling_info=SimpleNamespace(is_all_greedy=True), seq_lens=None
        )
        stage.eagle_sample(None, (rows, rows, rows), SimpleNamespace(draft_token_num=2), batch, logits)
    assert [event.site for event in read(tmp_path).events] == ["end"]


# Collectives ---------------------------------------------------------------------------------------------------------


class Communicator:
    """An engine's communicator."""

    def all_reduce(self, input_: Any) -> Any:
        return input_

    def broadcast(self, _input: Any, _src: int = 0) -> Any:
        raise RuntimeError("Timed out waiting 4000ms for recv operation to complete")


def test_a_communicator_is_counted_and_its_timeout_told(tmp_path: Path) -> None:
    sized = SimpleNamespace(shape=(2, 3), dtype="torch.float32", numel=lambda: 6)
    with Recorder(tmp_path, rank=2) as recorder:
        log = CollectiveLog(recorder, CpuDevice(), lambda: (5, "forward"))
        communicator = Communicator()
        assert watch_communicator(log, communicator, ("all_reduce", "broadcast", "gather"), "attention_tp", [2, 3]) == 2
        communicator.all_reduce(sized)
        with pytest.raises(RuntimeError, match="Timed out"):
            communicator.broadcast(sized, 1)
    events = read(tmp_path).events[:-1]
    assert [(event.op, event.comm_seq, event.state) for event in events] == [
        ("all_reduce", 0, "enqueued"),
        ("all_reduce", 0, "completed"),
        ("broadcast", 1, "enqueued"),
        ("broadcast", 1, "timeout"),
    ]
    assert (events[0].shape, events[0].dtype, events[0].numel) == ([2, 3], "float32", 6)
    assert (events[2].src, events[2].comm, events[2].comm_ranks) == (3, "attention_tp", [2, 3])
    assert "Timed out" in (events[3].error or "")


def test_a_collective_whose_hook_failed_hides_no_other(tmp_path: Path) -> None:
    class Group:
        unique_name, world_size = "tp:0", 2
        ranks: ClassVar[list[Any]] = [0, "one"]

        def barrier(self) -> None: ...

    group = Group()
    with Recorder(tmp_path, rank=0) as recorder:
        state = ProcessState(recorder, CpuDevice())
        hook = collective_hook(state, "barrier")
        for _ in range(30):
            hook.around(Group.barrier, (group,), {})
        assert hook.off
        group.ranks[1] = 1
        collective_hook(state, "barrier").around(Group.barrier, (group,), {})
    assert [event.state for event in read(tmp_path).events] == ["enqueued", "completed", None]


# Rounds, trees, sources ----------------------------------------------------------------------------------------------


def test_rounds_start_anew_with_every_attempt() -> None:
    rounds = Rounds()
    rounds.of("A").round = 4
    rounds.retracted("A")
    assert (rounds.of("A").attempt, rounds.of("A").round) == (1, 0)
    assert rounds.finished("A")
    assert not rounds.finished("A")


def test_parents_follow_from_child_and_sibling_links() -> None:
    # Root 0 has children 1 and 2; 1 has 3 and 4; 2 has 5.
    assert tree_parents([1, 3, 5, -1, -1, -1], [-1, 2, -1, 4, -1, -1]) == [0, 0, 1, 1, 2]
    assert tree_parents([1, 2, 3, -1], [-1] * 4) == [0, 1, 2]
    for broken in ([1, 0, -1], [1, 1, -1], [-1, -1, -1]):
        with pytest.raises(ValueError, match="node"):
            tree_parents(broken, [-1] * 3)


def test_a_source_tells_what_a_target_lacks(tmp_path: Path) -> None:
    package = tmp_path / "engine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "core.py").write_text("class Runner:\n    def step(self, batch, *, mode):\n        return batch.rows\n")
    source = Source.folder(str(tmp_path), "engine")
    assert source.problems(Target("step", "base", "engine.core.Runner.step", ("self", "mode"), ("rows",))) == []
    assert source.problems(Target("step", "base", "engine.core.Runner.step", ("layout",), ("lanes",))) == [
        "engine.core.Runner.step has no parameter 'layout'",
        "nothing is named 'lanes' any more",
    ]
    assert source.problems(Target("walk", "base", "engine.core.Runner.walk")) == [
        "engine.core.Runner.walk is not there"
    ]
    assert source.problems(Target("x", "base", "engine.gone.f")) == ["engine.gone.f is not there"]
