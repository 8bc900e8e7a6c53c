"""Damaged lines: whatever happens to a log, reading it ends, and no rank comes out that does not stand in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divtrace.evidence.analyse import analyse_evidence
from divtrace.evidence.facts import Fact, Operation
from divtrace.evidence.logs.scan import scan
from evidence.test_log_formats import BODY, DESYNC, GLOO, PREFIXES, WATCHDOG
from evidence.test_log_formats_of_engines import DEEPEP, HCCL, SGLANG
from evidence.test_log_formats_of_failures import FAILURES, PYSPY, RAS_MISMATCH, SCHEDULED, VLLM
from evidence.test_nccl_info import created, issued

SAMPLES = [
    *(
        case[0]
        for table in (WATCHDOG, GLOO, HCCL, DEEPEP, SGLANG, VLLM, SCHEDULED, FAILURES)
        for case in table.values()
    ),
    *(case[0] for case in PREFIXES.values()),
    BODY,
    DESYNC.format(at=41, late="7", done=38, next=39),
    PYSPY.format(p="", pid=231811),
    RAS_MISMATCH.format("", 665, 664),
    created(1, 2) + issued(1, 31, 2) + issued(0, 30, 2),
]
STATED = re.compile(r"(?:\[rank|RankID:|\brank=|\[\d+,|-|\brank\s*: )(\d+)")
COMPUTED = frozenset({"deepep", "nccl-desync", "nccl-ras"})
"""Formats whose ranks follow from two numbers, a mask or a range."""


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = "".join(draw(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["cut", "drop", "put", "wrap", "twice", "digits"]))
        if kind == "cut":
            text = text[:at]
        elif kind == "drop":
            text = text[:at] + text[at + length :]
        elif kind == "put":
            text = text[:at] + draw(st.text(max_size=6)) + text[at:]
        elif kind == "wrap":
            text = text[:at] + "\n" + text[at:]
        elif kind == "twice":
            text = text[:at] + text[max(at - length, 0) :]
        else:
            text = text[:at] + "9" * length + text[at:]
    return text


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(damaged())
def test_no_crash_and_no_invented_rank(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    result = scan(path, "log")
    # What a reader may have put together: the text as it stands, and with wrapped lines joined.
    whole = text + "\n" + re.sub(r"[\r\n]+", "", text)
    stated = {int(number) for number in STATED.findall(whole) if len(number) < 8}
    numbers = {int(number[-7:]) for number in re.findall(r"\d+", whole)} | {
        int(number) for number in re.findall(r"\d{1,18}", whole)
    }
    rows: list[Operation | Fact] = [*result.operations, *result.facts]
    for row in rows:
        assert row.rank is None or row.rank in stated
        assert row.group_rank is None or row.group_rank in numbers or row.format in COMPUTED
    for fact in result.facts:
        assert not fact.ranks, "only the members of a group make global ranks"
        assert set(fact.group_ranks) <= numbers or fact.format in COMPUTED


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(damaged(), damaged())
def test_conclusions_name_only_ranks_of_the_logs(tmp_path: Path, first: str, second: str) -> None:
    files = {}
    for name, text in (("a.log", first), ("rank3.err", second)):
        files[name] = tmp_path / name
        files[name].write_text(text, encoding="utf-8", errors="surrogatepass")
    report = analyse_evidence(files)
    assert analyse_evidence(dict(reversed(files.items()))) == report
    rows: list[Operation | Fact] = [*report.facts, *report.log_operations]
    named = {3} | {row.rank for row in rows if row.rank is not None}
    for fact in report.facts:
        # An index inside a group is a global rank only up to one that is known to be its own index.
        certain = max((f.rank for f in report.facts if f.rank is not None and f.rank == f.group_rank), default=-1)
        assert all(rank <= max(certain, max(named)) for rank in fact.ranks)
    assert set(report.behind) <= named | {rank for fact in report.facts for rank in fact.ranks}


@pytest.mark.parametrize(
    "text", ["\x00", "\ufeff", "│" * 5000, "[" * 9000 + BODY, "(" * 9000, "[rank" * 4000 + "1]: " + BODY]
)
def test_prefixes_without_an_end(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    assert scan(path, "log").lines <= 1
