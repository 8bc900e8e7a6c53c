"""Where the rows of a converted trace come from: what `divtrace convert` adds to a file, and how it is read back.

A converted file is a plain Parquet trace with more columns, the file and the line of each record before the conversion
and whether its KV slots were free, and one more metadata key with all that the records themselves do not tell: gaps,
bad lines, duplicates.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from divtrace.events import Meta

PREFIX = "divtrace."
"""Columns with such names are this tool's own and are no unknown fields."""
FILE_COLUMN = "divtrace.file"
LINE_COLUMN = "divtrace.line"
DECIDED_COLUMN = "divtrace.decided_on"
"""`decided_on` where it is an integer: the column of that name holds doubles."""
CONTESTED_COLUMN = "divtrace.contested"
"""True where a record lays a KV slot that another request laid before and had not finished since; else null."""
KEY = b"divtrace.conversion"


class Damaged(msgspec.Struct, frozen=True):
    """A bad line or a damaged file of the input."""

    file: str
    line: int | None
    what: str


class InputFacts(msgspec.Struct, kw_only=True):
    """What else was found in the input. Every file of a conversion says what it knows; together that is all."""

    files: list[str] = []
    ignored_files: int = 0
    damage: list[Damaged] = []
    bad_lines: int = 0
    unknown_fields: dict[str, int] = {}
    duplicates: int = 0
    notes: list[str] = []
    runs: list[str] = []
    shared_metas: list[Meta] = []


class Provenance(msgspec.Struct, kw_only=True):
    """What a converted file says of its rank and of the conversion."""

    format: Literal["divtrace.conversion/1"] = "divtrace.conversion/1"
    world: int
    rank: int
    files: list[str]
    """Files that the rank's records were in, sorted."""
    row_files: list[str]
    """Those of them that were Parquet, whose lines are rows."""
    gaps: list[int]
    lost: int
    starts_at_zero: bool
    first_seq: int
    """-1 if records carry none."""
    has_seq: bool
    dropped: int
    windows: list[int]
    """Row groups of each window. Rows of a window precede those of the next; inside they are sorted by request."""
    fields: list[str] = []
    """Columns that any row records."""
    recorded: list[int] = []
    """For every row group which of `column_sets` it records."""
    column_sets: list[list[str]] = []
    """Columns that any row of a row group records."""
    facts: InputFacts = msgspec.field(default_factory=InputFacts)


def provenance_of(metadata: dict[bytes, bytes]) -> Provenance | None:
    """What a file says of its conversion; None if it is no converted file, or what it says is damaged."""
    text = metadata.get(KEY)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Provenance)
    except (msgspec.DecodeError, RecursionError):
        return None


class Origins:
    """Tells where rows of one file come from: from before the conversion if it is a converted one."""

    def __init__(
        self, name: str, columns: tuple[list[str | None], list[int | None]] | None, provenance: Provenance | None
    ) -> None:
        """Take over the file's name and its two columns."""
        self._name = name
        self._columns = columns if provenance is not None else None
        self._row_files = frozenset(provenance.row_files) if provenance is not None else frozenset()

    def of(self, at: int, row: int) -> tuple[str, int, bool]:
        """File, line, and whether that is a row of a Parquet file, of the record at an index, now in `row`."""
        if self._columns is not None:
            file, line = self._columns[0][at], self._columns[1][at]
            if file is not None and line is not None:
                return file, line, file in self._row_files
        return self._name, row, True
