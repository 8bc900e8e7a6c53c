"""How many bytes of the input an event takes, from a look at a few files: turns bytes read into events read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from divtrace.trace.compression import PARQUET, StreamDamage, open_stream
from divtrace.trace.discover import Source

_FILES = 8
_SAMPLE = 256 << 10
"""Bytes looked at in each file, as they lie on the disk."""


def bytes_per_event(sources: Sequence[Source]) -> float | None:
    """Bytes on the disk for each event, about; None if no file tells.

    Pipes are left alone: what is read from them is gone.
    """
    regular = [source for source in sources if source.size]
    spread = regular[:: max(1, len(regular) // _FILES)][:_FILES]
    samples = [_sample(source) for source in spread]
    events = sum(sample[1] for sample in samples)
    return sum(sample[0] for sample in samples) / events if events else None


def _sample(source: Source) -> tuple[int, int]:
    """Bytes looked at, and the events in them."""
    size = source.size or 0
    lines = 0
    try:
        with source.open() as file:
            stream = open_stream(file, min(size, _SAMPLE))
            if stream.peek(4) == PARQUET:
                return (size, _rows(file)) if stream.plain else (0, 0)
            try:
                for chunk in stream:
                    lines += chunk.count(b"\n")
            except StreamDamage:
                pass  # a compressed stream that is cut here is no damage
            return file.tell(), lines
    except (OSError, StreamDamage):
        return 0, 0


def _rows(file: BinaryIO) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(file).num_rows)
    except (OSError, pa.ArrowException):
        return 0
