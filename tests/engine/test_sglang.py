"""SGLang's real functions on two CPU processes over gloo, hooked through SGLang's own loader.

What needs a GPU is not run here; `test_source.py` checks those names against the wheel.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest
from record.reading import Written, free_port, read

from divtrace import analyze
from divtrace.record.sglang.sync import SITES
from divtrace.record.sglang.targets import COLLECTIVES, TARGETS
from engine import environments

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.environ.get("DIVTRACE_ENGINE_TESTS") != "1", reason="downloads; DIVTRACE_ENGINE_TESTS=1"),
]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The traces of one drive, and what its two processes said."""
    python = environments.sglang()
    directory = tmp_path_factory.mktemp("sglang")
    port = free_port()
    variables = {"DIVTRACE_DIR": str(directory), "DIVTRACE_RUN": "drive", "TRITON_INTERPRET": "1"}
    processes = [
        subprocess.Popen(
            [str(python), str(environments.HERE / "sglang_drive.py"), str(rank), port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=directory,
            env=environments.clean_environment() | variables,
        )
        for rank in range(2)
    ]
    try:
        said = [out + err for out, err in (process.communicate(timeout=600) for process in processes)]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "".join(text[-6000:] for text in said)
    return directory, said


@pytest.fixture(scope="module")
def written(driven: tuple[Path, list[str]]) -> Written:
    return read(driven[0])


def test_every_hook_is_in_place(driven: tuple[Path, list[str]]) -> None:
    for said in driven[1]:
        found = re.search(r"^HOOKS (.*)$", said, re.MULTILINE)
        assert found
        assert len(ast.literal_eval(found[1])["hooks"]) == len(TARGETS)
        assert "hook on" not in said, "a hook failed"


def without(module: str, name: str, directory: Path) -> tuple[tuple[str, ...], int, list[str]]:
    """Takes a function from the real SGLang and registers; gives the layers that are on, hooks and warnings."""
    script = f"""
import logging, sys
sys.path.insert(0, {str(environments.HERE)!r})
import sglang_drive
sglang_drive.prepare_imports()
from pkgutil import resolve_name
delattr(resolve_name({module!r}), {name!r})
from divtrace.record import Recorder
from divtrace.record.device import CpuDevice
from divtrace.record.sglang.process import ProcessState, register
logging.getLogger("divtrace.record").addHandler(handler := logging.Handler())
lines = []
handler.emit = lambda record: lines.append(record.getMessage())
state = ProcessState(Recorder({str(directory)!r}, rank=0), CpuDevice())
print("REGISTERED", (*register(state, ("base", "stage", "sync")), lines))
"""
    said = environments.run([environments.sglang(), "-c", script], TRITON_INTERPRET="1")
    layers, attached, lines = ast.literal_eval(said.partition("REGISTERED ")[2])
    return layers, attached, lines


def test_a_further_function_that_is_gone_costs_what_hangs_on_it(tmp_path: Path) -> None:
    gone = "managers.overlap_utils.ConfidenceRelay"
    layers, attached, lines = without(f"sglang.srt.{gone}", "resolve", tmp_path)
    assert layers == ("base", "stage", "sync")
    assert attached == len(TARGETS) - 1
    assert lines == [f"layer base: without what hangs on {gone}.resolve, which this SGLang does not have"]


def test_a_core_function_that_is_gone_costs_its_layer(tmp_path: Path) -> None:
    gone = "speculative.dflash_worker_v2.DFlashWorkerV2"
    layers, attached, lines = without(f"sglang.srt.{gone}", "_accept_block", tmp_path)
    assert layers == ("base", "sync")
    assert attached == sum(target.layer != "stage" for target in TARGETS)
    why = "AttributeError: type object 'DFlashWorkerV2' has no attribute '_accept_block'"
    assert lines == [f"layer stage is off: {gone}._accept_block does not resolve ({why})"]


def test_the_meta_tells_the_layout(written: Written) -> None:
    meta = written.metas[0]
    assert meta.engine is not None
    assert (meta.engine.name, meta.engine.version) == ("sglang", "0.5.23")
    assert meta.parallel is not None
    assert (meta.parallel["tp_size"], meta.parallel["attn_dp_size"]) == (2, 1)
    assert (meta.algorithm, meta.sync, meta.backend, meta.device) == ("DSPARK", "all", "gloo", "cpu")


@pytest.mark.parametrize("slug", sorted(SITES))
def test_every_sync_site_has_values_before_and_after(written: Written, slug: str) -> None:
    stage, fields = SITES[slug]
    # The stage layer records what the engine went on with under the same site.
    events = [event for event in written.events if event.site == slug and event.phase is not None]
    # Two ranks, two requests, before and after.
    assert len(events) == 8 * len(fields)
    assert {event.stage for event in events} == {stage}
    for number, field in enumerate(fields):
        for req in ("A", "B"):
            mine = [event for event in events if event.req == req and (event.n or 0) == number]
            before, after = (
                [getattr(event, field) for event in mine if event.phase == phase] for phase in ("local", "synced")
            )
            assert len(before) == len(after) == 2
            assert before[0] != before[1], "the ranks went in with different values"
            assert after[0] == after[1], "and came out with one"
    synced = [event for event in events if event.phase == "synced"]
    assert {(tuple(event.comm_ranks or ()), event.src) for event in synced} == {((0, 1), 0)}


def one(written: Written, stage: str, site: str, req: str, step: int = 3) -> object:
    """The values that both ranks recorded at a place of a step, which have to be the same."""
    skipped = ("seq", "ts", "rank", "step", "stage", "site", "req", "n", "phase", "round")
    found = [
        {name: value for name in event.__struct_fields__ if (value := getattr(event, name)) is not None}
        for event in written.events
        if (event.stage, event.site, event.req, event.phase, event.step) == (stage, site, req, None, step)
    ]
    values = [{name: value for name, value in event.items() if name not in skipped} for event in found]
    assert len(values) == 2, values
    assert values[0] == values[1]
    return values[0]


def test_dspark(written: Written) -> None:
    assert one(written, "draft", "dspark", "A") == {"draft_root": 4, "draft_tokens": [5, 6, 7]}
    assert one(written, "verify", "dspark-plan", "B") == {"num_draft_tokens": 4, "verify_len": 2, "seq_len": 2}
    assert one(written, "accept", "dspark", "A") == {"correct_len": 2, "bonus": 1, "cap_trim_len": 0}
    assert one(written, "commit", "dspark", "B") == {"seq_len": 2, "commit_len": 1}


def test_dflash(written: Written) -> None:
    assert one(written, "accept", "dflash", "A") == {"correct_len": 2, "bonus": 1, "branch": "greedy"}
    assert one(written, "commit", "dflash", "A") == {"seq_len": 3, "commit_len": 3, "out_tokens": [5, 6, 1]}


def test_eagle_sample(written: Written) -> None:
    accept = {"branch": "greedy", "accept_path": [0, 1, 2], "correct_len": 2, "bonus": 1}
    assert one(written, "accept", "eagle-greedy", "A") == accept
    assert one(written, "verify", "target", "A") == {"branch": "greedy", "target_tokens": [5, 6, 1, 2]}


def test_the_verify_of_a_chain_has_slots(written: Written) -> None:
    assert one(written, "verify", "input", "A") == {
        "draft_root": 4,
        "draft_tokens": [5, 6, 7],
        "num_draft_tokens": 4,
    }
    layout = one(written, "verify", "layout", "B")
    positions = [2, 3, 4, 5]
    expected = {"row": 1, "seq_len": 2, "positions": positions, "kv_positions": positions}
    assert layout == {**expected, "kv_slots": [104, 105, 106, 107]}


def test_the_verify_of_an_irregular_tree_has_parents_and_no_slots(written: Written) -> None:
    assert one(written, "verify", "input", "A", step=4) == {
        "draft_root": 1,
        "draft_tokens": [5, 6, 7],
        "draft_parents": [0, 0, 1],
        "num_draft_tokens": 4,
    }
    assert one(written, "verify", "layout", "B", step=4) == {"row": 1, "seq_len": 3, "positions": [3, 4, 4, 5]}


def test_the_commit_of_eagle_on_the_device(written: Written) -> None:
    committed = {"seq_len": 3, "commit_len": 3, "new_seq_len": 6, "out_tokens": [5, 6, 1]}
    assert one(written, "commit", "eagle", "A") == committed
    assert one(written, "commit", "eagle", "B") == {"seq_len": 2, "commit_len": 1, "new_seq_len": 3, "out_tokens": [3]}


def test_the_lengths_that_the_next_forward_starts_from(written: Written) -> None:
    assert one(written, "commit", "publish", "A") == {"new_seq_len": 6}
    assert one(written, "commit", "publish", "B") == {"new_seq_len": 3}


def test_how_far_the_slots_reach(written: Written) -> None:
    events = [event for event in written.events if (event.stage, event.site) == ("schedule", "allocate")]
    assert [(event.step, event.batch, event.extra) for event in events] == [
        (3, ["A", "B"], {"layout.kv_allocated_len": [8, 7]})
    ] * 2


def test_the_commit_of_the_scheduler(written: Written) -> None:
    settled = {"out_tokens": [5, 6, 1], "commit_len": 3, "seq_len": 3, "new_seq_len": 6}
    assert one(written, "commit", "settle", "A") == {**settled, "correct_len": 2, "verify_len": 4}


def test_rounds_are_counted_per_request(written: Written) -> None:
    rounds = [event.round for event in written.events if event.site == "settle" and event.req == "A"]
    assert rounds == [2, 2], "the third forward is the second round; the first was the prefill"


def test_collectives_count_once_each(written: Written) -> None:
    operations = [event for event in written.events if event.stage == "collective" and event.state == "enqueued"]
    syncs = sum(len(fields) for _, fields in SITES.values())
    assert [event.op for event in operations].count("broadcast") == 2 * (syncs + 1)
    assert [event.op for event in operations].count("all_gather") == 2, "all_gather calls all_gather_into_tensor"
    assert [event.op for event in operations].count("barrier") == 2
    assert {event.comm for event in operations} == {"tp"}
    assert set(COLLECTIVES) >= {"all_reduce", "broadcast"}


def test_an_exception_is_recorded_and_comes_through(written: Written) -> None:
    errors = [event for event in written.events if event.site == "error"]
    assert [event.error for event in errors] == ["made up ::error </script>"] * 2


def test_the_analysis_heals_what_the_sync_made_equal(driven: tuple[Path, list[str]]) -> None:
    report = analyze([driven[0]])
    assert report.verdict in ("clean", "uniform_stall")
    assert sum(entry.count for entry in report.healed) == sum(2 * len(fields) for _, fields in SITES.values())
