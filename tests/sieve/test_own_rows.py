"""The rows of one request in Parquet: what is read of the files, and what ranks share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_files import Line, event, write

from divtrace.convert.run import convert
from divtrace.sieve.columnar import single
from divtrace.sieve.columnar.chunk import Chunk
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.columnar.own_rows import own_rows
from divtrace.sieve.columnar.single import _Wanted
from divtrace.sieve.single import without_finding
from divtrace.trace.discover import discover
from divtrace.walk.settings import GroupFlags

REQUESTS = ("A", "B", "C")


def records(rank: int, *, requests: tuple[str, ...] = REQUESTS, first: int = 0, **of_batch: object) -> list[Line]:
    """Rounds of some requests, each with the batch in front of it, which may record more."""
    lines = []
    seq = first
    for step in range(1, 4):
        here = {"rank": rank, "step": step}
        lines.append(event(seq, **here, req=None, stage="schedule", correct_len=None, batch=[*requests], **of_batch))
        seq += 1
        for at, req in enumerate(requests):
            slots = [100 * rank + 10 * at + step]
            lines.append(event(seq, **here, req=req, round=step, correct_len=step, kv_slots=slots))
            seq += 1
    return lines


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    """Opens what lines of ranks become when they are converted."""
    traces: list[ParquetTrace] = []

    def open_all(*ranks: list[Line]) -> list[ParquetTrace]:
        (tmp_path / "in").mkdir()
        for rank, lines in enumerate(ranks):
            write(tmp_path / "in", f"rank{rank}.jsonl", *lines)
        convert([tmp_path / "in"], tmp_path / "out")
        traces.extend(ParquetTrace(source) for source in discover([tmp_path / "out"]).sources)
        return traces

    yield open_all
    for trace in traces:
        trace.close()


def chunks(traces: list[ParquetTrace], req: str) -> list[Chunk | None]:
    """The rows of a request in every file."""
    return [None if own is None else own.chunk for own in own_rows(traces, req)]


def values(chunk: Any, name: str) -> list[Any]:
    found: list[Any] = chunk.column(name).to_pylist()
    return found


def test_rows_are_those_of_the_request_and_its_batches_in_the_order_of_seq(opened: Any) -> None:
    for chunk in chunks(opened(records(0, num_tokens=3), records(1, num_tokens=4)), "B"):
        assert values(chunk, "seq") == [0, 2, 4, 6, 8, 10]
        assert values(chunk, "req") == [None, "B"] * 3


@pytest.mark.parametrize(
    ("own", "others", "are_read"),
    [
        ({}, {}, False),
        ({"ts": 1, "pool_free": 4}, {"ts": 2, "pool_free": 9}, False),
        ({"num_tokens": 3}, {"num_tokens": 4}, True),
        ({"num_tokens": 3}, {}, True),
        ({}, {"num_tokens": 3}, True),
    ],
    ids=["alike", "own times", "other values", "on one rank", "on the other"],
)
def test_batches_that_all_ranks_stored_alike_are_passed_over(
    own: dict[str, Any], others: dict[str, Any], are_read: bool, opened: Any
) -> None:
    for chunk in chunks(opened(records(0, **own), records(1, **others)), "B"):
        assert values(chunk, "req") == ([None, "B"] * 3 if are_read else ["B"] * 3)


def test_a_request_that_only_batches_name_is_found_in_them(opened: Any) -> None:
    for chunk in chunks(opened(*([line for line in records(rank) if line.get("req") != "B"] for rank in (0, 1))), "B"):
        assert values(chunk, "batch") == [[*REQUESTS]] * 3


def test_columns_that_ranks_stored_alike_are_read_once(opened: Any) -> None:
    one, two = chunks(opened(records(0, num_tokens=3), records(1, num_tokens=4)), "B")
    assert one is not None
    assert two is not None
    for name in ("seq", "req", "batch", "stage", "correct_len"):
        assert two.column(name) is one.column(name)
    assert [values(chunk, "kv_slots")[1] for chunk in (one, two)] == [[11], [111]]


def test_ranks_that_count_their_events_otherwise_share_their_order(opened: Any) -> None:
    one, two = chunks(opened(records(0), records(1, first=7)), "B")
    assert one is not None
    assert two is not None
    assert values(two, "seq") == [seq + 7 for seq in values(one, "seq")]
    assert two.column("correct_len") is one.column("correct_len")


def test_another_order_of_rows_is_read_by_itself(opened: Any) -> None:
    """The values of both ranks are stored in the same bytes, but for the numbers of two records."""
    mine = records(0)
    late = [event(5, rank=1, step=2, req="B", round=2, correct_len=1), event(4, rank=1, req=None, batch=["B"])]
    early = [event(5, rank=0, step=2, req="B", round=2, correct_len=1), event(6, rank=0, req=None, batch=["B"])]
    one, two = chunks(opened([*mine[:4], *early], [*records(1)[:4], late[1], late[0]]), "B")
    assert one is not None
    assert two is not None
    assert values(one, "req")[-2:] == ["B", None]
    assert values(two, "req")[-2:] == [None, "B"]
    assert values(two, "batch")[-2:] == [["B"], None]


def test_of_a_file_without_the_request_nothing_is_read(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = opened(records(0), records(1, requests=("X", "Y")))
    read: list[str] = []
    reading = ParquetTrace.read

    def watched(self: ParquetTrace, *arguments: Any) -> Any:
        read.append(self.source.name)
        return reading(self, *arguments)

    monkeypatch.setattr(ParquetTrace, "read", watched)
    one, two = chunks(traces, "B")
    assert one is not None
    assert two is None
    assert set(read) == {"rank0.parquet"}


def test_row_groups_that_record_none_of_the_columns_that_differ_are_counted_too(tmp_path: Path) -> None:
    """Only `site` differs between the ranks, and the first row group records none."""
    traces = []
    for rank in (0, 1):
        lines = [event(0, req="A"), event(1, req="A", site=f"site{rank}"), event(2, req="A", site="both")]
        schema = pa.Table.from_pylist(lines[1:]).schema
        pq.write_table(pa.Table.from_pylist(lines, schema), tmp_path / f"rank{rank}.parquet", row_group_size=1)
        traces.append(ParquetTrace(discover([tmp_path / f"rank{rank}.parquet"]).sources[0]))
    with closing(traces[0]), closing(traces[1]):
        one, two = chunks(traces, "A")
        assert one is not None
        assert two is not None
        assert two.column("seq") is one.column("seq")
        assert [values(chunk, "site") for chunk in (one, two)] == [[None, "site0", "both"], [None, "site1", "both"]]


def test_a_conversion_tells_which_row_groups_record_a_column(opened: Any) -> None:
    more = event(99, rank=0, step=9, req="C", round=9, note="only here")
    for trace in opened([*records(0, num_tokens=3), more], records(1)):
        every = range(len(trace.group_rows))
        for name in trace.fields:
            for group in every:
                column = trace.read([group], [name])[name]
                assert trace.has_values([group], name) == (column.null_count < len(column)), name
        assert trace.has_values(every, "num_tokens") == (trace.source.rank == 0)


def test_slots_of_other_requests_are_not_read_where_a_conversion_told_of_them(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = opened(records(0), [*records(1), event(99, rank=1, step=9, req="C", kv_slots=[112])])
    assert [own is not None and own.are_contested() for own in own_rows(traces, "B")] == [False, False]
    assert [own is not None and own.are_contested() for own in own_rows(traces, "C")] == [False, True]
    monkeypatch.setattr(single, "_claims", None)
    folder = Path(traces[0].source.path).parent
    answers = [without_finding(discover([folder]), req, None, GroupFlags(), attempt=None, replica=None) for req in "AC"]
    assert answers[0] is not None
    assert answers[1] is None


@pytest.mark.parametrize("slots", [[], [3, 5], [0], [4, 1 << 40], [5, 1 << 30]])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_slots_are_found_as_in_a_set(slots: list[int], kind: pa.DataType) -> None:
    given = [None, 0, 1, 3, 5, 6, 7, 1 << 30, 1 << 40, (1 << 63) - 1]
    found = _Wanted(pa.array(slots, pa.int64())).hits(pa.array(given, kind))
    assert found.to_pylist() == [at for at, value in enumerate(given) if value in slots]


@pytest.mark.parametrize("slots", [[3, 5], [-1, 5]])
def test_so_are_negative_ones(slots: list[int]) -> None:
    given = [-1, -2, 3, 5, 6]
    found = _Wanted(pa.array(slots, pa.int64())).hits(pa.array(given, pa.int64()))
    assert found.to_pylist() == [at for at, value in enumerate(given) if value in slots]


@pytest.mark.parametrize("name", ["rank", "world"])
def test_rows_that_say_they_are_another_ranks_are_left_to_the_whole(name: str, tmp_path: Path) -> None:
    for rank in (0, 1):
        lines = [event(0, rank=rank, world=0, req="A"), event(1, rank=rank, world=0, req="B", round=1)]
        lines[1][name] += 2
        pq.write_table(pa.Table.from_pylist(lines), tmp_path / f"rank{rank}.parquet")
    found = discover([tmp_path])
    answers = [without_finding(found, req, None, GroupFlags(), attempt=None, replica=None) for req in ("A", "B")]
    assert answers[0] is not None
    assert answers[1] is None
