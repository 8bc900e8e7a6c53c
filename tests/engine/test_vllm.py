"""A real engine from end to end: vLLM on two CPU ranks with speculative decoding and the plugin on.

Makes an environment of about 4 GB; each run takes one to two minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from record.reading import Written, read

from divtrace import analyze
from engine import environments

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.environ.get("DIVTRACE_ENGINE_TESTS") != "1", reason="downloads; DIVTRACE_ENGINE_TESTS=1"),
]
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0|1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


@pytest.fixture(scope="module")
def python() -> Path:
    return environments.vllm()


@pytest.fixture(scope="module")
def models(python: Path) -> Path:
    folder = environments.cache() / "models"
    if not (folder / "draft" / "tokenizer.json").exists():
        environments.run([python, environments.HERE / "tiny_models.py", folder])
    return folder


def generate(python: Path, models: Path, **variables: str) -> tuple[list[list[int]], str]:
    """Runs the generation; returns the token ids of every request and what vLLM said."""
    done = subprocess.run(
        [str(python), str(environments.HERE / "generate.py"), str(models)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env=environments.clean_environment() | SETTINGS | variables,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    found = re.search(r"^OUTPUT (.*)$", done.stdout, re.MULTILINE)
    assert found, said[-4000:]
    outputs: list[list[int]] = json.loads(found[1])
    return outputs, said


def check_trace(written: Written) -> None:
    assert not written.bad
    for rank in (0, 1):
        mine = [event for event in written.events if event.rank == rank]
        assert not mine, "the rank stands in the meta"
    assert {meta.rank for meta in written.metas} == {0, 1}
    assert {meta.dropped for meta in written.metas} == {0}
    assert len({meta.run for meta in written.metas}) == 1
    sites = {(event.stage, event.site) for event in written.events}
    for site in (("verify", "layout"), ("verify", "target"), ("accept", "rejection-sampler"), ("commit", "commit")):
        assert site in sites


def test_an_honest_run_is_clean_and_unchanged_by_the_recorder(python: Path, models: Path, tmp_path: Path) -> None:
    recorded, said = generate(python, models, DIVTRACE_DIR=str(tmp_path / "trace"))
    written = read(tmp_path / "trace")
    check_trace(written)
    assert "hook on" not in said, "a hook failed"
    report = analyze([tmp_path / "trace"])
    assert report.verdict == "clean"
    assert report.replicas[0].requests == 6
    assert report.replicas[0].rounds > 100
    committed: dict[str, list[int]] = {}
    for event in read(tmp_path / "trace", "*rank0-*").events:
        if event.stage == "commit" and event.site == "commit":
            assert event.req is not None
            committed.setdefault(event.req.partition("-")[0], []).extend(event.out_tokens or [])
    # The trace holds what the caller got; the last round may overshoot.
    assert [committed[str(i)][: len(tokens)] for i, tokens in enumerate(recorded)] == recorded
    plain, _ = generate(python, models)
    assert plain == recorded


def test_a_wrong_target_token_is_the_first_divergence(python: Path, models: Path, tmp_path: Path) -> None:
    _, said = generate(python, models, DIVTRACE_DIR=str(tmp_path / "trace"), DIVTRACE_TEST_PERTURB="1:12:2")
    found = re.search(r"PERTURBED step 12 request row 2: (\d+) and (\d+)", said)
    assert found
    check_trace(read(tmp_path / "trace"))
    report = analyze([tmp_path / "trace"])
    first = report.first
    assert report.verdict == "divergence"
    assert first is not None
    assert (first.rule, first.stage, first.site, first.step) == ("target-tokens", "verify", "target", 12)
    assert first.req is not None
    assert first.req.startswith("2-")
    assert (first.field, first.index) == ("target_tokens", 0)
    assert [first.values[rank][0] for rank in ("0", "1")] == [int(found[1]), int(found[2])]


def test_prompt_lookup_is_clean(python: Path, models: Path, tmp_path: Path) -> None:
    generate(python, models, DIVTRACE_DIR=str(tmp_path / "trace"), DIVTRACE_TEST_METHOD="ngram")
    report = analyze([tmp_path / "trace"])
    assert report.verdict == "clean"
    assert report.replicas[0].requests == 6


def test_the_hooks_of_the_v2_runner_with_small_tensors(python: Path, tmp_path: Path) -> None:
    environments.run([python, environments.HERE / "vllm_v2_drive.py", tmp_path / "trace"])
    written = read(tmp_path / "trace")
    assert not written.bad
    assert written.seqs == list(range(len(written.events))), "a number was reserved and not used"
    places = [(event.req, event.round, event.n or 0, event.stage, event.site) for event in written.events]
    assert ("B", 0, 1, "prefill", "layout") in places, "the second part of a chunked prefill"
    assert ("B", 0, 0, "prefill", "target") not in places, "the first part yields no token"
    accept = next(e for e in written.events if (e.req, e.round, e.stage) == ("A", 1, "accept"))
    assert (accept.step, accept.correct_len, accept.bonus) == (1, 1, 30)
    inputs = next(e for e in written.events if (e.req, e.round, e.site) == ("A", 1, "input"))
    assert (inputs.draft_root, inputs.draft_tokens) == (14, [15, 16]), "the buffer was used again before the copy"
    targets = {(e.req, e.round): e for e in written.events if (e.stage, e.site) == ("verify", "target")}
    # B comes to the place of the greedy request in the last step.
    assert set(targets) == {("A", 1), ("B", 1)}, "sampled requests have no target tokens"
    assert (targets["A", 1].target_tokens, targets["A", 1].margin) == ([15, 30, 9], 1.0)
    assert (targets["A", 1].branch, targets["B", 1].branch) == ("greedy", None), "a grammar decides with the target"
    report = analyze([tmp_path / "trace"])
    assert report.first is None
    assert report.replicas[0].rounds == 4


def test_without_a_directory_the_plugin_does_nothing(python: Path) -> None:
    script = """
import sys
from divtrace.record.vllm import load
load()
print([name for name in sys.modules if name.startswith(("vllm", "torch", "msgspec"))], end="")
"""
    assert environments.run([python, "-c", script]) == "[]"
