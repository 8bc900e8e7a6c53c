"""Blocks of whole lines out of a byte stream, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from divtrace.trace.compression import Bytes, StreamDamage

BLOCK = 1 << 16
"""Bytes of a block: its events still fit the processor's cache when the next stage looks at them. Pieces of twice the
size and more the allocator would ask of the system, and give back, for every block."""
LONGEST = 64 << 20
"""Bytes of the longest line that is read; a longer one is passed over and counted as bad."""
TOO_LONG = b"\0 line too long"
"""Stands in `Lines.lines`, as this very object, for a line longer than LONGEST."""


class Lines(msgspec.Struct):
    """Consecutive lines of a file, without their line breaks."""

    first: int
    """Number of the first line, from 1."""
    lines: list[bytes]
    text: bytes
    """All of them in one piece, for quick searches."""
    cut: str | None = None
    """What broke the stream inside the last line of this block, which may be empty."""
    offset: int = 0
    """Bytes of the stream in front of the first line."""


def split_lines(stream: Bytes, longest: int = LONGEST, *, number: int = 1, offset: int = 0) -> Iterator[Lines]:
    """Cut `stream` into blocks of whole lines, of about `BLOCK` bytes unless a line is longer.

    The first line is that of this number, and stands behind `offset` bytes.

    The last line needs no line break. A stream that breaks yields all whole lines first, then what is left of the
    last one with `cut` saying what happened.
    """
    held: list[bytes] = []
    size = 0
    has_break = skipping = False
    cut = None
    try:
        for chunk in stream:
            rest = chunk
            if skipping:
                end = chunk.find(b"\n")
                if end < 0:
                    offset += len(chunk)
                    continue
                yield Lines(number, [TOO_LONG], b"", offset=offset)
                number += 1
                offset += end + 1
                skipping = False
                rest = chunk[end + 1 :]
            held.append(rest)
            size += len(rest)
            has_break = has_break or b"\n" in rest
            if has_break and size >= BLOCK:
                end = rest.rfind(b"\n")
                if end >= 0:
                    text, tail = b"".join((*held[:-1], memoryview(rest)[:end])), rest[end + 1 :]
                else:
                    text, _, tail = b"".join(held).rpartition(b"\n")
                lines = _bounded(text.split(b"\n"), len(text), longest)
                yield Lines(number, lines, text, offset=offset)
                number += len(lines)
                offset += len(text) + 1
                held, size, has_break = [tail], len(tail), False
            if not has_break and size > longest:
                offset += size
                held, size, skipping = [], 0, True
    except StreamDamage as damage:
        cut = str(damage)
    if skipping:
        yield Lines(number, [TOO_LONG], b"", cut, offset)
        return
    text = b"".join(held)
    if text or cut is not None:
        lines = _bounded(text.split(b"\n"), len(text), longest)
        if cut is None and not lines[-1]:
            lines.pop()
        yield Lines(number, lines, text, cut, offset)


def _bounded(lines: list[bytes], size: int, longest: int) -> list[bytes]:
    if size <= longest:
        return lines
    return [line if len(line) <= longest else TOO_LONG for line in lines]
