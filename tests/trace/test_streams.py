"""Compression is recognised by content; a broken stream keeps every whole line before the break."""

from __future__ import annotations

import gzip
import os
import random
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import event, jsonl, only, seqs, text, write, write_bytes

from divtrace.trace.compression import Bytes, StreamDamage, open_stream
from divtrace.trace.discover import discover
from divtrace.trace.jsonl import read_jsonl
from divtrace.trace.lines import TOO_LONG, split_lines
from divtrace.trace.load import load
from divtrace.trace.model import Damage


def noisy(count: int) -> bytes:
    """Lines that compress badly, so that a cut stands somewhere inside."""
    rng = random.Random(1)
    return jsonl(event(seq, note=f"{rng.randbytes(60).hex()}") for seq in range(count))


def zstd(data: bytes, *, checksum: bool = True) -> bytes:
    compressed: bytes = zstandard.ZstdCompressor(write_checksum=checksum).compress(data)
    return compressed


def skippable(size: int) -> bytes:
    return struct.pack("<II", 0x184D2A50, size) + bytes(size)


@pytest.mark.parametrize("name", ["rank0.jsonl", "rank0.ndjson", "RANK0.JSONL.GZ", "rank0.jsonl.zst", "rank0.parquet"])
@pytest.mark.parametrize("form", ["plain", "gzip", "zstd", "zstd in gzip"])
def test_content_tells_the_compression(tmp_path: Path, name: str, form: str) -> None:
    data = jsonl([event(0), event(1)])
    forms = {"plain": data, "gzip": gzip.compress(data), "zstd": zstd(data), "zstd in gzip": gzip.compress(zstd(data))}
    (tmp_path / name).write_bytes(forms[form])

    traces = load([tmp_path])

    assert (seqs(only(traces)), traces.damage, traces.files) == ([0, 1], [], (name,))


def test_all_members_and_frames_are_read(tmp_path: Path) -> None:
    first, second = jsonl([event(0), event(1)]), jsonl([event(2)])
    (tmp_path / "a-rank0.jsonl.gz").write_bytes(
        gzip.compress(first) + gzip.compress(b"") + gzip.compress(second) + bytes(512)
    )
    (tmp_path / "b-rank1.jsonl.zst").write_bytes(skippable(5) + zstd(first) + skippable(0) + zstd(second))

    traces = load([tmp_path])

    assert traces.damage == []
    assert [seqs(trace) for trace in traces.ranks.values()] == [[0, 1, 2], [0, 1, 2]]


def test_a_line_may_cross_members(tmp_path: Path) -> None:
    data = jsonl([event(0), event(1)])
    (tmp_path / "rank0.jsonl.gz").write_bytes(
        b"".join(gzip.compress(data[at : at + 7]) for at in range(0, len(data), 7))
    )

    assert seqs(only(load([tmp_path]))) == [0, 1]


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9, 0.9999])
def test_cut_gzip(tmp_path: Path, keep: float) -> None:
    data = noisy(5_000)
    whole = gzip.compress(data, mtime=0)
    (tmp_path / "rank0.jsonl.gz").write_bytes(whole[: int(len(whole) * keep)])

    traces = load([tmp_path])

    trace = only(traces)
    read = len(trace.records)
    assert seqs(trace) == list(range(read))
    assert read >= int(5_000 * keep) - 200
    cut = Damage("rank0.jsonl.gz", traces.damage[0].line, "the compressed stream ends early")
    assert traces.damage == [cut]
    assert cut.line in (read, read + 1)
    assert traces.bad_lines <= 1


def test_gzip_cut_inside_a_line_is_one_bad_line(tmp_path: Path) -> None:
    data = jsonl([event(0), event(1)])
    stored = gzip.compress(data, compresslevel=0)
    (tmp_path / "rank0.jsonl.gz").write_bytes(stored[:-20])

    traces = load([tmp_path])

    assert seqs(only(traces)) == [0]
    assert traces.damage == [Damage("rank0.jsonl.gz", 2, "the compressed stream ends early")]
    assert traces.bad_lines == 1


