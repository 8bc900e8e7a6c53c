"""Records that are not in the order of `seq`: sorted through temporary files, with the report of the loaded traces."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

import divtrace.api
from divtrace.api import Options, analyze
from divtrace.convert import merge
from divtrace.convert.run import convert
from divtrace.errors import DivtraceError
from divtrace.report.model import encode

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = [
    "clean-dp-attention",
    "clean-lost-events",
    "verify-near-tie",
    "rank-failed",
    "commit-stop-on-one-rank",
    "verify-kv-slot-twice",
]


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "PORTION", 4000)


def traces(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.jsonl"))


def shuffled(name: str, folder: Path, seed: int) -> Path:
    """A fixture whose lines stand in any order, some of them twice, one rank in two files."""
    rng = Random(seed)
    shutil.copytree(FIXTURES / name, folder)
    for path in traces(folder):
        lines = path.read_bytes().splitlines(keepends=True)
        lines += rng.sample(lines, 3)
        rng.shuffle(lines)
        path.write_bytes(b"".join(lines))
    first = traces(folder)[0]
    lines = first.read_bytes().splitlines(keepends=True)
    first.write_bytes(b"".join(lines[::2]))
    first.with_stem(f"{first.stem}-more").write_bytes(b"".join(lines[1::2]))
    return folder


def loaded(folder: Path) -> bytes:
    return encode(analyze(folder, Options(sieve_from=1 << 60)))


def never(*_arguments: Any, **_named: Any) -> Any:
    pytest.fail("the traces were loaded as a whole")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_sorted_traces_give_the_report_of_loaded_ones(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shuffled(name, tmp_path / "run", seed)
    expected = loaded(folder)
    monkeypatch.setattr(divtrace.api, "read", never)

    assert encode(analyze(folder, Options(sieve_from=0, jobs=1))) == expected


def test_another_record_under_the_same_seq_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shuffled("clean-dp-attention", tmp_path / "run", 0)
    first = traces(folder)[0]
    line = next(one for one in first.read_bytes().splitlines() if b'"draft_root":' in one)
    first.write_bytes(first.read_bytes() + line.replace(b'"draft_root":', b'"draft_root":1') + b"\n")
    expected = loaded(folder)
    monkeypatch.setattr(divtrace.api, "read", never)

    report = analyze(folder, Options(sieve_from=0, jobs=1))
    assert encode(report) == expected
    assert any("another event has the same seq" in one.what for one in report.coverage.damage)


def test_conversion_sorts_too(tmp_path: Path) -> None:
    folder = shuffled("verify-kv-slot-twice", tmp_path / "run", 1)
    convert([folder], tmp_path / "out")

    assert encode(analyze(tmp_path / "out")) == loaded(folder)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    analyze(shuffled("verify-near-tie", tmp_path / "run", 2), Options(sieve_from=0, jobs=1))

    assert list((tmp_path / "temporary").iterdir()) == []


def test_no_room_for_the_copies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shuffled("verify-near-tie", tmp_path / "run", 2)

    def full(*_arguments: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merge, "_write", full)
    with pytest.raises(DivtraceError, match="could not be sorted: No space left on device") as raised:
        analyze(folder, Options(sieve_from=0, jobs=1))
    assert "TMPDIR" in str(raised.value.hint)


def test_damage_is_told_once_where_a_column_has_to_be_written_anew(tmp_path: Path) -> None:
    """Numbers of 64 bits without a sign are met late, and the rank is written a second time."""
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(2):
        lines = [
            b'{"seq":%d,"step":%d,"stage":"draft","req":"a","round":%d,"draft_root":%d}' % (i, i, i, i)
            for i in range(9)
        ]
        lines[8] = lines[8].replace(b'"draft_root":8', b'"draft_root":%d' % (2**64 - 1))
        lines.insert(3, b"{")
        (folder / f"rank{rank}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    convert([folder], tmp_path / "out")

    assert encode(analyze(tmp_path / "out")) == loaded(folder)
