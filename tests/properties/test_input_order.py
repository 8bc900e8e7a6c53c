"""How records are spread over files, lines and formats changes nothing but where they stand."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from faults import KINDS, clean_run
from faults.checking import MODEST, inject
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator import FORMS, Form, Halt, Run, simulate, write_lines, write_parquet, write_run
from simulator.files import line
from simulator.scenarios import busy, scenario

from divtrace import analyze
from divtrace.report.model import Report

BY_NAME = {kind.name: kind for kind in KINDS}


@lru_cache(maxsize=1)
def runs() -> dict[str, Run]:
    """Clean, diverging, wedged and silent runs."""
    return {
        "clean": clean_run(busy("tp2-dp2", overlap=True)),
        "near-tie": inject(BY_NAME["near-tie"], ("tp4", "eagle")).run,
        "healed": clean_run(scenario("tp4", "ngram")),
        "abort": inject(BY_NAME["abort-reaches-some-ranks"], ("tp2-cp2-dp2", "eagle")).run,
        "crossed": inject(BY_NAME["crossed-order"], ("tp2-dp2", "eagle")).run,
        "skipped": inject(BY_NAME["skipped-layout"], ("tp2-pp2", "eagle")).run,
        "alias": inject(BY_NAME["kv-alias"], ("tp2", "eagle")).run,
        "config": inject(BY_NAME["init-config"], ("tp3", "eagle")).run,
        "silent": simulate(scenario("tp4"), Halt(lambda at: at.stage == "accept" and at.step == 104, frozenset({2}))),
    }


def plain(report: Report, places: bool = False) -> dict[str, Any]:
    """The report as data, without what may follow the files: where records stand, and how many files there were."""
    data: dict[str, Any] = msgspec.to_builtins(report)
    data["coverage"].pop("files")
    for finding in [*data["findings"], *([data["first"]] if data["first"] else [])]:
        if not places:
            finding.pop("where")
    return data


def report_on(folder: str | Path) -> dict[str, Any]:
    return plain(analyze([folder]))


@lru_cache(maxsize=16)
def reference(name: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return report_on(write_run(runs()[name], Path(folder)))


NAMES = st.sampled_from(["clean", "near-tie", "healed", "abort", "crossed", "skipped", "alias", "config", "silent"])


@pytest.mark.parametrize("name", runs())
@pytest.mark.parametrize("form", FORMS[1:])
def test_formats_give_equal_reports(name: str, form: Form) -> None:
    with TemporaryDirectory() as folder:
        assert report_on(write_run(runs()[name], Path(folder), form)) == reference(name)


@pytest.mark.parametrize("name", runs())
def test_one_parquet_file_may_hold_all_ranks(name: str) -> None:
    run = runs()[name]
    mixed = [record | {"rank": rank} for rank, record in run.events()]
    random.Random(name).shuffle(mixed)
    with TemporaryDirectory() as folder:
        write_parquet(Path(folder) / "night.parquet", list(run.metas.values()), mixed)

        assert report_on(folder) == reference(name)


@settings(MODEST, max_examples=25)
@given(name=NAMES, seed=st.integers(0, 2**16))
def test_order_of_lines_spread_and_names_of_files_do_not_matter(name: str, seed: int) -> None:
    """Rotated into several files with names that say nothing, lines in any order, some records in two files."""
    rng = random.Random(seed)
    run = runs()[name]
    with TemporaryDirectory() as folder:
        for rank in run.ranks:
            records = [record | {"rank": rank} for record in run.records[rank]]
            parts: list[list[Any]] = [[] for _ in range(rng.randrange(1, 4))]
            for record in records:
                rng.choice(parts).append(record)
            for part in parts:
                if rng.random() < 0.5:
                    rng.shuffle(part)
                path = (
                    Path(folder) / f"d{rng.randrange(3)}" / f"{rng.randrange(10**9)}.{rng.choice(['jsonl', 'ndjson'])}"
                )
                write_lines(path, [run.metas[rank], *part])

        assert report_on(folder) == reference(name)


@settings(MODEST, max_examples=20)
@given(name=NAMES, seed=st.integers(0, 2**16))
def test_order_of_paths_does_not_matter(name: str, seed: int) -> None:
    with TemporaryDirectory() as folder:
        paths = sorted(write_run(runs()[name], Path(folder)).iterdir())
        random.Random(seed).shuffle(paths)

        assert plain(analyze(paths)) == reference(name)


@settings(MODEST, max_examples=20)
@given(name=NAMES, seed=st.integers(0, 2**16))
def test_records_that_occur_twice_count_once(name: str, seed: int) -> None:
    rng = random.Random(seed)
    run = runs()[name]
    with TemporaryDirectory() as folder:
        write_run(run, Path(folder))
        rank = rng.choice(run.ranks)
        again = rng.sample(run.records[rank], 5)
        write_lines(Path(folder) / "again.jsonl", [run.metas[rank], *again])
        found = report_on(folder)

        assert found["coverage"].pop("duplicates") == 5
        assert found == reference(name) | {"coverage": without(reference(name)["coverage"], "duplicates")}


def without(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}


@pytest.mark.parametrize("name", ["near-tie", "silent"])
def test_text_around_the_records_does_not_matter(name: str) -> None:
    """A byte-order mark, Windows line ends, blank lines, and no line end behind the last record."""
    run = runs()[name]
    with TemporaryDirectory() as folder:
        for rank in run.ranks:
            lines = "\r\n\r\n".join(line(record) for record in [run.metas[rank], *run.records[rank]])
            (Path(folder) / f"rank{rank}.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())

        assert report_on(folder) == reference(name)


def test_report_names_the_lines_of_each_file() -> None:
    run = runs()["near-tie"]
    with TemporaryDirectory() as folder:
        one = plain(analyze([write_run(run, Path(folder))]), places=True)

    assert {where["file"] for where in one["first"]["where"].values()} == {f"rank{rank}.jsonl" for rank in run.ranks}
