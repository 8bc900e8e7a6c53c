"""`divtrace analyze`: exit statuses, streams, formats and files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli import traces
from cli.command import Call, environment

ESCAPE = "\x1b"
NEAR_TIE = Path(__file__).parents[2] / "fixtures" / "verify-near-tie"


def test_agreeing_ranks_exit_0_and_only_standard_output_speaks(call: Call, tmp_path: Path) -> None:
    run = call("analyze", traces.clean(tmp_path))

    assert (run.returncode, run.stderr) == (0, "")
    assert "clean" in run.stdout
    assert ESCAPE not in run.stdout


def test_a_divergence_exits_1_and_is_named(call: Call, tmp_path: Path) -> None:
    run = call("analyze", traces.diverged(tmp_path))

    assert (run.returncode, run.stderr) == (1, "")
    assert "target-tokens" in run.stdout
    assert max(len(line) for line in run.stdout.splitlines()) <= 80


def test_a_missing_rank_exits_3(call: Call, tmp_path: Path) -> None:
    run = call("analyze", traces.one_rank_missing(tmp_path), "--format", "json")

    assert (run.returncode, run.stderr) == (3, "")
    assert json.loads(run.stdout)["verdict"] == "insufficient"


def test_a_folder_without_a_trace_exits_2(call: Call, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here", encoding="utf-8")

    run = call("analyze", tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    error, hint = run.stderr.splitlines()
    assert error.startswith("divtrace: error: no trace in ")
    assert hint.startswith("hint: ")


def test_a_missing_path_exits_2_and_is_named(call: Call, tmp_path: Path) -> None:
    run = call("analyze", "nowhere", cwd=tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    assert "nowhere" in run.stderr.splitlines()[0]


def test_several_runs_are_listed_and_one_can_be_picked(call: Call, tmp_path: Path) -> None:
    traces.clean(tmp_path / "monday", run="monday")
    traces.diverged(tmp_path / "tuesday", run="tuesday")

    mixed = call("analyze", tmp_path)
    monday = call("analyze", tmp_path, "--run", "monday")
    tuesday = call("analyze", tmp_path, DIVTRACE_RUN="tuesday")

    assert (mixed.returncode, mixed.stdout) == (2, "")
    assert "monday" in mixed.stderr
    assert "tuesday" in mixed.stderr
    assert (monday.returncode, tuesday.returncode) == (0, 1)


def test_strict_refuses_a_bad_line_by_file_and_line(call: Call, tmp_path: Path) -> None:
    folder = traces.clean(tmp_path)
    with (folder / "rank1.jsonl").open("a", encoding="utf-8") as file:
        file.write("not JSON\n")

    lenient = call("analyze", folder)
    strict = call("analyze", folder, "--strict")
    from_environment = call("analyze", folder, DIVTRACE_STRICT="1")

    assert lenient.returncode == 0
    assert (strict.returncode, strict.stdout) == (2, "")
    assert "rank1.jsonl:12" in strict.stderr
    assert from_environment.stderr == strict.stderr


def test_damage_is_a_warning_where_the_text_report_does_not_tell_it(call: Call, tmp_path: Path) -> None:
    folder = traces.clean(tmp_path / "traces")
    with (folder / "rank1.jsonl").open("a", encoding="utf-8") as file:
        file.write("not JSON\nnor this\n")

    as_text = call("analyze", folder)
    as_json = call("analyze", folder, "--format", "json")
    quiet = call("analyze", folder, "--format", "json", "--quiet")

    assert "rank1.jsonl:12" in as_text.stdout
    assert (as_text.stderr, quiet.stderr) == ("", "")
    assert as_json.stderr.startswith("divtrace: warning: rank1.jsonl:12: ")
    assert as_json.stderr.endswith("; 2 bad lines in all\n")


def test_verbose_tells_what_was_written_and_shows_the_report_in_full(call: Call, tmp_path: Path) -> None:
    brief = call("analyze", NEAR_TIE)
    full = call("analyze", NEAR_TIE, "-v", "--report", "json=a.json", cwd=tmp_path)

    assert full.stderr == "divtrace: wrote a.json\n"
    assert len(full.stdout.splitlines()) > len(brief.stdout.splitlines())


def test_standard_output_is_as_wide_as_the_terminal_and_files_are_not(call: Call, tmp_path: Path) -> None:
    wide = call("analyze", NEAR_TIE, COLUMNS="120")
    call("analyze", NEAR_TIE, "-o", tmp_path / "report.txt", COLUMNS="120")

    assert 80 < max(len(line) for line in wide.stdout.splitlines()) <= 120
    assert (tmp_path / "report.txt").read_text(encoding="utf-8") == call("analyze", NEAR_TIE).stdout


def test_strict_refuses_an_unknown_field(call: Call, tmp_path: Path) -> None:
    folder = traces.clean(tmp_path)
    file = folder / "rank0.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace('"bonus"', '"bonuss"', 1), encoding="utf-8")

    assert call("analyze", folder).returncode == 0
    strict = call("analyze", folder, "--strict")
    assert strict.returncode == 2
    assert "bonuss" in strict.stderr


def test_sizes_on_the_command_line_win(call: Call, tmp_path: Path) -> None:
    """As two replicas of one rank each, the ranks serve different requests and are not compared."""
    folder = traces.diverged(tmp_path)

    assert call("analyze", folder).returncode == 1
    assert call("analyze", folder, "--tp", "2", "--dp", "2", "--dp-attention").returncode == 3
    assert call("analyze", folder, "--tp", "3", "--dp", "2", "--dp-attention").returncode == 2


def test_reports_in_several_formats_from_one_run(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path / "traces")

    run = call("analyze", folder, "--report", "json=a.json", "--report", "markdown=b.md", cwd=tmp_path)

    assert run.returncode == 1
    assert run.stdout == call("analyze", folder).stdout
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["first"]["rule"] == "target-tokens"
    assert "target-tokens" in (tmp_path / "b.md").read_text(encoding="utf-8")


def test_a_report_to_standard_output_replaces_the_text(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path / "traces")

    run = call("analyze", folder, "--report", "json=-")

    assert run.stdout == call("analyze", folder, "--format", "json").stdout
    assert json.loads(run.stdout)["schema"] == "divtrace.report/1"


def test_output_and_a_report_to_standard_output_go_together(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path / "traces")

    run = call("analyze", folder, "-o", "report.txt", "--report", "json=-", cwd=tmp_path)

    assert json.loads(run.stdout)["verdict"] == "divergence"
    assert (tmp_path / "report.txt").read_text(encoding="utf-8") == call("analyze", folder).stdout


def test_the_environment_gives_format_output_and_reports(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path / "traces")

    run = call(
        "analyze",
        folder,
        cwd=tmp_path,
        DIVTRACE_FORMAT="markdown",
        DIVTRACE_OUTPUT="main.md",
        DIVTRACE_REPORT="json=a.json junit=b.xml",
    )

    assert (run.returncode, run.stdout, run.stderr) == (1, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.xml", "main.md", "traces"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--format", "pdf"), "there is no format 'pdf'"),
        (("--report", "json"), "'json' is not FORMAT=FILE"),
        (("--report", "pdf=x"), "there is no format 'pdf'"),
        (("--report", "json=x", "--report", "junit=x"), "two reports for x"),
        (("--report", "json=-", "--report", "junit=-"), "two reports for standard output"),
        (("-o", "missing/x"), "there is no folder"),
    ],
)
def test_impossible_reports_are_refused_before_anything_is_read(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    run = call("analyze", "nowhere", *arguments, cwd=tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    assert named in run.stderr.splitlines()[0]
    assert list(tmp_path.iterdir()) == []


def test_a_failed_analysis_leaves_the_report_of_the_last_one(call: Call, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("the last one", encoding="utf-8")

    assert call("analyze", "nowhere", "-f", "json", "-o", "report.json", cwd=tmp_path).returncode == 2

    assert (tmp_path / "report.json").read_text(encoding="utf-8") == "the last one"


@pytest.mark.parametrize(
    ("arguments", "variables", "colored"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        ((), {"DIVTRACE_COLOR": "always"}, True),
    ],
)
def test_colour(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], colored: bool
) -> None:
    run = call("analyze", traces.diverged(tmp_path), *arguments, cwd=None, **variables)

    assert (ESCAPE in run.stdout) is colored


HOSTILE = "\x1b]0;owned\x07[red]x[/red]\n::error::pwned\u202e</script>"


@pytest.mark.parametrize("form", ["text", "markdown", "github", "junit", "json"])
def test_a_hostile_request_id_is_never_printed_raw(call: Call, tmp_path: Path, form: str) -> None:
    run = call("analyze", traces.diverged(tmp_path, req=HOSTILE), "--format", form)

    assert (run.returncode, run.stderr) == (1, "")
    assert not {"\x1b", "\x07", "\u202e"} & set(run.stdout) or form == "json"
    assert not [line for line in run.stdout.splitlines() if line.lstrip().startswith("::error::pwned")]
    if form == "json":
        assert json.loads(run.stdout)["first"]["req"] == HOSTILE


def test_the_order_of_the_paths_does_not_matter(call: Call, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path)
    files = [folder / "rank0.jsonl", folder / "rank1.jsonl"]

    forwards = call("analyze", *files, "--format", "json")
    backwards = call("analyze", *reversed(files), "--format", "json")

    assert forwards.stdout == backwards.stdout


def test_standard_output_in_another_encoding_loses_nothing(tmp_path: Path) -> None:
    def written(form: str) -> bytes:
        run = subprocess.run(
            [sys.executable, "-m", "divtrace", "analyze", folder, "--format", form],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment(PYTHONIOENCODING="ascii"),
            check=False,
        )
        assert (run.returncode, run.stderr) == (1, b"")
        return run.stdout

    folder = traces.diverged(tmp_path, req="requête 请求")

    assert b"requ\\xeate \\u8bf7\\u6c42" in written("text")
    assert json.loads(written("json"))["first"]["req"] == "requête 请求"
