"""Opening evidence files, and what one file may cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from divtrace.trace.compression import StreamDamage, open_stream

HEAD_BYTES = 64 * 1024
"""What recognition reads of a file."""
MAXIMUM_STORED = 1 << 30
"""Bytes of a dump on disk."""
MAXIMUM_EXPANDED = 2 << 30
"""Bytes of a dump after decompression."""
MAXIMUM_LOG = 64 << 30
"""Bytes of a log after decompression; logs are streamed."""


class CutFileError(ValueError):
    """A compressed file ends early or is damaged; what came before has been delivered."""


class TooLargeError(ValueError):
    """A file is larger than allowed, before or after decompression."""


def head(path: Path) -> bytes:
    """The first bytes of a file after decompression, as many as can be had up to HEAD_BYTES.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        stream = open_stream(file, None)
        first = stream.peek(512)
        # A file that is binary by its first bytes is not read any further.
        return first if b"\0" in first and not first.startswith(b"\x80") else stream.peek(HEAD_BYTES)


def pieces(path: Path, size: int, limit: int) -> Iterator[bytes]:
    """The decompressed content of a file in pieces of `size` bytes or a little more; the last may be shorter.

    Raises:
        CutFileError: the compressed data ends early or is damaged, after all bytes before it were delivered.
        OSError: the file cannot be read.
        TooLargeError: more than `limit` bytes came out.
    """
    total = 0
    waiting: list[bytes] = []
    length = 0
    with path.open("rb") as file:
        try:
            for chunk in open_stream(file, None):
                waiting.append(chunk)
                length += len(chunk)
                if length < size:
                    continue
                total += length
                if total > limit:
                    raise TooLargeError(f"is larger than {limit >> 20} MiB after decompression")
                yield b"".join(waiting)
                waiting, length = [], 0
        except StreamDamage as damage:
            if waiting:
                yield b"".join(waiting)
            raise CutFileError(str(damage)) from None
    if waiting:
        yield b"".join(waiting)


def whole(path: Path) -> bytes:
    """All bytes of a dump after decompression.

    Raises:
        OSError: the file cannot be read.
        CutFileError: compressed data is cut or damaged.
        TooLargeError: too large, before or after decompression.
    """
    if path.stat().st_size > MAXIMUM_STORED:
        raise TooLargeError(f"is larger than {MAXIMUM_STORED >> 20} MiB")
    return b"".join(pieces(path, 1 << 20, MAXIMUM_EXPANDED))
