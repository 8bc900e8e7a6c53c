"""Dumps and logs beside traces that are too large to be loaded: the answer is that of loading them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from divtrace.api import Options, analyze
from divtrace.convert.run import convert
from divtrace.report.model import encode
from evidence.jobs import Op
from evidence.runs import GROUP, steps, write_traces
from evidence.test_evidence_and_traces import GROUP_TAG, dumps, issued, log
from evidence.test_log_analysis import watchdog

LAST = 60
"""Steps of a trace; what the evidence names is far in front of the last ones."""
Ranks = dict[int, list[dict[str, Any]]]


def bare(odd_at: int) -> Ranks:
    """Traces without sizes of collectives; tokens differ in one round."""
    ranks = {rank: [{k: v for k, v in one.items() if k != "numel"} for one in steps(LAST)] for rank in (0, 1)}
    ranks[1] = [{**one, "target_tokens": [11, 99]} if one.get("round") == odd_at else one for one in ranks[1]]
    return ranks


def mismatch(folder: Path) -> None:
    """Sizes differ at the second operation."""
    dumps(folder, {0: issued(LAST), 1: [Op(GROUP), Op(GROUP, shape=(3, 8)), *issued(LAST - 2)]})


def timeout(folder: Path) -> None:
    log(folder, watchdog(0, 0, 30, 30, GROUP_TAG))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("ranks", "evidence"),
    [
        (bare(50), mismatch),
        (bare(LAST + 1), mismatch),
        ({0: steps(LAST, last="enqueued"), 1: steps(LAST - 1)}, timeout),
        ({0: steps(LAST, last="enqueued"), 1: steps(LAST - 1, odd_at=40)}, timeout),
        ({0: steps(LAST, last="enqueued"), 1: steps(LAST - 1, odd_at=20)}, timeout),
        ({0: steps(LAST), 1: steps(LAST)}, timeout),
    ],
)
def test_evidence_is_held_against_all_collectives(
    ranks: Ranks, evidence: Callable[[Path], None], form: str, tmp_path: Path
) -> None:
    folder = write_traces(tmp_path / "in", ranks)
    if form == "parquet":
        convert([folder], tmp_path / "out")
        folder = tmp_path / "out"
    evidence(folder)

    sieved = analyze(folder, Options(sieve_from=0, jobs=1))

    assert encode(sieved) == encode(analyze(folder, Options(sieve_from=1 << 60)))