def test_gzip_that_lacks_only_its_trailer_keeps_all_lines(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl.gz").write_bytes(gzip.compress(jsonl([event(0), event(1)]))[:-4])

    traces = load([tmp_path])

    assert seqs(only(traces)) == [0, 1]
    assert traces.damage == [Damage("rank0.jsonl.gz", 3, "the compressed stream ends early")]
    assert traces.bad_lines == 0


def test_cut_zstd(tmp_path: Path) -> None:
    data = noisy(5_000)
    whole = zstd(data)
    (tmp_path / "rank0.jsonl.zst").write_bytes(whole[: len(whole) // 2])

    traces = load([tmp_path])

    trace = only(traces)
    read = len(trace.records)
    assert seqs(trace) == list(range(read))
    assert read > 1_500
    assert traces.damage == [Damage("rank0.jsonl.zst", read + 1, "the compressed stream ends early")]
    assert traces.bad_lines == 1


def test_zstd_cut_between_frames_is_whole_and_inside_the_second_keeps_the_first(tmp_path: Path) -> None:
    first, second = zstd(jsonl([event(0)])), zstd(jsonl([event(1)]))
    (tmp_path / "rank0.jsonl.zst").write_bytes(first)
    (tmp_path / "rank1.jsonl.zst").write_bytes(first + second[:-3])

    traces = load([tmp_path])

    assert [(one.file, one.line) for one in traces.damage] == [("rank1.jsonl.zst", 3)]
    assert [seqs(trace) for trace in traces.ranks.values()] == [[0], [0, 1]]


def test_a_wrong_checksum_is_damage_and_the_lines_stay(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(jsonl([event(0), event(1)])))
    whole[-8] ^= 1
    (tmp_path / "rank0.jsonl.gz").write_bytes(whole)

    traces = load([tmp_path])

    assert seqs(only(traces)) == [0, 1]
    assert traces.damage == [Damage("rank0.jsonl.gz", 3, "the compressed stream is damaged: incorrect data check")]


def test_garbage_inside_gzip_keeps_what_precedes_it(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(noisy(5_000)))
    middle = len(whole) // 2
    whole[middle : middle + 64] = b"\xff" * 64
    (tmp_path / "rank0.jsonl.gz").write_bytes(whole)

    traces = load([tmp_path])

    assert len(only(traces).records) > 2_000
    assert traces.damage[-1].what.startswith("the compressed stream is damaged")
    assert traces.damage[-1].file == "rank0.jsonl.gz"


def test_garbage_inside_zstd_keeps_earlier_frames(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl.zst").write_bytes(zstd(noisy(500)) + b"rubbish behind the frame")

    traces = load([tmp_path])

    assert len(only(traces).records) == 500
    assert [(one.line, one.what.partition(":")[0]) for one in traces.damage] == [
        (501, "the compressed stream is damaged")
    ]


@pytest.mark.parametrize("name", ["rank1.jsonl.gz", "rank1.jsonl.zst"])
@pytest.mark.parametrize("size", [1, 3, 9])
def test_a_few_bytes_of_a_compressed_file_cost_only_that_file(tmp_path: Path, name: str, size: int) -> None:
    write(tmp_path, "rank0.jsonl", event(0))
    path = write(tmp_path, name, event(0))
    path.write_bytes(path.read_bytes()[:size])

    traces = load([tmp_path])

    assert list(traces.ranks) == [(0, 0)]
    assert {one.file for one in traces.damage} == {name}


def test_a_hostile_stream_does_not_fill_memory(tmp_path: Path) -> None:
    bomb = zstd(bytes(300 << 20), checksum=False)
    path = write_bytes(tmp_path, "rank0.jsonl", jsonl([event(0)]))
    (tmp_path / "rank1.jsonl.zst").write_bytes(bomb + zstd(b"\n" + jsonl([event(0)])))
    tracemalloc.start()

    traces = load([path.parent])

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150 << 20
    assert [(one.file, one.line) for one in traces.damage] == [("rank1.jsonl.zst", 1)]
    assert "longer than" in traces.damage[0].what
    assert list(traces.ranks) == [(0, 0), (0, 1)]


def blocks_of(*chunks: bytes) -> Bytes:
    return Bytes(iter(chunks))


def test_lines_longer_than_the_limit_are_passed_over_wherever_they_stand() -> None:
    long = text(event(1, note="x" * 5_000))
    data = jsonl([event(0), long, event(2), long]) + long
    stream = blocks_of(*(data[at : at + 999] for at in range(0, len(data), 999)))

    read = list(read_jsonl(stream, "a.jsonl", longest=4_000))

    assert [event.seq for block in read for event in block.events] == [0, 2]
    assert [(one.line, one.what) for block in read for one in block.bad] == [
        (2, "the line is longer than 4,000 bytes"),
        (4, "the line is longer than 4,000 bytes"),
        (5, "the line is longer than 4,000 bytes"),
    ]


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=30),
    st.lists(st.integers(1, 9), min_size=1, max_size=30),
    st.booleans(),
    st.integers(1, 10),
)
def test_blocks_hold_all_lines_however_the_bytes_come(
    lines: list[bytes], sizes: list[int], ended: bool, longest: int
) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")

    def chunks() -> Iterator[bytes]:
        at = 0
        while at < len(data):
            size = sizes[at % len(sizes)]
            yield data[at : at + size]
            at += size

    expected = [line if len(line) <= longest else TOO_LONG for line in data.split(b"\n")]
    if expected[-1] == b"":
        expected.pop()
    blocks = list(split_lines(Bytes(chunks()), longest))

    assert [line for block in blocks for line in block.lines] == expected
    assert [block.first for block in blocks] == [1 + sum(len(b.lines) for b in blocks[:i]) for i in range(len(blocks))]


def test_a_stream_that_breaks_hands_out_everything_first() -> None:
    def chunks() -> Iterator[bytes]:
        yield jsonl([event(0)]) + b'{"seq"'
        raise StreamDamage("the disk is gone")

    stream = Bytes(chunks())
    assert stream.peek(1_000).endswith(b'{"seq"')

    (block,) = read_jsonl(stream, "a.jsonl")

    assert [event.seq for event in block.events] == [0]
    assert block.bad == [Damage("a.jsonl", 2, "the disk is gone")]


def test_a_growing_file_is_read_to_the_size_it_had(tmp_path: Path) -> None:
    path = write(tmp_path, "rank0.jsonl", event(0), event(1))
    (source,) = discover([tmp_path]).sources
    with path.open("ab") as file:
        file.write(jsonl([event(2)]))

    with path.open("rb") as file:
        read = b"".join(open_stream(file, source.size))

    assert read == jsonl([event(0), event(1)])


def test_a_file_that_shrinks_meanwhile_is_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path, "rank0.jsonl", event(0), event(1))
    (source,) = discover([tmp_path]).sources
    os.truncate(path, len(jsonl([event(0)])))

    with path.open("rb") as file:
        assert b"".join(open_stream(file, source.size)) == jsonl([event(0)])
