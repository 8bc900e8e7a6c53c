"""The index of a converted trace spares files that do not hold a request, and is passed over where it is not right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from trace_files import Line, event, write

from divtrace.api import Options, analyze, first_divergence
from divtrace.convert.run import convert
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.single import without_finding
from divtrace.trace.discover import INDEX_NAME, Source, discover
from divtrace.trace.index import look_up
from divtrace.walk.settings import GroupFlags

PARALLEL = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True, "attn_cp_size": 1, "pp_size": 1, "ep_size": 1}


def meta(rank: int) -> Line:
    return {"kind": "meta", "format": "divtrace.trace/1", "rank": rank, "parallel": PARALLEL}


def records(rank: int, *requests: str, value: int = 1) -> list[Line]:
    """A round of each request, and a batch in front of them that holds them and one more."""
    here = {"rank": rank, "step": 1}
    batch = event(0, **here, req=None, stage="schedule", correct_len=None, batch=[*requests, "waiting"])
    rounds = [event(at, **here, req=req, round=1, correct_len=value) for at, req in enumerate(requests, 1)]
    return [meta(rank), batch, *rounds]


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    """Ranks 0 and 1 serve A and B, ranks 2 and 3 serve C."""
    lines = [records(0, "A", "B"), records(1, "A", "B"), records(2, "C"), records(3, "C")]
    return of_ranks(tmp_path, "", *lines)


def of_ranks(folder: Path, name: str, *ranks: list[Line], first: int = 0) -> Path:
    into = folder / f"in{name}"
    into.mkdir()
    for rank, lines in enumerate(ranks, first):
        write(into, f"rank{rank}.jsonl", *lines)
    convert([into], folder / f"out{name}")
    return folder / f"out{name}"


def known(folder: Path, req: str) -> dict[str, bool] | None:
    """Of every file whether the index says that it holds the request; None if it says nothing."""
    found = look_up(discover([folder]).sources, req)
    return None if found is None else {one.file.name: one.holds for one in found}


def answer(folder: Path, req: str) -> object:
    return without_finding(discover([folder]), req, None, GroupFlags(), attempt=None, replica=None)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the Parquet files that are opened as traces."""
    names: list[str] = []
    opening = ParquetTrace.__init__

    def watched(self: ParquetTrace, source: Source, footer: object = None) -> None:
        names.append(source.name)
        opening(self, source, footer)

    monkeypatch.setattr(ParquetTrace, "__init__", watched)
    return names


def test_the_index_says_which_files_hold_a_request(converted: Path) -> None:
    first, second = ["rank0.parquet", "rank1.parquet"], ["rank2.parquet", "rank3.parquet"]
    for req, holding in {"A": first, "B": first, "C": second, "waiting": first + second, "D": [], "": []}.items():
        found = known(converted, req)
        assert found is not None
        assert [name for name, holds in found.items() if holds] == holding


def test_only_files_that_hold_the_request_are_opened(converted: Path, opened: list[str]) -> None:
    found = answer(converted, "C")
    assert set(opened) == {"rank2.parquet", "rank3.parquet"}
    assert found == first_divergence([converted], "C", Options(sieve_from=1 << 60))


@pytest.mark.parametrize("req", ["A", "C", "waiting"])
def test_the_answer_is_that_without_an_index(req: str, converted: Path, opened: list[str]) -> None:
    found = answer(converted, req)
    (converted / INDEX_NAME).unlink()
    assert answer(converted, req) == found
    assert set(opened) == {f"rank{rank}.parquet" for rank in range(4)}
    assert found is not None


def test_an_unknown_request_is_in_no_file(converted: Path, opened: list[str]) -> None:
    assert answer(converted, "D") is None
    assert opened == []


def replaced(folder: Path) -> None:
    """One file is of another run, in which the request is served elsewhere too."""
    other = of_ranks(folder.parent, "-other", records(2, "A", "C"), first=2)
    shutil.copy(other / "rank2.parquet", folder / "rank2.parquet")


def added(folder: Path) -> None:
    other = of_ranks(folder.parent, "-other", records(4, "A"), first=4)
    shutil.copy(other / "rank4.parquet", folder / "rank4.parquet")


def changed_in_the_middle(folder: Path) -> None:
    other = of_ranks(folder.parent, "-other", records(2, "C", value=2), first=2)
    path = folder / "rank2.parquet"
    length = path.stat().st_size
    shutil.copy(other / "rank2.parquet", path)
    assert path.stat().st_size == length, "the size alone would tell"


def cut(folder: Path) -> None:
    path = folder / INDEX_NAME
    path.write_bytes(path.read_bytes()[:-40])


def garbled(folder: Path) -> None:
    (folder / INDEX_NAME).write_bytes(b"PAR1" + bytes(60) + b"PAR1")


def without_a_key(folder: Path) -> None:
    shutil.copy(folder / "rank0.parquet", folder / INDEX_NAME)


def of_other_columns(folder: Path) -> None:
    parquet.write_table(pa.table({"other": [1, 2]}), folder / INDEX_NAME)


DAMAGES = [replaced, added, changed_in_the_middle, cut, garbled, without_a_key, of_other_columns]


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_index_that_is_not_right_is_passed_over(
    damage: Callable[[Path], None], converted: Path, opened: list[str]
) -> None:
    damage(converted)
    opened.clear()
    assert known(converted, "A") is None
    found = answer(converted, "A")
    assert "rank2.parquet" in opened
    (converted / INDEX_NAME).unlink()
    assert answer(converted, "A") == found


def test_files_beside_others_need_their_own_index(converted: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    (converted / "rank3.parquet").rename(moved / "rank3.parquet")
    both = discover([converted, moved])
    assert look_up(both.sources, "A") is None
    shutil.copy(converted / INDEX_NAME, moved / INDEX_NAME)
    found = look_up(both.sources, "C")
    assert found is not None
    assert {one.file.name for one in found if one.holds} == {"rank2.parquet", "rank3.parquet"}


def test_a_later_conversion_leaves_its_own_index(converted: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", "rank7.jsonl", *records(7, "A"))
    convert([tmp_path / "more"], converted)
    assert known(converted, "A") is None
    assert look_up(discover([converted / "rank7.parquet"]).sources, "A") is not None


def test_without_room_for_the_index_nothing_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "in").mkdir()
    write(tmp_path / "in", "rank0.jsonl", *records(0, "A"))
    with monkeypatch.context() as patched:
        patched.setattr(parquet, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            convert([tmp_path / "in"], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    convert([tmp_path / "in"], tmp_path / "out")
    assert known(tmp_path / "out", "A") == {"rank0.parquet": True}


def test_the_index_is_no_file_of_the_input(converted: Path) -> None:
    found = discover([converted])
    assert len(found.sources) == 4
    assert found.ignored_files == 0
    assert found.others == {}
    assert analyze([converted]).coverage.ignored_files == 0


def test_the_same_input_gives_the_same_index(converted: Path, tmp_path: Path) -> None:
    convert([tmp_path / "in"], tmp_path / "again")
    assert (tmp_path / "again" / INDEX_NAME).read_bytes() == (converted / INDEX_NAME).read_bytes()
