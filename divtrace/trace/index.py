"""The index of a converted trace: which of its files hold which request, so that the others need not be opened.

It stands beside the files, as a Parquet table of requests sorted by their id, and says how long each file is and how it
ends, in the footer, where every piece of the file is named by its place. A file that was replaced since is noticed by
that, and everything works without an index, only slower.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from divtrace.events import Meta
from divtrace.trace.discover import INDEX_NAME, Source, is_remote

_KEY = b"divtrace.index"
_TAIL = 1 << 16
"""Bytes at a file's end that are compared."""
_ROW_GROUP = 1 << 16


class IndexedFile(msgspec.Struct, frozen=True):
    """One file of the conversion, as it says itself who it is."""

    name: str
    """In the folder of the index."""
    size: int
    """Bytes."""
    tail: int
    """CRC-32 of its last 64 KiB."""
    world: int
    rank: int
    first_seq: int
    """-1 if records carry none."""
    metas: list[Meta]


class _Head(msgspec.Struct):
    format: Literal["divtrace.index/1"]
    files: list[IndexedFile]


class Known(msgspec.Struct, frozen=True):
    """A file of which an index knows."""

    source: Source
    file: IndexedFile
    holds: bool
    """Whether any of its records is the request's, or a batch with it."""


def look_up(sources: Iterable[Source], req: str) -> list[Known] | None:
    """What the indexes beside files say of them and of a request; None unless that is something about every file."""
    known: list[Known] = []
    indexes: dict[str, list[Source]] = {}
    for source in sources:
        if is_remote(source.path):
            return None
        path = os.path.join(os.path.dirname(source.path), INDEX_NAME)  # noqa: PTH118, PTH120 - may be no UTF-8
        indexes.setdefault(path, []).append(source)
    if not all(map(os.path.exists, indexes)):
        return None
    import pyarrow as pa

    try:
        for path, inside in indexes.items():
            files, holding = _read(path, req)
            for source in inside:
                file = files.get(os.path.basename(source.path))  # noqa: PTH119
                if file is None or file.size != source.size or file.tail != _tail(source.path, file.size):
                    return None
                known.append(Known(source, file, file.name in holding))
    except (OSError, ValueError, TypeError, LookupError, pa.ArrowException, msgspec.DecodeError):
        return None  # it is damaged
    return known


def _read(path: str, req: str) -> tuple[dict[str, IndexedFile], set[str]]:
    """The files by their names, and those that hold the request."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    with parquet.ParquetFile(path, memory_map=False) as table:
        metadata = table.metadata
        files = msgspec.json.decode((metadata.metadata or {})[_KEY], type=_Head).files
        groups = []
        for group in range(metadata.num_row_groups):
            column = metadata.row_group(group).column(0).statistics
            if column is None or not column.has_min_max or column.min <= req <= column.max:
                groups.append(group)
        names, numbers = table.read_row_groups(groups, columns=["req", "file"], use_threads=False).columns
        holding = numbers.filter(pc.equal(names, pa.scalar(req, names.type))).to_pylist()
    return {file.name: file for file in files}, {files[number].name for number in holding}


def write_index(folder: Path, files: Sequence[IndexedFile], requests: Mapping[str, Sequence[int]]) -> None:
    """Put the index beside the files, in the place of an earlier one.

    Args:
        folder: where the files are.
        files: all of them.
        requests: for each request the numbers of the files that hold it, or a batch with it.

    Raises:
        OSError: it cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    pairs = [(req, number) for req in sorted(requests) for number in requests[req]]
    head = msgspec.json.encode(_Head("divtrace.index/1", list(files)))
    columns = [pa.array([req for req, _ in pairs], pa.string()), pa.array([number for _, number in pairs], pa.int32())]
    schema = pa.schema([("req", pa.string()), ("file", pa.int32())], metadata={_KEY: head})
    unfinished = folder / f"{INDEX_NAME}.{os.getpid()}.partial"
    try:
        parquet.write_table(
            pa.Table.from_arrays(columns, schema=schema), unfinished, compression="zstd", row_group_size=_ROW_GROUP
        )
        unfinished.rename(folder / INDEX_NAME)
    finally:
        unfinished.unlink(missing_ok=True)


def indexed(path: Path, name: str, rank: tuple[int, int], first_seq: int, metas: list[Meta]) -> IndexedFile:
    """What an index says of a complete file that will have this name; `rank` is its world and rank."""
    size = path.stat().st_size
    return IndexedFile(name, size, _tail(os.fspath(path), size), *rank, first_seq, metas)


def _tail(path: str, size: int) -> int:
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(max(size - _TAIL, 0))
        return zlib.crc32(file.read(_TAIL))
