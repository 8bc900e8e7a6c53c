"""Parquet: the same blocks of events out of columns."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from divtrace.events import Event, Meta
from divtrace.trace.model import Block, Damage, PlacedMeta
from divtrace.trace.records import EVENT_FIELDS, BadRecordError, check_integers, tidy_extra, why_invalid

if TYPE_CHECKING:
    import pyarrow as pa

META_KEY = b"divtrace.meta"
_ROWS = 1 << 14


def read_parquet(file: BinaryIO | str, name: str) -> Iterator[Block]:
    """Decode a Parquet file, a batch of rows at a time.

    Args:
        file: Its path, or an open file that can seek.
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
            yield _metas(opened.schema_arrow.metadata or {}, name)
            for batch in opened.iter_batches(batch_size=_ROWS):
                yield _decode_batch(batch, row, name)
                row += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, NotImplementedError) as error:
        where = "" if row == 1 else f" from row {row} on"
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        line = None if row == 1 else row
        yield Block([], [], damage=[Damage(name, line, f"the Parquet file is cut or damaged{where}: {reason}")])


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


def _decode_batch(batch: pa.RecordBatch, first: int, name: str) -> Block:
    import pyarrow as pa

    block = Block([], [], is_row=True)
    columns: dict[str, list[Any]] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name not in EVENT_FIELDS:
            if count := len(column) - column.null_count:
                block.unknown[field.name] = block.unknown.get(field.name, 0) + count
        elif not pa.types.is_null(field.type):
            columns[field.name] = _values(field.name, column)
    names = tuple(columns)
    lines = []
    for at, values in enumerate(zip(*columns.values(), strict=True) if names else [()] * batch.num_rows):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        try:
            block.events.append(_event(row))
            lines.append(first + at)
        except BadRecordError as bad:
            block.bad.append(Damage(name, first + at, str(bad)))
    block.lines = lines
    return block


def _values(name: str, column: pa.Array) -> list[Any]:
    """The column as Python values of the types that JSON would give."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    values: list[Any] = column.to_pylist()
    if name == "extra":
        return values
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
        if pa.types.is_dictionary(inner):
            inner = inner.value_type
        if _needs_plain(inner):
            return [None if value is None else [_plain(item) for item in value] for value in values]
    elif _needs_plain(kind):
        return [_plain(value) for value in values]
    return values


def _needs_plain(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_decimal(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _plain(value: Any) -> Any:
    """A decimal without a fraction as an integer, bytes that are UTF-8 as text; what has no such form stays."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _event(row: dict[str, Any]) -> Event:
    try:
        if "extra" in row:
            row["extra"] = _extra(row["extra"])
        event = msgspec.convert(row, Event)
    except msgspec.ValidationError as error:
        raise BadRecordError(why_invalid(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRecordError(f"`extra` is not JSON: {error}") from error
    for number in (event.margin, event.decided_on):
        if number is not None and not math.isfinite(number):
            raise BadRecordError("NaN is no number" if math.isnan(number) else "Infinity is no number")
    check_integers(event)
    tidy_extra(event)
    return event


def _extra(value: Any) -> Any:
    """`extra` from a map of string to JSON text, a struct, or one JSON text for all of it."""
    if isinstance(value, str):
        return msgspec.json.decode(value)
    if isinstance(value, list):
        return {key: None if text is None else _text(text) for key, text in value}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _text(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str | bytes) else _plain(value)


def spooled(stream: Any, limit: int = 64 << 20) -> BinaryIO:
    """A file that can seek, from a stream that cannot; on disk beyond `limit` bytes.

    Raises:
        StreamDamage: the stream is broken; a Parquet file without its end is of no use.
    """
    import tempfile

    file = tempfile.SpooledTemporaryFile(max_size=limit)  # noqa: SIM115 - handed to the caller
    for chunk in stream:
        file.write(chunk)
    file.seek(0, io.SEEK_SET)
    return file  # type: ignore[return-value]
