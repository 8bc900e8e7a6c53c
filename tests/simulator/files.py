"""Traces as files: JSON Lines plain or compressed, and Parquet."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import zstandard

from simulator.recorder import Record
from simulator.run import Run

Form = Literal["jsonl", "jsonl.gz", "jsonl.zst", "parquet"]
FORMS: tuple[Form, ...] = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")


def line(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"))


def write_lines(path: Path, records: Iterable[Record]) -> Path:
    """Writes JSON Lines, compressed if the name says so."""
    data = "".join(line(record) + "\n" for record in records).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    elif path.suffix == ".zst":
        data = zstandard.ZstdCompressor().compress(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_parquet(path: Path, metas: list[Record], records: list[Record]) -> Path:
    """Writes one Parquet file: the same columns, the metas as file metadata, `extra` as a map of JSON texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for record in records for name in record))
    columns: dict[str, Any] = {}
    for name in names:
        values = [record.get(name) for record in records]
        columns[name] = _extras(values) if name == "extra" else pa.array(values, _column_type(values))
    table = pa.table(columns).replace_schema_metadata({"divtrace.meta": json.dumps(metas)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def _extras(values: list[Any]) -> Any:
    import pyarrow as pa

    texts = [None if value is None else [(key, line(item)) for key, item in value.items()] for value in values]
    return pa.array(texts, pa.map_(pa.string(), pa.string()))


def _column_type(values: list[Any]) -> Any:
    """Unsigned columns where a value needs them, else what pyarrow takes the values for."""
    import pyarrow as pa

    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    if any(isinstance(item, int) and item >= 2**63 for item in flat):
        return pa.list_(pa.uint64()) if any(isinstance(value, list) for value in values) else pa.uint64()
    if any(isinstance(value, list) for value in values) and not any(item is not None for item in flat):
        return pa.list_(pa.int64())
    return None


def write_run(run: Run, folder: Path, form: Form = "jsonl") -> Path:
    """Writes one file per rank, `rank0.jsonl` and so on; with a world in the scenario, `world0-rank0.jsonl`."""
    prefix = "" if run.scenario.world is None else f"world{run.scenario.world}-"
    for rank in run.ranks:
        path = folder / f"{prefix}rank{rank}.{form}"
        if form == "parquet":
            write_parquet(path, [run.metas[rank]], run.records[rank])
        else:
            write_lines(path, [run.metas[rank], *run.records[rank]])
    return folder
