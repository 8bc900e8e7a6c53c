"""Events as columns: the schema of converted files, and batches of it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.events import FIELDS, Event
from divtrace.trace.provenance import CONTESTED_COLUMN, DECIDED_COLUMN, FILE_COLUMN, LINE_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa

_WIDTHS = 3
"""Types of integers that are tried: signed and unsigned 64 bits, then decimals of 20 digits."""
_FIELDS = tuple(field for field in FIELDS if field.name != "kind")
_GET = {field.name: attrgetter(field.name) for field in _FIELDS}


class Wider(Exception):  # noqa: N818 - the conversion starts again with a wider column
    """An integer does not fit its column."""

    def __init__(self, name: str) -> None:
        """Name the column."""
        super().__init__(name)
        self.name = name


def schema(widths: dict[str, int]) -> pa.Schema:
    """The columns of a converted file; `widths` names those whose integers need more than signed 64 bits."""
    import pyarrow as pa

    columns = [(field.name, _type(field.type, widths.get(field.name, 0))) for field in _FIELDS]
    columns += [(FILE_COLUMN, pa.string()), (LINE_COLUMN, pa.int64())]
    columns += [(DECIDED_COLUMN, _integer(widths.get(DECIDED_COLUMN, 0))), (CONTESTED_COLUMN, pa.bool_())]
    return pa.schema(columns)


def _integer(width: int) -> pa.DataType:
    import pyarrow as pa

    return (pa.int64(), pa.uint64(), pa.decimal128(20))[width]


def _type(kind: str, width: int) -> pa.DataType:
    import pyarrow as pa

    if kind.startswith("["):
        return pa.list_(_type(kind[1:-1], width))
    if kind == "object":
        return pa.map_(pa.string(), pa.string())
    plain = {"str": pa.string(), "bool": pa.bool_(), "float": pa.float64(), "number": pa.float64()}
    return plain.get(kind) or _integer(width)


def batch(
    events: Sequence[Event],
    files: Sequence[str],
    lines: Sequence[int],
    contested: Sequence[bool | None],
    rank: tuple[int, int],
    widths: dict[str, int],
) -> pa.Table:
    """Events of one rank as rows, with the columns of `divtrace.trace.provenance` beside them.

    Raises:
        Wider: an integer does not fit its column.
    """
    import pyarrow as pa

    columns = []
    names = schema(widths)
    for field in _FIELDS:
        values: list[Any] = list(map(_GET[field.name], events))
        if field.name == "rank":
            values = [rank[1]] * len(events)
        elif field.name == "world":
            # Left out where nothing tells it, as most traces do.
            values = [rank[0] if rank[0] else value for value in values]
        elif field.name == "extra":
            values = [
                None if value is None else [(key, _json(item)) for key, item in value.items()] for value in values
            ]
        elif field.name == "decided_on":
            values = [None if value is None else float(value) for value in values]
        columns.append(_array(field.name, values, names.field(field.name).type))
    decided = [event.decided_on if isinstance(event.decided_on, int) else None for event in events]
    columns += [pa.array(files, pa.string()), pa.array(lines, pa.int64())]
    columns.append(_array(DECIDED_COLUMN, decided, names.field(DECIDED_COLUMN).type))
    columns.append(pa.array(contested, pa.bool_()))
    return pa.Table.from_arrays(columns, schema=names)


def _array(name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise Wider(name) from error


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
