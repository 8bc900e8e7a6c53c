"""Options arrive where they are meant to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import traces
from cli.command import Call
from divtrace.api import Options
from divtrace.cli._options import Analysis, Backend, Reading
from divtrace.errors import UsageError

GIVEN = {
    "run": "monday",
    "tp": 16,
    "dp": 8,
    "cp": 2,
    "pp": 4,
    "dp_attention": True,
    "jobs": 3,
    "strict": True,
    "ray_address": "auto",
}


def test_every_option_of_reading_reaches_the_core() -> None:
    reading = Reading(**GIVEN, backend=Backend.RAY, attn_tp_group=["0,1", "3,2"])  # type: ignore[arg-type]

    assert reading.options() == Options(**GIVEN, backend="ray", attn_tp_groups=((0, 1), (3, 2)))  # type: ignore[arg-type]


def test_nothing_given_is_what_the_core_does_by_itself() -> None:
    assert Reading().options() == Options()
    assert Analysis().options() == Options()


def test_the_limit_of_findings_reaches_the_core() -> None:
    assert Analysis(max_findings=7, tp=2).options() == Options(max_findings=7, tp=2)


def test_an_address_of_a_cluster_goes_with_the_backend(call: Call, tmp_path: Path) -> None:
    result = call("analyze", traces.clean(tmp_path), "--ray-address", "auto")

    assert result.returncode == 2
    assert result.stderr.endswith("hint: add --backend ray\n")


def test_another_backend_is_refused(call: Call, tmp_path: Path) -> None:
    result = call("check", traces.clean(tmp_path), DIVTRACE_BACKEND="dask")

    assert result.returncode == 2
    assert "'dask' is not one of 'local', 'ray'" in result.stderr


@pytest.mark.parametrize("group", ["", "a", "0,", "0,-1", "0-3"])
def test_a_group_is_a_list_of_ranks(group: str) -> None:
    with pytest.raises(UsageError, match="is not a list of ranks"):
        Reading(attn_tp_group=[group]).options()


def test_findings_beyond_the_limit_are_counted(call: Call, tmp_path: Path) -> None:
    folder = traces.write(
        tmp_path, [traces.events(0), traces.events(1, tokens={1: [11, 98, 13], 2: [11, 99, 13], 3: [11, 97, 13]})]
    )

    report = json.loads(call("analyze", folder, "-f", "json", "--max-findings", "1").stdout)
    everything = json.loads(call("analyze", folder, "-f", "json", DIVTRACE_MAX_FINDINGS="0").stdout)

    assert len(report["findings"]) == 1
    assert sum(report["findings_left_out"].values()) == len(everything["findings"]) - 1 > 0
