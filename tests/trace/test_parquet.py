"""Parquet gives what JSON Lines gives: the same events, metas, and damage by row."""

from __future__ import annotations

import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from trace_files import Line, event, meta, only, places, seqs, write

from divtrace.trace.load import load
from divtrace.trace.model import Damage, Traces, canonical

LINES: list[Line] = [
    event(0, rank=0, req="ü\n", draft_tokens=[1, 2**63 - 1], gate=True, margin=0.5, batch=["A", ""], decided_on=3),
    event(1, rank=0, correct_len=0, draft_tokens=[], extra={"control.x": [1, 2], "info.t": "text", "info.f": 0.5}),
    event(2, rank=0, phase="local", kind="event", finished=""),
]
METAS = [meta(rank=0, run="r", parallel={"tp_size": 1}, dropped=2)]


def save(folder: Path, name: str, columns: dict[str, Any], metas: Any = None, **options: Any) -> Path:
    """Write one Parquet file; the values of `columns` are lists or Arrow arrays."""
    table = pa.table(columns)
    if metas is not None:
        table = table.replace_schema_metadata({"divtrace.meta": metas if isinstance(metas, str) else json.dumps(metas)})
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, **options)
    return path


def columns_of(lines: list[Line]) -> dict[str, Any]:
    columns: dict[str, Any] = {name: [line.get(name) for line in lines] for line in lines for name in line}
    if "extra" in columns:
        maps = [
            None if value is None else [(key, json.dumps(item)) for key, item in value.items()]
            for value in columns["extra"]
        ]
        columns["extra"] = pa.array(maps, pa.map_(pa.string(), pa.string()))
    return columns


def described(traces: Traces) -> dict[Any, Any]:
    return {
        rank: (
            [canonical(record.event) for record in trace.records],
            [canonical(one) for one in trace.metas],
            trace.gaps,
        )
        for rank, trace in traces.ranks.items()
    }


def column(folder: Path, name: str, values: Any, rows: int) -> Traces:
    """Load a file of `rows` events that has one more column."""
    save(folder, "rank0.parquet", {"seq": list(range(rows)), "stage": ["accept"] * rows, name: values})
    return load([folder])


def recorded(traces: Traces, name: str) -> list[Any]:
    return [getattr(record.event, name) for record in only(traces).records]


def test_all_forms_give_the_same(tmp_path: Path) -> None:
    for suffix in ("", ".gz", ".zst"):
        write(tmp_path / suffix, f"a.jsonl{suffix}", *METAS, *LINES)
    save(tmp_path / "parquet", "a.parquet", columns_of(LINES), METAS)
    (tmp_path / "parquet.gz").mkdir()
    (tmp_path / "parquet.gz" / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "parquet/a.parquet").read_bytes()))

    expected = described(load([tmp_path / "a.jsonl"]))
    for folder in (".gz", ".zst", "parquet", "parquet.gz"):
        traces = load([tmp_path / folder])
        assert described(traces) == expected
        assert (traces.damage, traces.unknown_fields) == ([], {})


def test_rows_are_counted_from_one_across_batches(tmp_path: Path) -> None:
    rows = 40_000
    values = list(range(rows))
    stages = ["accept"] * rows
    stages[20_000] = "nonsense"
    save(tmp_path, "rank0.parquet", {"seq": values, "stage": stages}, row_group_size=7_000)

    traces = load([tmp_path])

    trace = only(traces)
    assert places(trace)[:2] == [("rank0.parquet", 1), ("rank0.parquet", 2)]
    assert places(trace)[-1] == ("rank0.parquet", rows)
    assert all(record.is_row for record in trace.records)
    assert traces.damage == [Damage("rank0.parquet", 20_001, "unknown `stage`: 'nonsense'")]
    assert trace.gaps == [20_000]


def test_a_file_of_several_worlds_and_ranks(tmp_path: Path) -> None:
    save(
        tmp_path,
        "night.parquet",
        {"seq": [0, 0, 0, 1], "stage": ["host"] * 4, "rank": [0, 0, 1, 0], "world": [0, 1, None, 0]},
        [meta(run="r", parallel={"tp_size": 2}), meta(rank=0, world=1, host="h")],
    )

    traces = load([tmp_path])

    assert {rank: seqs(trace) for rank, trace in traces.ranks.items()} == {(0, 0): [0, 1], (0, 1): [0], (1, 0): [0]}
    assert {rank: trace.meta.host for rank, trace in traces.ranks.items()} == {(0, 0): None, (0, 1): None, (1, 0): "h"}
    assert all(trace.meta.parallel == {"tp_size": 2} for trace in traces.ranks.values())
    assert len(traces.shared_metas) == 1


