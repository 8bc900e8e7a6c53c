"""What reading yields: records in order, per rank, and everything that was damaged, counted and named."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from divtrace.events import Event, Meta
from divtrace.trace.provenance import Origins, Provenance

RankId = tuple[int, int]
"""A rank's identity: (world, rank)."""


class Record(msgspec.Struct, gc=False):
    """One event, its place in its rank's order, and where it stands in the input.

    There are millions of them and they form no cycles: the garbage collector need not visit them.
    """

    event: Event
    pos: int
    """Ordinal in this rank's order, from 0."""
    file: str
    """Relative to the input, with `/` between folders."""
    line: int
    """Line from 1; in a Parquet file the row, from 1."""
    is_row: bool


class Damage(msgspec.Struct, frozen=True):
    """One bad line or damaged file. `line` is None where the file as a whole is meant."""

    file: str
    line: int | None
    what: str


class RankTrace(msgspec.Struct):
    """The whole trace of one rank, from all of its files."""

    id: RankId
    metas: list[Meta]
    """In the order of the records beside them; one without `rank` holds for every rank of its file."""
    records: list[Record]
    """By `seq` if every record has one, else in line order; never empty."""
    gaps: list[int]
    """Every p, sorted, such that events are missing or unreadable directly before `records[p]`."""
    lost: int
    """Values of `seq` that are missing between the first and the last."""
    starts_at_zero: bool
    has_seq: bool
    """Every record has a `seq`."""
    dropped: int
    """Events that the recorder itself says it lost; 0 if no meta says anything."""
    files: tuple[str, ...]

    @property
    def meta(self) -> Meta:
        """One meta with, for every key, the first value that any meta of this rank recorded, and `dropped` as above."""
        merged = Meta(dropped=self.dropped)
        for meta in reversed(self.metas):
            for name in Meta.__struct_fields__:
                if name != "dropped" and (value := getattr(meta, name)) is not None:
                    setattr(merged, name, value)
        return merged


class Traces(msgspec.Struct):
    """The whole input."""

    ranks: dict[RankId, RankTrace]
    """Sorted by (world, rank)."""
    files: tuple[str, ...]
    """Trace files that were read, sorted; those of other runs are not among them."""
    ignored_files: int
    damage: list[Damage]
    """Bad lines and damaged files, sorted by file and line."""
    bad_lines: int
    unknown_fields: dict[str, int]
    """Top-level fields that the format does not know, sorted by name: in how many records they had a value."""
    duplicates: int
    """Records left out because an identical one with the same (rank, seq) stands."""
    notes: list[str]
    runs: tuple[str, ...]
    """All run names that the metas of the input give, sorted."""
    shared_metas: list[Meta]
    """Metas without a rank, and metas of ranks that have no record."""


class PlacedMeta(msgspec.Struct, frozen=True):
    """A meta record and its line; None for the metadata of a Parquet file, which stands above all rows."""

    line: int | None
    meta: Meta


class Block(msgspec.Struct):
    """Consecutive lines (or rows) of one file, decoded: what a reader yields."""

    events: list[Event]
    lines: Sequence[int]
    """The line of each event, rising; as long as `events`."""
    metas: list[PlacedMeta] = msgspec.field(default_factory=list)
    bad: list[Damage] = msgspec.field(default_factory=list)
    """Lines that are no record, each with its line."""
    damage: list[Damage] = msgspec.field(default_factory=list)
    """Damage of the file as a whole, which is no bad line."""
    unknown: dict[str, int] = msgspec.field(default_factory=dict)
    is_row: bool = False
    """`lines` are rows of a Parquet file."""
    provenance: Provenance | None = None
    """In the first block of a converted file: what it says of the conversion."""
    origins: Origins | None = None
    """Where each row stood before the conversion."""
    first_row: int = 1
    """The first row, where `origins` are given."""
    consumed: int = 0
    """Bytes of the file, as it is on disk, that were read when this block was complete."""


def canonical(event: Event | Meta) -> bytes:
    """The recorded fields as JSON with sorted keys.

    The identity of an event is left out: it is known from elsewhere, and one file may spell out what another leaves
    to its meta.
    """
    left_out = ("kind", "world", "rank") if isinstance(event, Event) else ("kind",)
    recorded = {
        name: value
        for name in event.__struct_fields__
        if name not in left_out and (value := getattr(event, name)) is not None
    }
    return msgspec.json.encode(recorded, order="sorted")
