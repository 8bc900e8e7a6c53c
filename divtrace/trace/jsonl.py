"""JSON Lines: blocks of events out of a stream of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from divtrace.events import Event, Meta
from divtrace.trace.compression import Bytes
from divtrace.trace.decoder import EventDecoder
from divtrace.trace.lines import LONGEST, TOO_LONG, Lines, split_lines
from divtrace.trace.model import Block, Damage, PlacedMeta
from divtrace.trace.records import BadRecordError, check_integers, decode_line, has_long_integer, tidy_extra


def read_jsonl(stream: Bytes, name: str, longest: int = LONGEST) -> Iterator[Block]:
    """Decode a stream of JSON Lines, a block of lines at a time.

    Args:
        stream: The decompressed bytes.
        name: The file, for damage.
        longest: Bytes of the longest line that is decoded.

    Yields:
        Blocks in line order; none for an empty file. Blank lines are passed over. A broken stream is damage of the
        last block: the lines before the break are read.
    """
    decoder = EventDecoder()
    for lines in split_lines(stream, longest):
        yield _decode_block(lines, decoder, name, longest)


def _decode_block(lines: Lines, decoder: EventDecoder, name: str, longest: int) -> Block:
    events: list[Event] = []
    block = Block(events, range(lines.first, lines.first + len(lines.lines)))
    others: list[int] = []
    """Indices of the lines that gave no event."""
    rest = iter(lines.lines)
    done = 0
    while True:
        # The whole block in one go; only a line that is not a plain event comes back to Python. `rest` then stands
        # behind that line, and `events` holds everything before it.
        before = len(events)
        try:
            events.extend(map(decoder.decode, rest))
            break
        except (msgspec.DecodeError, RecursionError):
            at = done + len(events) - before
            done = at + 1
        if not _careful(block, lines, at, decoder, name, longest):
            others.append(at)
    block.events = decoder.plain(events, block.unknown)
    if others:
        left_out = set(others)
        block.lines = [line for at, line in enumerate(block.lines) if at not in left_out]
    _check(block, lines, name)
    if lines.cut is not None:
        _cut(block, lines, name)
    return block


def _careful(block: Block, lines: Lines, at: int, decoder: EventDecoder, name: str, longest: int) -> bool:
    """Decode one line that is not a plain event; True if it gave an event after all."""
    number = lines.first + at
    line = lines.lines[at]
    if line is TOO_LONG:
        block.bad.append(Damage(name, number, f"the line is longer than {longest:,} bytes"))
        return False
    try:
        record, unknown = decode_line(line)
    except BadRecordError as bad:
        block.bad.append(Damage(name, number, str(bad)))
        return False
    if isinstance(record, Meta):
        block.metas.append(PlacedMeta(number, record))
        return False
    if record is None:
        return False
    decoder.learn(unknown)
    for field, has_value in unknown.items():
        if has_value:
            block.unknown[field] = block.unknown.get(field, 0) + 1
    block.events.append(record)
    return True


def _check(block: Block, lines: Lines, name: str) -> None:
    """Take out events that decode but break the format: integers out of range, objects in `extra`.

    One search through the whole block tells whether any line may have a long integer; most blocks have none.
    """
    bad: set[int] = set()
    if has_long_integer(lines.text):
        for at, number in enumerate(block.lines):
            if has_long_integer(lines.lines[number - lines.first]):
                _reject(block, at, name, check_integers, bad)
    for at, event in enumerate(block.events):
        if event.extra is not None:
            _reject(block, at, name, tidy_extra, bad)
    if bad:
        block.events = [event for at, event in enumerate(block.events) if at not in bad]
        block.lines = [line for at, line in enumerate(block.lines) if at not in bad]


def _reject(block: Block, at: int, name: str, check: Callable[[Event], None], bad: set[int]) -> None:
    if at in bad:
        return
    try:
        check(block.events[at])
    except BadRecordError as broken:
        bad.add(at)
        block.bad.append(Damage(name, block.lines[at], str(broken)))


def _cut(block: Block, lines: Lines, name: str) -> None:
    """The stream broke inside the last line of this block: one damage, whatever is left of that line."""
    number = lines.first + len(lines.lines) - 1
    assert lines.cut is not None
    partial = any(damage.line == number for damage in block.bad)
    if partial:
        block.bad = [damage for damage in block.bad if damage.line != number]
        block.bad.append(Damage(name, number, lines.cut))
    else:
        block.damage.append(Damage(name, number, lines.cut))