def test_the_meta_supplies_rank_and_world(tmp_path: Path) -> None:
    save(tmp_path, "a.parquet", {"seq": [0], "stage": ["host"]}, meta(rank=3, world=2))
    save(tmp_path, "b.parquet", {"seq": [0], "stage": ["host"], "rank": [5]}, [meta(rank=5, world=1), meta(rank=6)])
    save(tmp_path, "c.parquet", {"seq": [0], "stage": ["host"]}, [meta(rank=5), meta(rank=6)])

    traces = load([tmp_path])

    assert list(traces.ranks) == [(1, 5), (2, 3)]
    assert [(one.file, one.line) for one in traces.damage] == [("c.parquet", 1)]


def test_the_meta_of_the_file_counts_not_that_of_its_arrow_schema(tmp_path: Path) -> None:
    table = pa.table({"seq": [0], "stage": ["host"]})
    with parquet.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"divtrace.meta": json.dumps(meta(rank=3))})

    assert list(load([tmp_path]).ranks) == [(0, 3)]


def test_polars_writes_what_can_be_read(tmp_path: Path) -> None:
    import polars

    frame = polars.DataFrame({"seq": [0, 1], "stage": ["host", "draft"], "draft_tokens": [None, [1, 2]]})
    frame.write_parquet(tmp_path / "a.parquet", metadata={"divtrace.meta": json.dumps(meta(rank=3))})

    traces = load([tmp_path])

    assert {rank: seqs(trace) for rank, trace in traces.ranks.items()} == {(0, 3): [0, 1]}
    assert recorded(traces, "draft_tokens") == [None, [1, 2]]


def test_a_cut_compressed_parquet_file_is_lost_and_named(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    whole = gzip.compress(save(tmp_path / "elsewhere", "a.bin", columns_of(LINES)).read_bytes())
    (tmp_path / "rank1.parquet.gz").write_bytes(whole[:-100])

    traces = load([tmp_path])

    assert traces.damage == [Damage("rank1.parquet.gz", None, "the compressed stream ends early")]


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = save(tmp_path, "a.parquet", {"seq": [0], "stage": ["host"]})
    path.rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff-rank2.parquet"))

    assert list(load([tmp_path]).ranks) == [(0, 2)]


@pytest.mark.parametrize("text", ["{", '{"kind":"event"}', "[1]", '{"kind":"meta","rank":18446744073709551616}'])
def test_a_damaged_meta_is_a_bad_line_without_a_row(tmp_path: Path, text: str) -> None:
    save(tmp_path, "rank0.parquet", {"stage": ["host"]}, text)

    traces = load([tmp_path])

    assert [(one.file, one.line) for one in traces.damage] == [("rank0.parquet", None)]
    assert traces.damage[0].what.startswith("the metadata divtrace.meta: ")
    assert (traces.bad_lines, seqs(only(traces))) == (1, [None])


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_any_width(tmp_path: Path, kind: str) -> None:
    assert recorded(column(tmp_path, "bonus", pa.array([7, None, 1], kind), 3), "bonus") == [7, None, 1]


def test_unsigned_integers_are_exact(tmp_path: Path) -> None:
    most = 2**64 - 1
    assert recorded(column(tmp_path, "bonus", pa.array([most, most - 1], "uint64"), 2), "bonus") == [most, most - 1]
    lists = pa.array([[most], None], pa.list_(pa.uint64()))
    assert recorded(column(tmp_path, "draft_tokens", lists, 2), "draft_tokens") == [[most], None]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("bonus", pa.array([Decimal(2**64 - 1), None], pa.decimal128(38, 2)), [2**64 - 1, None]),
        ("draft_tokens", pa.array([[Decimal(5)], []], pa.list_(pa.decimal128(20, 0))), [[5], []]),
        ("margin", pa.array([Decimal("0.5"), Decimal(1)], pa.decimal128(20, 1)), [0.5, 1.0]),
        ("req", pa.array(["A", "A"]).dictionary_encode(), ["A", "A"]),
        ("req", pa.array(["A", None], pa.large_string()), ["A", None]),
        ("req", pa.array([b"A", None], pa.binary()), ["A", None]),
        ("batch", pa.array([["A", "B"], []], pa.large_list(pa.large_string())), [["A", "B"], []]),
        ("batch", pa.array([[b"A"], []], pa.list_(pa.binary())), [["A"], []]),
        ("batch", pa.array([["A"], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))), [["A"], None]),
        ("shape", pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
        ("margin", pa.array([1, None], pa.int64()), [1.0, None]),
        ("margin", pa.array([0.5, None], pa.float32()), [0.5, None]),
        ("decided_on", pa.array([1, None], pa.int64()), [1, None]),
        ("decided_on", pa.array([1.5, None], pa.float64()), [1.5, None]),
        ("gate", pa.array([True, None]), [True, None]),
        ("extra", pa.array(['{"control.x":[1]}', None]), [{"control.x": [1]}, None]),
        ("extra", pa.array([{"control.x": 1, "info.y": None}, None]), [{"control.x": 1}, None]),
        (
            "extra",
            pa.array([[("control.x", "null"), ("info.y", "1")], []], pa.map_("string", "string")),
            [{"info.y": 1}, {}],
        ),
        ("extra", pa.array([[("control.x", 7)], None], pa.map_("string", "int64")), [{"control.x": 7}, None]),
        ("note", pa.nulls(2), [None, None]),
    ],
)
def test_column_types_that_fit(tmp_path: Path, name: str, values: Any, expected: list[Any]) -> None:
    traces = column(tmp_path, name, values, 2)

    assert recorded(traces, name) == expected
    assert traces.damage == []


