"""The doctor sees what would be recorded, and what stands in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from divtrace.record.doctor import examine, main, render
from record.reading import ROOT, read


def test_it_says_that_nothing_is_recorded_without_a_directory() -> None:
    found = examine({})
    assert found.directory is None
    assert any("DIVTRACE_DIR is not set" in problem for problem in found.problems)


def test_it_tries_the_directory_and_leaves_nothing_there(tmp_path: Path) -> None:
    found = examine({"DIVTRACE_DIR": str(tmp_path / "logs")})
    assert found.free_bytes
    assert list((tmp_path / "logs").iterdir()) == []
    bad = examine({"DIVTRACE_DIR": "/proc/nowhere"})
    assert any("cannot be written" in problem for problem in bad.problems)


def test_it_estimates_the_disk_of_an_hour() -> None:
    quiet = examine({}, steps_per_second=10, batch=1)
    busy = examine({}, steps_per_second=20, batch=32, collectives=100)
    assert 0 < quiet.bytes_an_hour < busy.bytes_an_hour
    assert f"{busy.bytes_an_hour / 1e9:.1f} GB" in "\n".join(render(busy))


def test_it_names_bad_settings_and_missing_keys() -> None:
    found = examine({"DIVTRACE_TOKENS": "hash", "DIVTRACE_RING": "x"})
    assert found.tokens == "off"
    assert any("DIVTRACE_RING" in problem for problem in found.problems)
    assert any("one key" in problem for problem in found.problems)


def test_a_package_that_looks_like_an_engine_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    metadata = tmp_path / "vllm-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = examine({})
    engine = next(engine for engine in found.engines if engine.name == "vllm")
    assert engine.version == "9.9"
    assert all(layer.missing for layer in engine.layers)
    assert main([]) == 2
    assert "vllm 9.9" in capsys.readouterr().out


@pytest.mark.download
@pytest.mark.skipif(os.environ.get("DIVTRACE_DOWNLOAD_TESTS") != "1", reason="downloads; DIVTRACE_DOWNLOAD_TESTS=1")
def test_msgspec_is_all_that_recording_needs(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DIVTRACE_", "PYTHON"))}
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(ROOT), "msgspec"], check=True, env=clean)
    script = f"""
from divtrace.record import Recorder
with Recorder({str(tmp_path / "logs")!r}, rank=0) as recorder:
    recorder.event("accept", "greedy", correct_len=1)
"""
    subprocess.run([python, "-c", script], check=True, env=clean, cwd=tmp_path)
    assert [event.site for event in read(tmp_path / "logs").events] == ["greedy", "end"]
    doctor = [python, "-m", "divtrace.record", "doctor"]
    done = subprocess.run(doctor, capture_output=True, text=True, check=False, env=clean, cwd=tmp_path)
    assert done.returncode == 2
    assert "neither SGLang nor vLLM is installed" in done.stdout
    assert done.stderr == ""
