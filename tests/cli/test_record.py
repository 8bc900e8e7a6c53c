"""`divtrace record doctor` says what the recorder's own doctor says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def _doctor(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("DIVTRACE_")}
    return subprocess.run(
        [sys.executable, "-m", *command], env=variables | environment, capture_output=True, text=True, check=False
    )


def test_doctor_is_the_recorders_own(tmp_path: Path) -> None:
    ours = _doctor("divtrace", "record", "doctor", DIVTRACE_DIR=str(tmp_path))
    theirs = _doctor("divtrace.record", "doctor", DIVTRACE_DIR=str(tmp_path))

    def lines(answer: subprocess.CompletedProcess[str]) -> list[str]:
        return [line for line in answer.stdout.splitlines() if "GB free" not in line]

    assert lines(ours) == lines(theirs)
    assert (ours.returncode, theirs.returncode) == (2, 2)  # no engine is installed beside the tests
    assert "neither SGLang nor vLLM" in ours.stdout


def test_doctor_reckons_with_the_given_rate() -> None:
    slow = _doctor("divtrace", "record", "doctor", "--steps-per-second", "1")
    fast = _doctor("divtrace", "record", "doctor", DIVTRACE_STEPS_PER_SECOND="100")

    def disk(answer: subprocess.CompletedProcess[str]) -> float:
        line = next(line for line in answer.stdout.splitlines() if line.lstrip().startswith("disk"))
        return float(line.split("about ")[1].split(" GB")[0])

    assert disk(fast) > 50 * disk(slow)


def test_only_the_doctor_is_in() -> None:
    answer = _doctor("divtrace", "record", "surgeon")

    assert answer.returncode == 2
    assert "surgeon" in answer.stderr