@pytest.mark.parametrize(
    ("name", "values", "what"),
    [
        ("bonus", pa.array([1.0, None]), "wrong type: `bonus` is float, not int"),
        ("bonus", pa.array(["1", None]), "wrong type: `bonus` is str, not int"),
        ("bonus", pa.array([True, None]), "wrong type: `bonus` is bool, not int"),
        ("bonus", pa.array([Decimal("0.5"), None], pa.decimal128(9, 1)), "wrong type: `bonus` is float, not int"),
        ("bonus", pa.array([Decimal(2**64), None], pa.decimal128(38, 0)), "`bonus` has an integer outside"),
        # Without pandas, Python has no time of this resolution.
        ("bonus", pa.array([1, None], pa.timestamp("ns")), ("`bonus` is unreadable", "wrong type: `bonus`")),
        ("bonus", pa.array([1, None], pa.timestamp("us")), "wrong type: `bonus` is datetime, not int"),
        ("bonus", pa.array([[1], None]), "wrong type: `bonus` is array, not int"),
        ("margin", pa.array([float("nan"), None]), "`margin` is NaN, which is no number"),
        ("decided_on", pa.array([float("-inf"), None]), "`decided_on` is Infinity, which is no number"),
        ("req", pa.array([7, None]), "wrong type: `req` is int, not str"),
        ("req", pa.array([b"\xff", None]), "wrong type: `req` is bytes, not str"),
        ("draft_tokens", pa.array([[1, None], None]), "wrong type: `draft_tokens[1]` is null, not int"),
        ("draft_tokens", pa.array([["1"], None]), "wrong type: `draft_tokens[0]` is str, not int"),
        ("draft_tokens", pa.array([1, None]), "wrong type: `draft_tokens` is int, not array"),
        ("phase", pa.array(["later", None]), "unknown `phase`: 'later'"),
        ("phase", pa.array([["used"], None]), "wrong type: `phase` is array, not str"),
        ("kind", pa.array(["meta", None]), "unknown `kind`: 'meta'"),
        ("extra", pa.array(["{", None]), "`extra` is not JSON"),
        ("extra", pa.array(["[1]", None]), "wrong type: `extra` is array, not object"),
        ("extra", pa.array(['{"info.x":{}}', None]), "`extra` has an object under 'info.x'"),
        ("extra", pa.array([[("info.x", "no JSON")], None], pa.map_("string", "string")), "`extra` is not JSON"),
        (
            "extra",
            pa.array([[("info.x", "18446744073709551616")], None], pa.map_("string", "string")),
            "`extra` has an",
        ),
        ("extra", pa.array([["ab"], None]), "wrong type: `extra` is array, not object"),
        ("extra", pa.array([1, None]), "wrong type: `extra` is int, not object"),
    ],
)
def test_values_that_do_not_fit_cost_their_row(
    tmp_path: Path, name: str, values: Any, what: str | tuple[str, str]
) -> None:
    traces = column(tmp_path, name, values, 2)

    assert seqs(only(traces)) == [1]
    assert [(one.file, one.line) for one in traces.damage] == [("rank0.parquet", 1)]
    assert traces.damage[0].what.startswith(what)
    assert traces.bad_lines == 1


