"""Parquet: the same blocks of events out of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from divtrace.events import Meta
from divtrace.trace.columns import decode_batch
from divtrace.trace.model import Block, Damage, PlacedMeta
from divtrace.trace.provenance import FILE_COLUMN, LINE_COLUMN, Origins, Provenance, provenance_of
from divtrace.trace.records import BadRecordError, check_integers, why_invalid

if TYPE_CHECKING:
    import pyarrow as pa

META_KEY = b"divtrace.meta"
_ROWS = 1 << 14


def read_parquet(file: BinaryIO, name: str) -> Iterator[Block]:
    """Decode a Parquet file, a batch of rows at a time.

    Args:
        file: The open file; it must be able to seek.
        name: The file, for damage.

    Yields:
        Blocks in row order, the first one with the metas. A file that is cut yields its damage only; one that is
        damaged inside yields what precedes the damage.
    """
    import pyarrow as pa
    from pyarrow import parquet

    row = 1
    try:
        with parquet.ParquetFile(file, memory_map=False, pre_buffer=False) as opened:
            metadata = opened.metadata.metadata or {}
            first = _metas(metadata, name)
            first.provenance = provenance_of(metadata)
            yield first
            for batch in opened.iter_batches(batch_size=_ROWS):
                block = decode_batch(batch, row, name)
                if first.provenance is not None:
                    block.origins, block.first_row = _origins(batch, name, first.provenance), row
                yield block
                row += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, NotImplementedError) as error:
        where = "" if row == 1 else f" from row {row} on"
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        line = None if row == 1 else row
        yield Block([], [], damage=[Damage(name, line, f"the Parquet file is cut or damaged{where}: {reason}")])


def _origins(batch: pa.RecordBatch, name: str, provenance: Provenance) -> Origins:
    """Where the rows stood before the conversion, as far as these columns are what they should be."""
    names = batch.schema.names
    if FILE_COLUMN not in names or LINE_COLUMN not in names:
        return Origins(name, None, provenance)
    try:
        files, lines = (batch.column(column).to_pylist() for column in (FILE_COLUMN, LINE_COLUMN))
    except ValueError:
        return Origins(name, None, provenance)
    files = [file if isinstance(file, str) else None for file in files]
    lines = [line if isinstance(line, int) else None for line in lines]
    return Origins(name, (files, lines), provenance)


def _metas(metadata: dict[bytes, bytes], name: str) -> Block:
    block = Block([], [], is_row=True)
    text = metadata.get(META_KEY)
    if text is None:
        return block
    try:
        found = msgspec.json.decode(text, type=Meta | list[Meta])
        metas = found if isinstance(found, list) else [found]
        for meta in metas:
            check_integers(meta)
        block.metas = [PlacedMeta(None, meta) for meta in metas]
    except msgspec.ValidationError as error:
        block.bad.append(Damage(name, None, f"the metadata divtrace.meta: {why_invalid(error)}"))
    except (msgspec.DecodeError, BadRecordError, RecursionError) as error:
        block.bad.append(Damage(name, None, f"the metadata divtrace.meta: {error}"))
    return block


def spooled(stream: Iterable[bytes], limit: int = 64 << 20) -> BinaryIO:
    """A file that can seek, from a stream that cannot; on disk beyond `limit` bytes.

    Raises:
        StreamDamage: the stream is broken; a Parquet file without its end is of no use.
    """
    import tempfile

    file = tempfile.SpooledTemporaryFile(max_size=limit)  # noqa: SIM115 - handed to the caller
    try:
        for chunk in stream:
            file.write(chunk)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return cast(BinaryIO, file)
