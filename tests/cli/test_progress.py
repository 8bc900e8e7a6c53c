"""What the progress bar says, and that it moves."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from cli import traces
from divtrace.api import Options, analyze
from divtrace.cli._progress import EventSpeedColumn, round_down
from divtrace.trace.density import bytes_per_event
from divtrace.trace.discover import discover


@pytest.mark.parametrize(
    ("number", "rounded"), [(0.5, 0), (7.9, 7), (99, 99), (101, 100), (1234.5, 1200), (187_654, 180_000)]
)
def test_an_estimate_shows_two_digits(number: float, rounded: int) -> None:
    assert round_down(number) == rounded


def test_events_a_second_follow_from_bytes_a_second() -> None:
    clock = itertools.count()
    progress = Progress(get_time=lambda: float(next(clock)))
    progress.add_task("reading", total=10**6)
    (task,) = progress.tasks
    column = EventSpeedColumn(200)

    assert column.render(task).plain == ""
    for _ in range(3):
        progress.update(task.id, advance=100_000)
    assert column.render(task).plain == "about 500 events/s"
    assert EventSpeedColumn(None).render(task).plain == ""


def sources_of(folder: Path) -> float | None:
    return bytes_per_event(discover([folder]).sources)


def test_the_bytes_of_an_event_are_those_on_the_disk(tmp_path: Path) -> None:
    line = b'{"rank":0,"stage":"host"}' + b" " * 74 + b"\n"
    (tmp_path / "rank0.jsonl").write_bytes(line * 10_000)
    assert sources_of(tmp_path) == pytest.approx(100, rel=0.01)

    packed = gzip.compress(line * 10_000)
    (tmp_path / "rank0.jsonl").write_bytes(packed)
    assert sources_of(tmp_path) == len(packed) / 10_000


def test_a_long_compressed_file_is_judged_by_its_beginning(tmp_path: Path) -> None:
    numbers = random.Random(0)
    lines = b"".join(b'{"stage":"host","seq":%d}\n' % numbers.randrange(10**18) for _ in range(60_000))
    packed = gzip.compress(lines, 1)
    (tmp_path / "rank0.jsonl.gz").write_bytes(packed)

    assert len(packed) > 512 << 10
    assert sources_of(tmp_path) == pytest.approx(len(packed) / 60_000, rel=0.05)


def test_parquet_knows_its_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "rank0.parquet"
    pq.write_table(pa.table({"stage": ["host"] * 500}), path)

    assert sources_of(tmp_path) == path.stat().st_size / 500


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more", b"\x1f\x8b\x08", b"no line break"])
def test_a_file_that_tells_nothing_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rank0.jsonl").write_bytes(content)

    assert sources_of(tmp_path) is None


def as_recorded(event: dict[str, Any]) -> bytes:
    """The line that the recorder would write."""
    head = {name: event[name] for name in ("rank", "seq", "ts")}
    return json.dumps({**head, **event}, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("packed", [False, True])
def test_the_sieve_tells_how_far_it_is_while_the_ranks_agree(tmp_path: Path, packed: bool) -> None:
    for rank in range(2):
        content = b"".join(as_recorded(event) for event in traces.events(rank, rounds=3000))
        path = tmp_path / f"rank{rank}.jsonl"
        path.write_bytes(gzip.compress(content, 1) if packed else content)
    told: list[tuple[int, int]] = []

    analyze(tmp_path, Options(sieve_from=0), progress=lambda done, total: told.append((done, total)))

    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert {entry[1] for entry in told} == {total}
    done = [entry[0] for entry in told]
    assert done == sorted(done)
    assert packed or len(set(done)) > 5
    assert done[-1] == total