def test_text_that_is_no_utf8_costs_its_row(tmp_path: Path) -> None:
    raw = pa.array([b"A", b"\xff", b"C"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, raw.buffers())

    traces = column(tmp_path, "req", text, 3)

    assert recorded(traces, "req") == ["A", "C"]
    assert traces.damage == [Damage("rank0.parquet", 2, "`req` is not valid UTF-8")]


def test_a_row_with_several_faults_is_one_bad_line_named_by_its_first_field(tmp_path: Path) -> None:
    save(tmp_path, "rank0.parquet", {"note": [1, None], "bonus": ["x", None], "stage": [None, "host"]})

    assert load([tmp_path]).damage == [Damage("rank0.parquet", 1, "`stage` is missing")]


def test_the_first_field_is_that_of_the_format_not_of_the_file(tmp_path: Path) -> None:
    save(tmp_path, "rank0.parquet", {"note": [1, None], "bonus": ["x", None], "stage": ["host", "host"]})

    assert load([tmp_path]).damage == [Damage("rank0.parquet", 1, "wrong type: `bonus` is str, not int")]


def test_rows_without_a_stage(tmp_path: Path) -> None:
    save(tmp_path, "rank0.parquet", {"seq": [0, 1], "stage": [None, "host"]})
    save(tmp_path, "rank1.parquet", {"seq": [0, 1]})

    traces = load([tmp_path])

    assert seqs(only(traces)) == [1]
    assert [(one.file, one.line, one.what) for one in traces.damage if one.line] == [
        ("rank0.parquet", 1, "`stage` is missing"),
        ("rank1.parquet", 1, "`stage` is missing"),
        ("rank1.parquet", 2, "`stage` is missing"),
    ]


def test_unknown_columns_are_counted_by_value(tmp_path: Path) -> None:
    assert column(tmp_path, "later", ["x", None, "y"], 3).unknown_fields == {"later": 2}


@pytest.mark.parametrize("keep", [0, 4, 12, 200, -1])
def test_a_cut_file_is_lost_and_named(tmp_path: Path, keep: int) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    path = save(tmp_path, "rank1.parquet", columns_of(LINES))
    path.write_bytes(path.read_bytes()[:keep])

    traces = load([tmp_path])

    assert [(one.file, one.line) for one in traces.damage] == [("rank1.parquet", None)]
    assert (list(traces.ranks), traces.bad_lines) == ([(0, 0)], 0)


def test_a_file_damaged_inside_keeps_what_precedes_the_damage(tmp_path: Path) -> None:
    rows = 60_000
    path = save(
        tmp_path,
        "rank0.parquet",
        {"seq": list(range(rows)), "stage": ["host"] * rows},
        row_group_size=20_000,
        use_dictionary=False,
        compression="zstd",
    )
    data = bytearray(path.read_bytes())
    group = parquet.ParquetFile(path).metadata.row_group(1).column(0)
    data[group.data_page_offset : group.data_page_offset + 64] = bytes(64)
    path.write_bytes(data)

    traces = load([tmp_path])

    assert len(only(traces).records) in range(16_384, 20_001)
    assert [one.file for one in traces.damage] == ["rank0.parquet"]
    assert "damaged from row" in traces.damage[0].what
    assert traces.damage[0].line == len(only(traces).records) + 1


def test_content_tells_what_a_file_is(tmp_path: Path) -> None:
    save(tmp_path, "rank0.jsonl", {"seq": [0], "stage": ["host"]})
    write(tmp_path, "rank1.parquet", event(0))
    (tmp_path / "rank2.parquet").write_bytes(b"neither\none\nnor the other\n")

    traces = load([tmp_path])

    assert list(traces.ranks) == [(0, 0), (0, 1)]
    assert traces.damage == [Damage("rank2.parquet", None, "no Parquet file: it does not start with PAR1")]


def test_a_file_without_rows(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    save(tmp_path, "rank1.parquet", {"seq": pa.array([], "int64"), "stage": pa.array([], "string")}, METAS)

    traces = load([tmp_path])

    assert traces.damage == [Damage("rank1.parquet", None, "no usable record in this file")]


def test_reading_json_lines_imports_neither_polars_nor_pyarrow(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = write(tmp_path, "rank0.jsonl", event(0))
    code = (
        "import sys; from divtrace.trace.load import load; load([sys.argv[1]]); "
        "sys.exit(' '.join({'polars', 'pyarrow', 'zstandard', 'rich', 'typer'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)

    assert done.stderr.strip() == ""
