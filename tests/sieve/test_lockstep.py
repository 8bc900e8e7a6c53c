"""The sieve of JSON Lines: whatever it lets pass, the report is the one of a full load, byte for byte."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from faults import KINDS, FaultKind
from faults.checking import inject
from simulator import write_run
from simulator.files import Form
from simulator.run import simulate
from simulator.scenarios import scenario

from divtrace import Options, analyze
from divtrace.errors import DivtraceError
from divtrace.report.model import encode
from divtrace.sieve import pool

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOADED = Options(sieve_from=1 << 60)
SIEVED = Options(sieve_from=0, jobs=1)


def report(folder: Path, options: Options) -> bytes:
    try:
        return encode(analyze(folder, options))
    except DivtraceError as error:
        return str(error).encode()


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_fixtures_pass_as_they_are_loaded(name: str) -> None:
    assert report(FIXTURES / name, SIEVED) == report(FIXTURES / name, LOADED)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_faults_are_found_as_by_loading(kind: FaultKind, tmp_path: Path) -> None:
    place = kind.places[len(kind.name) % len(kind.places)]
    folder = write_run(inject(kind, place, seed=7).run, tmp_path / "trace", "jsonl")

    assert report(folder, SIEVED) == report(folder, LOADED)


@pytest.mark.parametrize("jobs", [2, 8])
def test_number_of_processes_changes_nothing(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SMALLEST", 0)
    kind = next(kind for kind in KINDS if any(place[0] == "tp2-dp2" for place in kind.places))
    place = next(place for place in kind.places if place[0] == "tp2-dp2")
    folder = write_run(inject(kind, place, seed=3).run, tmp_path / "trace", "jsonl")

    assert report(folder, Options(sieve_from=0, jobs=jobs)) == report(folder, SIEVED)


def test_large_input_takes_the_sieve_and_holds_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests would pass as well if everything were loaded."""
    kind = next(kind for kind in KINDS if kind.name == "commit-arithmetic")
    folder = write_run(inject(kind, kind.places[0], seed=7).run, tmp_path / "trace", "jsonl")
    monkeypatch.setattr("divtrace.api.read", _refuse)
    assert analyze(folder, SIEVED).first is not None


@pytest.mark.parametrize("ends_after", [4, 8, 16])
def test_a_step_far_ahead_of_the_rest_is_judged_as_by_loading(ends_after: int, tmp_path: Path) -> None:
    """A step of 2**63 on one rank, and a peer that ends soon after: the two reports once disagreed."""
    kind = next(kind for kind in KINDS if any(place[0] == "tp2-dp2" for place in kind.places))
    place = next(place for place in kind.places if place[0] == "tp2-dp2")
    folder = write_run(inject(kind, place, seed=3).run, tmp_path / "trace", "jsonl")
    peer, ahead = folder / "rank0.jsonl", folder / "rank1.jsonl"
    lines = ahead.read_text().splitlines(keepends=True)
    at = [at for at, line in enumerate(lines) if '"stage":"verify","site":"target"' in line][-1]
    lines[at] = re.sub(r'"step":\d+', f'"step":{1 << 63}', lines[at])
    ahead.write_text("".join(lines))
    peer.write_text("".join(peer.read_text().splitlines(keepends=True)[: at + ends_after]))

    assert report(folder, SIEVED) == report(folder, LOADED)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("shift", [-3, 2, 3, 4])
@pytest.mark.parametrize("index", [71, 84, 89, 99])
def test_a_record_of_another_step_is_judged_as_by_loading(index: int, shift: int, form: Form, tmp_path: Path) -> None:
    run = simulate(scenario("tp3")).copy()
    run.records[0][index]["step"] += shift
    folder = write_run(run, tmp_path, form)

    assert report(folder, SIEVED) == report(folder, LOADED)


def test_small_files_of_many_events_take_the_sieve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file holds many times the events of a plain one of its size."""
    folder = write_run(simulate(scenario()), tmp_path / "trace", "jsonl")
    for path in sorted(folder.glob("*.jsonl")):
        path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    size = sum(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setattr("divtrace.api.read", _refuse)

    assert analyze(folder, Options(sieve_from=2 * size, jobs=1)).verdict == "clean"
    with pytest.raises(AssertionError, match="as a whole"):
        analyze(folder, Options(sieve_from=100 * size, jobs=1))


def _refuse(*_arguments: object, **_more: object) -> None:
    raise AssertionError("the input was loaded as a whole")
