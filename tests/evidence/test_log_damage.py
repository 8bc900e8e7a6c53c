# ruff: noqa: E501 - log lines keep their length
"""Every log format behind every prefix of a transport, coloured, boxed, and wrapped inside a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from divtrace.evidence.logs.scan import ScanResult
from evidence.log_rows import read
from evidence.test_log_formats import DESYNC, GLOO, WATCHDOG
from evidence.test_log_formats_of_engines import DEEPEP, HCCL, SGLANG
from evidence.test_log_formats_of_failures import FAILURES, PYSPY, RAS_MISMATCH, SCHEDULED, VLLM
from evidence.test_nccl_info import created, issued

TABLES = {
    "watchdog": WATCHDOG,
    "gloo": GLOO,
    "hccl": HCCL,
    "deepep": DEEPEP,
    "sglang": SGLANG,
    "vllm": VLLM,
    "scheduled": SCHEDULED,
    "failures": FAILURES,
}
TEXTS: dict[str, str] = {
    f"{name}: {case}": rows[0] for name, table in TABLES.items() for case, rows in table.items()
} | {
    "desync": DESYNC.format(at=41, late="7", done=38, next=39),
    "py-spy": PYSPY.format(p="", pid=231811),
    "RAS": RAS_MISMATCH.format("", 665, 664),
    "NCCL INFO": created(1, 2) + issued(1, 31, 2),
}
DAMAGE: dict[str, Callable[[str], str]] = {
    "docker": "sglang-1  | {}".format,
    "kubernetes": "2026-03-24T12:06:11.850202858+08:00 stderr F {}".format,
    "pod": "[pod/wide-ep-prefill-0/vllm] {}".format,
    "ray": "\x1b[36m(RayWorkerWrapper pid=4009)\x1b[0m {}".format,
    "colour": "\x1b[31m{}\x1b[0m".format,
    "carriage return": "{}\r".format,
    "box": "│ {} │".format,
}


def told(result: ScanResult) -> list[tuple[object, ...]]:
    """What a log tells, without what prefixes add to it."""
    operations = [(o.format, o.group_rank, o.number, o.op, o.numel_in, o.state, o.comm) for o in result.operations]
    facts = [(f.format, f.kind, f.group_rank, f.group_ranks, f.number, str(f.details)) for f in result.facts]
    return [*operations, *facts]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("case", TEXTS)
def test_prefixes_change_nothing(tmp_path: Path, case: str, damage: str) -> None:
    text = TEXTS[case]
    whole = read(tmp_path, text)
    lines = [DAMAGE[damage](line) if line else line for line in text.split("\n")]
    damaged = read(tmp_path, "\n".join(lines))
    assert told(damaged) == told(whole)
    assert damaged.not_understood == whole.not_understood


WRAPPED = {
    case: text
    for case, text in TEXTS.items()
    if case.split(":")[0] in ("watchdog", "gloo", "hccl", "deepep", "NCCL INFO")
}


def ranks_of(result: ScanResult) -> set[tuple[int | None, int | None]]:
    return {(o.rank, o.group_rank) for o in result.operations} | {(f.rank, f.group_rank) for f in result.facts}


@pytest.mark.parametrize("case", WRAPPED)
def test_a_wrapped_line_tells_the_same_or_less(tmp_path: Path, case: str) -> None:
    """Also where it is wrapped in front of the words it is found by: no number is cut, no other rank comes out."""
    text = WRAPPED[case]
    whole = read(tmp_path, text)
    ranks = ranks_of(whole)
    ranks |= {(None, group) for _, group in ranks} | {(rank, None) for rank, _ in ranks} | {(None, None)}
    numbers = {(o.number, o.last_enqueued, o.last_completed, o.numel_in, o.numel_out) for o in whole.operations}
    peers = {fact.group_ranks for fact in whole.facts} | {()}
    lines = text.split("\n")
    for place, line in enumerate(lines):
        for cut in range(40, len(line) - 2, 5):
            wrapped = [*lines[:place], line[:cut], line[cut:], *lines[place + 1 :]]
            found = read(tmp_path, "\n".join(wrapped))
            at = (place, cut, line[cut - 20 : cut + 20])
            assert ranks_of(found) <= ranks, at
            assert {
                (o.number, o.last_enqueued, o.last_completed, o.numel_in, o.numel_out) for o in found.operations
            } <= numbers, at
            assert {fact.group_ranks for fact in found.facts} <= peers, at


def test_a_line_does_not_take_what_the_next_one_says(tmp_path: Path) -> None:
    """A line that is almost a timeout stands in front of a real one."""
    real = "[/w/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 7000ms for recv operation to complete"
    result = read(tmp_path, f"[rank1]: gloo said: Timed out waiting for Godot\n{real}\n")
    assert [(fact.rank, fact.place.line) for fact in result.facts] == [(None, 2)]
    assert result.not_understood == {"gloo": 1}


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("deepep", "Warning: DeepEP timeout for barrier, rank 3, dst_rank 1\n2\n"),
        ("nccl-watchdog", "[PG 1 Rank 1] Timeout at NCCL work: 4, last enqueued NCCL work: 5, last completed NCCL work: 3\n1.\n"),
    ],
)  # fmt: skip
def test_half_a_number_is_no_number(tmp_path: Path, family: str, text: str) -> None:
    result = read(tmp_path, text)
    assert (result.facts, result.operations, result.not_understood) == ([], [], {family: 1})
