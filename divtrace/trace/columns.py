"""Columns of a Parquet batch as events.

What an Arrow column type guarantees is not looked at again value by value; only a column of another type than the
field's is, and costs the rows that do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.events import FIELDS, Event
from divtrace.trace.model import Block, Damage
from divtrace.trace.provenance import DECIDED_COLUMN, PREFIX
from divtrace.trace.records import EVENT_FIELDS, BadRecordError, check_integers, tidy_extra, why_invalid

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES = frozenset({"kind", "stage", "phase"})
"""Fields that allow only some texts, and whose columns hold few different ones."""


def decode_batch(batch: pa.RecordBatch, first: int, name: str) -> Block:
    """Turn a batch of rows into a block of events.

    Args:
        batch: Columns named like the fields; others are counted.
        first: Row number of the first row, from 1.
        name: The file, for damage.
    """
    block = Block([], [], is_row=True)
    columns: dict[str, pa.Array] = {}
    whole: pa.Array | None = None
    for column_name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column_name in EVENT_FIELDS:
            columns[column_name] = column
        elif column_name.startswith(PREFIX):
            if column_name == DECIDED_COLUMN:
                whole = column
        elif count := len(column) - column.null_count:
            block.unknown[column_name] = block.unknown.get(column_name, 0) + count
    events = [Event(stage="host") for _ in range(batch.num_rows)]
    bad: dict[int, str] = {}
    """The first reason, in the order of the fields, why a row is no record."""
    stages = columns.get("stage")
    without_stage = range(len(events)) if stages is None else _rows(stages.is_null())
    bad.update(dict.fromkeys(without_stage, "`stage` is missing"))
    for field in FIELDS:
        if (column := columns.get(field.name)) is not None and column.null_count < len(column):
            _assign(events, field.name, field.type, column, bad)
    if whole is not None and whole.null_count < len(whole):
        _assign(events, "decided_on", "int", whole, bad)
    block.events = [event for at, event in enumerate(events) if at not in bad] if bad else events
    block.lines = [first + at for at in range(len(events)) if at not in bad]
    block.bad = [Damage(name, first + at, bad[at]) for at in sorted(bad)]
    return block


def _assign(events: list[Event], name: str, kind: str, column: pa.Array, bad: dict[int, str]) -> None:
    """Write one column to the events; rows whose value does not fit join `bad`."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    rows: Sequence[int] = range(len(column))
    if column.null_count:
        rows = _rows(column.is_valid())
        column = column.drop_null()
    try:
        values = column.to_pylist()
        sound = _guaranteed(kind, column)
    except (ValueError, OverflowError):
        # A text that is not UTF-8, a time that Python cannot hold: only the rows with such a value are lost.
        values = [_scalar(scalar) for scalar in column]
        sound = False
    if sound and name not in _NAMES:
        for at, value in zip(rows, values, strict=True):
            setattr(events[at], name, value)
        return
    fit = _fitting(name)
    for at, value in zip(rows, values, strict=True):
        try:
            setattr(events[at], name, fit(value))
        except BadRecordError as error:
            bad.setdefault(at, str(error))


def _rows(mask: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    rows: list[int] = pc.indices_nonzero(mask).to_pylist()
    return rows


def _scalar(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return error


def _guaranteed(kind: str, column: pa.Array) -> bool:
    """Whether the column's type, without a look at every value, makes all of them values of the field's type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    arrow = column.type
    if kind.startswith("["):
        if not _is_list(arrow) or column.flatten().null_count:
            return False
        kind, arrow = kind[1:-1], arrow.value_type
        if types.is_dictionary(arrow):
            arrow = arrow.value_type
    if kind == "int":
        return bool(types.is_integer(arrow))
    if kind == "str":
        return bool(types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow))
    if kind == "bool":
        return bool(types.is_boolean(arrow))
    if kind == "number" and types.is_integer(arrow):
        return True
    if kind in ("number", "float") and types.is_floating(arrow):
        return bool(pc.all(pc.is_finite(column)).as_py())
    return False


def _is_list(arrow: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow))


def _fitting(name: str) -> Callable[[Any], Any]:
    """The function that makes a value of any Python type one of the field `name`, or raises BadRecordError."""

    def fit(value: Any) -> Any:
        if isinstance(value, Exception):
            what = "not valid UTF-8" if isinstance(value, UnicodeDecodeError) else f"unreadable: {value}"
            raise BadRecordError(f"`{name}` is {what}")
        try:
            event = msgspec.convert({"stage": "host", name: _extra(value) if name == "extra" else _plain(value)}, Event)
        except msgspec.ValidationError as error:
            raise BadRecordError(why_invalid(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRecordError(f"`{name}` is not JSON: {error}") from error
        for number in (event.margin, event.decided_on):
            if number is not None and not math.isfinite(number):
                raise BadRecordError(f"`{name}` is {'NaN' if math.isnan(number) else 'Infinity'}, which is no number")
        check_integers(event)
        tidy_extra(event)
        return getattr(event, name)

    if name not in _NAMES:
        return fit
    fit_text = cache(fit)
    return lambda value: fit_text(value) if isinstance(value, str) else fit(value)


def _plain(value: Any) -> Any:
    """A decimal without a fraction as an integer, bytes that are UTF-8 as text; what has no such form stays."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _extra(value: Any) -> Any:
    """`extra` from a map of string to JSON text, a struct, or one JSON text for all of it."""
    value = _plain(value)
    if isinstance(value, str):
        return msgspec.json.decode(value)
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):
        return {_plain(key): None if text is None else _json(text) for key, text in value}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _json(value: Any) -> Any:
    value = _plain(value)
    return msgspec.json.decode(value) if isinstance(value, str) else value
