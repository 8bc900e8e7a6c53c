"""Bytes of a file, decompressed as they come; what a file is, its first bytes decide and not its name."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE_TAIL = b"\x2a\x4d\x18"
"""A skippable frame starts with 0x50 to 0x5f and these three (RFC 8878, section 3.1.2)."""
PARQUET = b"PAR1"

_READ = 1 << 16
_GZIP_READ = 1 << 15
"""Deflate expands at most 1,032 times: 32 KiB at a time keep a hostile file below 34 MiB of memory."""
_ZSTD_READ = 1 << 9
"""A Zstandard block of 4 bytes may stand for 128 KiB: 512 bytes at a time keep a hostile file at 16 MiB."""
_LAYERS = 4


class StreamDamage(Exception):  # noqa: N818 - damage is evidence; the readers turn it into data
    """The stream is broken here. All that could be read before it has been handed out."""


class Bytes:
    """A byte stream with a look ahead, made from chunks of any size."""

    def __init__(self, chunks: Iterator[bytes], *, plain: bool = False) -> None:
        """Take over `chunks`; they may raise StreamDamage."""
        self.plain = plain
        """Not decompressed: these are the bytes of the file itself."""
        self._chunks = chunks
        self._ahead = b""
        self._damage: StreamDamage | None = None

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end or before damage, without consuming them."""
        while len(self._ahead) < size and self._damage is None:
            try:
                chunk = next(self._chunks, None)
            except StreamDamage as damage:
                self._damage = damage
                break
            if chunk is None:
                break
            self._ahead += chunk
        return self._ahead[:size]

    def __iter__(self) -> Iterator[bytes]:
        """The rest of the stream in chunks.

        Raises:
            StreamDamage: behind the last chunk that could be read.
        """
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            yield ahead
        if self._damage is not None:
            raise self._damage
        yield from self._chunks


def open_stream(file: BinaryIO, size: int | None) -> Bytes:
    """The decompressed content of `file`, of which at most `size` bytes are read (all if None).

    Gzip with any number of members and Zstandard with any number of frames, also one inside the other.
    """
    stream = plain_stream(file, size)
    for _ in range(_LAYERS):
        magic = stream.peek(4)
        if magic.startswith(_GZIP):
            stream = Bytes(_gzip(stream))
        elif magic == _ZSTD or (magic[1:] == _ZSTD_SKIPPABLE_TAIL and magic[0] & 0xF0 == 0x50):
            stream = Bytes(_zstd(stream))
        else:
            break
    return stream


def plain_stream(file: BinaryIO, size: int | None) -> Bytes:
    """At most `size` bytes of `file` from where it stands, not decompressed."""
    return Bytes(_raw(file, size), plain=True)


def _raw(file: BinaryIO, size: int | None) -> Iterator[bytes]:
    left = size
    while left is None or left > 0:
        try:
            chunk = file.read(_READ if left is None else min(_READ, left))
        except OSError as error:
            raise StreamDamage(f"the file cannot be read on: {error.strerror or type(error).__name__}") from error
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk


def _pieces(stream: Bytes, size: int) -> Iterator[bytes]:
    for chunk in stream:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]


def _gzip(stream: Bytes) -> Iterator[bytes]:
    member: zlib._Decompress | None = None
    for piece in _pieces(stream, _GZIP_READ):
        rest = piece
        while rest:
            if member is None:
                # Zeros behind the last member are padding, as gzip itself has it.
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                member = zlib.decompressobj(wbits=31)
            before = member.copy()
            try:
                data = member.decompress(rest)
            except zlib.error as error:
                yield from _salvage(before, rest)
                raise StreamDamage(f"the compressed stream is damaged: {_zlib_reason(error)}") from error
            if data:
                yield data
            rest = b""
            if member.eof:
                rest, member = member.unused_data, None
    if member is not None:
        raise StreamDamage("the compressed stream ends early")


def _salvage(member: zlib._Decompress, piece: bytes) -> Iterator[bytes]:
    """What `piece` holds before the byte at which decompression fails."""
    out = io.BytesIO()
    try:
        for at in range(len(piece)):
            out.write(member.decompress(piece[at : at + 1]))
    except zlib.error:
        pass
    yield out.getvalue()


def _zlib_reason(error: zlib.error) -> str:
    return str(error).rpartition(": ")[2]


def _zstd(stream: Bytes) -> Iterator[bytes]:
    import zstandard

    frame: zstandard.ZstdDecompressionObj | None = None
    for piece in _pieces(stream, _ZSTD_READ):
        rest = piece
        while rest:
            if frame is None:
                frame = zstandard.ZstdDecompressor().decompressobj()
            try:
                data = frame.decompress(rest)
            except zstandard.ZstdError as error:
                raise StreamDamage(f"the compressed stream is damaged: {str(error).rpartition(': ')[2]}") from error
            if data:
                yield data
            rest = b""
            if frame.eof:
                rest, frame = frame.unused_data, None
    if frame is not None:
        raise StreamDamage("the compressed stream ends early")
