"""`divtrace check`: what fails a pipeline, and the job's summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import traces
from cli.command import Call


@pytest.mark.parametrize(
    ("fail_on", "diverged", "missing"),
    [
        (None, 1, 3),
        ("all", 1, 3),
        ("none", 0, 0),
        ("control", 1, 0),
        ("shape", 0, 0),
        ("shape,control", 1, 0),
        ("logical-layout,insufficient", 0, 3),
        ("divergence", 1, 0),
        ("insufficient,rank_silent", 0, 3),
    ],
)
def test_only_listed_outcomes_fail(
    call: Call, tmp_path: Path, fail_on: str | None, diverged: int, missing: int
) -> None:
    options = () if fail_on is None else ("--fail-on", fail_on)
    forked = call("check", traces.diverged(tmp_path / "forked"), *options)
    alone = call("check", traces.one_rank_missing(tmp_path / "alone"), *options)

    assert (forked.returncode, alone.returncode) == (diverged, missing)
    assert forked.stdout == call("analyze", tmp_path / "forked").stdout
    assert alone.stdout == call("analyze", tmp_path / "alone").stdout


def test_fail_on_can_be_repeated_and_come_from_the_environment(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path)

    assert call("check", folder, "--fail-on", "shape", "--fail-on", "control").returncode == 1
    assert call("check", folder, DIVTRACE_FAIL_ON="shape insufficient").returncode == 0
    assert call("check", folder, DIVTRACE_FAIL_ON="shape,control").returncode == 1


def test_agreement_passes_and_no_trace_fails_whatever_is_listed(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    assert call("check", traces.clean(tmp_path / "clean")).returncode == 0
    assert call("check", tmp_path / "empty", "--fail-on", "none").returncode == 2


@pytest.mark.parametrize(
    ("value", "named"), [("controll", "'controll'"), ("none,control", "none stands alone"), ("", "''")]
)
def test_a_word_that_fail_on_does_not_know_is_refused(call: Call, value: str, named: str) -> None:
    run = call("check", "nowhere", "--fail-on", value)

    assert (run.returncode, run.stdout) == (2, "")
    assert named in run.stderr.splitlines()[0]


def test_the_markdown_is_appended_to_the_summary(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path / "traces")
    summary = tmp_path / "summary.md"
    summary.write_text("# Before\n", encoding="utf-8")

    run = call("check", folder, GITHUB_STEP_SUMMARY=str(summary))

    assert run.returncode == 1
    assert run.stdout == call("check", folder).stdout
    markdown = call("analyze", folder, "--format", "markdown").stdout
    assert summary.read_text(encoding="utf-8") == "# Before\n" + markdown


def test_the_summary_is_written_even_if_nothing_fails_the_job(call: Call, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"

    assert call("check", traces.clean(tmp_path / "traces"), GITHUB_STEP_SUMMARY=str(summary)).returncode == 0
    assert summary.stat().st_size > 0


def test_analyze_leaves_the_summary_alone(call: Call, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"

    call("analyze", traces.clean(tmp_path / "traces"), GITHUB_STEP_SUMMARY=str(summary))

    assert not summary.exists()


def test_a_summary_that_cannot_be_written_does_not_cost_the_report(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path / "traces")

    run = call("check", folder, GITHUB_STEP_SUMMARY=str(tmp_path / "missing" / "summary.md"))

    assert run.returncode == 1
    assert run.stdout == call("check", folder).stdout
    assert run.stderr.startswith("divtrace: warning: cannot append to ")


def test_annotations_go_to_standard_output_in_place_of_the_text(call: Call, tmp_path: Path) -> None:
    run = call("check", traces.diverged(tmp_path), "--report", "github=-")

    assert run.stdout.startswith("::error ")
    assert 1 <= run.stdout.count("\n") <= 10
