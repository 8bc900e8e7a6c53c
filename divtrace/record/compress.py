"""Compression of closed files, in a thread of its own. A file is there whole at every moment, plain or compressed."""

from __future__ import annotations

import os

from divtrace.record.report import warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Protocol, Self

    class Packed(Protocol):
        """A stream that compresses what is written to it."""

        def write(self, data: bytes, /) -> int:
            """Takes plain bytes."""

        def __enter__(self) -> Self: ...

        def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


_CHUNK = 1 << 18


def compress_file(path: str, method: str) -> str:
    """Replaces a file by its compressed form; returns the path that now holds it.

    Nothing of that name is written over. What cannot be compressed stays as it is, with one warning.
    """
    ending = ".zst" if method == "zstd" else ".gz"
    temporary = f"{path}{ending}.tmp"
    try:
        with open(path, "rb") as source:
            target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            with os.fdopen(target, "wb") as raw, _compressor(raw, method) as packed:
                while chunk := source.read(_CHUNK):
                    packed.write(chunk)
        os.link(temporary, path + ending)
        os.unlink(temporary)
        try:
            os.unlink(path)
        except FileNotFoundError:
            # The cap took the file in the meantime; its other form goes with it.
            os.unlink(path + ending)
        return path + ending
    except FileNotFoundError:
        # Gone before or with the whole directory.
        return path
    except Exception as error:
        warn_once(f"a trace file stays uncompressed: {error}")
        try:
            os.unlink(temporary)
        except OSError:
            return path
        return path


def _compressor(raw: BinaryIO, method: str) -> Packed:
    if method == "zstd":
        import zstandard

        # closefd=False: the caller closes its own file.
        return zstandard.ZstdCompressor(level=3).stream_writer(raw, closefd=False)
    import gzip

    # No name and no time in the header: the same events give the same bytes.
    return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)
