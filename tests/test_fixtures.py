"""The cases of `fixtures/`: golden reports, and traces that are what the generator writes.

With DIVTRACE_UPDATE_GOLDEN=1 the golden reports are written instead; read them before committing.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import make_fixtures
import msgspec
import pytest
import zstandard

from divtrace import analyze
from divtrace.output import OUTPUTS
from divtrace.report.model import VERDICTS, Report, Tool, encode

FIXTURES = make_fixtures.FIXTURES
CASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
GOLDENS = ("report.json", "report.txt")


def renderings(report: Report) -> dict[str, bytes]:
    """The report in both golden formats, without the version of divtrace."""
    same_for_all_versions = msgspec.structs.replace(report, tool=Tool(version="VERSION"))
    text = OUTPUTS["text"].render(same_for_all_versions)
    return {"report.json": encode(same_for_all_versions), "report.txt": text.encode()}


@pytest.mark.parametrize("name", CASES)
def test_report_is_the_golden_one(name: str) -> None:
    expected = FIXTURES / name / "expected"
    update = bool(os.environ.get("DIVTRACE_UPDATE_GOLDEN"))
    if update:
        # The goldens count as ignored files, so they have to be there before the case is read.
        expected.mkdir(exist_ok=True)
        for golden in GOLDENS:
            (expected / golden).touch()
    for golden, content in renderings(analyze([FIXTURES / name])).items():
        if update:
            (expected / golden).write_bytes(content)
        assert content.decode() == (expected / golden).read_bytes().decode(), f"{expected / golden} differs"


@pytest.mark.parametrize("name", CASES)
def test_text_report_fits_eighty_columns_and_holds_no_control_characters(name: str) -> None:
    text = (FIXTURES / name / "expected" / "report.txt").read_text(encoding="utf-8")

    assert max(map(len, text.splitlines())) <= 80
    assert text.isprintable() or all(char.isprintable() or char == "\n" for char in text)


def test_cases_cover_stages_classes_and_verdicts() -> None:
    reports = [json.loads((FIXTURES / name / "expected" / "report.json").read_bytes()) for name in CASES]
    first = [report["first"] for report in reports if report["first"]]

    assert len(CASES) >= 12
    assert {report["verdict"] for report in reports} == set(VERDICTS)
    assert {each["class"] for each in first} == {"control", "logical-layout", "shape"}
    assert {each["stage"] for each in first} == {
        "init",
        "schedule",
        "prefill",
        "draft",
        "verify",
        "accept",
        "commit",
        "collective",
    }


def test_readme_has_a_line_for_each_case() -> None:
    lines = (FIXTURES / "README.md").read_text(encoding="utf-8").splitlines()
    named = [line.split("`")[1] for line in lines if line.startswith("| `")]

    assert sorted(named) == CASES


def content(path: Path) -> object:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().decompress(data)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        return table.schema.metadata, table.to_pylist()
    return data


def test_traces_are_what_the_generator_writes(tmp_path: Path) -> None:
    make_fixtures.main([], tmp_path)

    for name in make_fixtures.CASES:
        committed = {p.name: content(p) for p in (FIXTURES / name).iterdir() if p.is_file()}
        assert {p.name: content(p) for p in (tmp_path / name).iterdir()} == committed, name
