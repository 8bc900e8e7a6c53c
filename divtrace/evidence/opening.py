"""Opening evidence files: compression by content, and limits on what one file may cost."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

HEAD_BYTES = 64 * 1024
"""What recognition reads of a file."""
MAXIMUM_STORED = 1 << 30
"""Bytes of a dump on disk."""
MAXIMUM_EXPANDED = 2 << 30
"""Bytes of a dump after decompression."""
MAXIMUM_LOG = 64 << 30
"""Bytes of a log after decompression; logs are streamed."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class CutFileError(ValueError):
    """A compressed file ends early or is damaged; what came before has been delivered."""


class TooLargeError(ValueError):
    """A file is larger than allowed, before or after decompression."""


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file, as a stream; gzip and Zstandard are told by their first bytes.

    Raises:
        OSError: the file cannot be opened.
    """
    with path.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=raw, mode="rb") as stream:
                yield cast("IO[bytes]", stream)
        elif magic == ZSTD_MAGIC:
            import zstandard

            reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw, read_across_frames=True)
            with reader:
                yield cast("IO[bytes]", reader)
        else:
            yield raw


def pieces(stream: IO[bytes], size: int, limit: int) -> Iterator[bytes]:
    """The stream in pieces of at most `size` bytes.

    Raises:
        CutFileError: the compressed data ends early or is damaged, after all bytes before it were delivered.
        TooLargeError: more than `limit` bytes came out.
    """
    import zstandard

    total = 0
    while True:
        try:
            piece = stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, OSError) as error:
            raise CutFileError(f"compressed data is cut or damaged: {error}") from None
        if not piece:
            return
        total += len(piece)
        if total > limit:
            raise TooLargeError(f"is larger than {limit >> 20} MiB after decompression")
        yield piece


def head(path: Path) -> bytes:
    """The first bytes of a file after decompression, as many as can be had up to HEAD_BYTES.

    Raises:
        OSError: the file cannot be read.
    """
    found = b""
    with opened(path) as stream:
        try:
            for piece in pieces(stream, 4096, HEAD_BYTES + 4096):
                found += piece
                if len(found) >= HEAD_BYTES or b"\0" in piece:
                    break
        except (CutFileError, TooLargeError):
            pass
    return found[:HEAD_BYTES]


def whole(path: Path) -> bytes:
    """All bytes of a dump after decompression.

    Raises:
        OSError: the file cannot be read.
        CutFileError: compressed data is cut or damaged.
        TooLargeError: too large, before or after decompression.
    """
    if path.stat().st_size > MAXIMUM_STORED:
        raise TooLargeError(f"is larger than {MAXIMUM_STORED >> 20} MiB")
    with opened(path) as stream:
        return b"".join(pieces(stream, 1 << 24, MAXIMUM_EXPANDED))
