"""The figures: what is measured, against what, and what was aimed at."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from inputs import DIVTRACE, Inputs
from measure import Command, CommandError, Runs, in_turn
from peers import compare

ROOT = Path(__file__).parent.parent
FIXTURE = ROOT / "fixtures" / "verify-near-tie"
REQUEST = "g0-req-00000"
"""A request without a finding in every trace but the forked ones."""
DIVERGED = (0, 1, 3)


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    value: float | None
    """None if it was not measured; `detail` says why."""
    unit: str = ""
    target: float | None = None
    below: bool = False
    """Whether the target itself is too much."""
    detail: str = ""
    runs: int = 0
    """How often its commands ran; 0 for as often as was asked for."""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or a value."""
        if self.value is None or self.target is None:
            return None
        return self.value < self.target if self.below else self.value <= self.target


@dataclass
class Measuring:
    """What a section needs."""

    inputs: Inputs
    runs: int
    limit: float

    def turns(self, commands: dict[str, Command], runs: int | None = None) -> Runs:
        """Run commands in turn; divergence is no failure."""
        return in_turn(commands, runs or self.runs, allowed=dict.fromkeys(commands, DIVERGED), limit=self.limit)


def analyze(folder: Path, jobs: int = 1) -> Command:
    """The command that is measured."""
    return [DIVTRACE, "analyze", str(folder), "--format", "json", "--jobs", str(jobs)]


def _seconds(runs: Runs, *names: str) -> str:
    return ", ".join(f"{name} {runs.median(name):.2f} s" for name in names)


def _events(rounds: int) -> str:
    return f"{rounds * 3096 / 1e6:.2g} M events"


def _contest(
    measuring: Measuring, folder: Path, what: str, targets: dict[str, tuple[float | None, bool]]
) -> list[Figure]:
    runs = compare(analyze(folder), folder, list(targets), measuring.runs)
    return [
        Figure(
            f"{what}: CPU / {name}",
            runs.ratio("command", name),
            "",
            target,
            below,
            f"{_seconds(runs, 'command', name)}; peak {runs.median('command', 'peak'):.0f} MiB, "
            f"{runs.median(name, 'peak'):.0f} MiB",
        )
        for name, (target, below) in targets.items()
    ]


def jsonl(measuring: Measuring) -> Iterator[Figure]:
    """JSON Lines against all contenders."""
    what = f"JSON Lines, {_events(measuring.inputs.sizes.usual)}, clean"
    targets = {"decode": (2.0, False), "duckdb": (1.0, True), "script": (None, False), "polars": (None, False)}
    yield from _contest(measuring, measuring.inputs.clean(), what, targets)


def parquet(measuring: Measuring) -> Iterator[Figure]:
    """Parquet of another library against the contenders that read it."""
    what = f"Parquet, {_events(measuring.inputs.sizes.parquet)}, clean"
    targets: dict[str, tuple[float | None, bool]] = {
        "decode": (1.6, False),
        "duckdb": (None, False),
        "polars": (None, False),
    }
    yield from _contest(measuring, measuring.inputs.parquet(), what, targets)


def converted(measuring: Measuring) -> Iterator[Figure]:
    """The same after `divtrace convert`."""
    what = f"converted Parquet, {_events(measuring.inputs.sizes.parquet)}, clean"
    folder = measuring.inputs.converted(measuring.inputs.parquet())
    if folder is None:
        yield Figure(what, None, detail="this version has no `divtrace convert`")
        return
    targets: dict[str, tuple[float | None, bool]] = {
        "decode": (1.6, False),
        "duckdb": (1.0, True),
        "polars": (None, False),
    }
    yield from _contest(measuring, folder, what, targets)


def divergence(measuring: Measuring) -> Iterator[Figure]:
    """One divergence in the middle against none."""
    inputs = measuring.inputs
    runs = measuring.turns({"clean": analyze(inputs.clean()), "divergence": analyze(inputs.fault())})
    ratio = runs.ratio("divergence", "clean")
    yield Figure("one divergence in the middle: CPU / clean", ratio, "", 1.5, False, _seconds(runs, *runs.samples))


def fork_one(measuring: Measuring) -> Iterator[Figure]:
    """One request of each group stays forked."""
    inputs = measuring.inputs
    runs = measuring.turns({"clean": analyze(inputs.clean()), "forked": analyze(inputs.fork_one())})
    what = "one request of each group forked from the middle on: CPU / clean"
    yield Figure(what, runs.ratio("forked", "clean"), "", 3.0, False, _seconds(runs, *runs.samples))


def forked(measuring: Measuring) -> Iterator[Figure]:
    """All requests stay forked."""
    inputs = measuring.inputs
    for form, clean, apart in (
        ("JSON Lines", inputs.clean(), inputs.forked()),
        ("Parquet", inputs.parquet(), inputs.parquet_forked()),
    ):
        what = f"all requests forked from the middle on, {form}: CPU / clean"
        try:
            runs = measuring.turns({"clean": analyze(clean), "forked": analyze(apart)})
        except CommandError as error:
            yield Figure(what, None, "", 3.0, detail=str(error))
            continue
        detail = f"{_seconds(runs, *runs.samples)}; peak {runs.median('forked', 'peak'):.0f} MiB"
        yield Figure(what, runs.ratio("forked", "clean"), "", 3.0, False, detail)


def packed(measuring: Measuring) -> Iterator[Figure]:
    """Compressed JSON Lines against plain ones."""
    inputs = measuring.inputs
    commands = {"plain": analyze(inputs.clean())}
    commands |= {how: analyze(inputs.packed(how)) for how in ("gzip", "zstd")}
    runs = measuring.turns(commands)
    for how in ("gzip", "zstd"):
        yield Figure(f"{how}: CPU / plain", runs.ratio(how, "plain"), detail=_seconds(runs, "plain", how))


def wall(measuring: Measuring) -> Iterator[Figure]:
    """Two workers against one."""
    long = measuring.inputs.long()
    folder, rounds = long or measuring.inputs.clean(), measuring.inputs.sizes.long or measuring.inputs.sizes.usual
    count = min(measuring.runs, 3) if long else measuring.runs
    runs = measuring.turns({"1": analyze(folder), "2": analyze(folder, 2)}, count)
    one, two = runs.median("1", "wall"), runs.median("2", "wall")
    what = f"{_events(rounds)}: wall, --jobs 2 / --jobs 1"
    yield Figure(what, runs.ratio("2", "1", "wall"), "", 0.6, False, f"{two:.2f} s, {one:.2f} s", count)


def same(measuring: Measuring) -> Iterator[Figure]:
    """The report for several numbers of workers."""
    inputs = measuring.inputs
    different = 0
    for folder in (inputs.clean(), inputs.fault()):
        reports = {subprocess.run(analyze(folder, jobs), capture_output=True, check=False).stdout for jobs in (1, 2, 8)}
        different += len(reports) - 1
    yield Figure("reports that differ between 1, 2 and 8 jobs", different, "", 0, False, "clean and diverged trace", 1)


def memory(measuring: Measuring) -> Iterator[Figure]:
    """Peak memory, and how it grows with the trace."""
    inputs = measuring.inputs
    runs = measuring.turns({"usual": analyze(inputs.clean())}, 3)
    usual = runs.median("usual", "peak")
    yield Figure(f"peak memory, {_events(inputs.sizes.usual)}", usual, "MiB", 572, True, runs=3)
    what = "peak memory, 12 M events / 1.2 M events"
    long = inputs.long()
    if long is None:
        yield Figure(what, None, "", 1.25, detail="needs --full")
        return
    most = measuring.turns({"long": analyze(long)}, 1).median("long", "peak")
    yield Figure(f"peak memory, {_events(inputs.sizes.long or 0)}", most, "MiB", 572, True, runs=1)
    yield Figure(what, most / usual, "", 1.25, False, f"{most:.0f} MiB, {usual:.0f} MiB", 1)


def unsorted(measuring: Measuring) -> Iterator[Figure]:
    """Records in no order."""
    inputs = measuring.inputs
    runs = measuring.turns({"sorted": analyze(inputs.clean()), "unsorted": analyze(inputs.unsorted())}, 1)
    what = f"records in no order, {_events(inputs.sizes.usual)}"
    yield Figure(f"{what}: peak memory", runs.median("unsorted", "peak"), "MiB", 572, True, runs=1)
    ratio = runs.ratio("unsorted", "sorted")
    yield Figure(f"{what}: CPU / in order", ratio, detail=_seconds(runs, *runs.samples), runs=1)


def request(measuring: Measuring) -> Iterator[Figure]:
    """One request in JSON Lines against grep."""
    for folder, what in (
        (measuring.inputs.clean(), "without a finding"),
        (measuring.inputs.fault(), "in a run with one"),
    ):
        traces = sorted(str(path) for path in folder.glob("*.jsonl"))
        runs = measuring.turns(
            {
                "first-divergence": [DIVTRACE, "first-divergence", "--req", REQUEST, str(folder), "--jobs", "1"],
                "grep": ["env", "LC_ALL=C", "grep", "-c", "-F", REQUEST, *traces],
                "--version": [DIVTRACE, "--version"],
            }
        )
        one, grep, version = (runs.median(name) for name in runs.samples)
        target = 3.0 if folder == measuring.inputs.clean() else None
        label = f"one request {what}: (CPU - --version) / grep"
        yield Figure(label, (one - version) / grep, "", target, False, _seconds(runs, *runs.samples))


def request_parquet(measuring: Measuring) -> Iterator[Figure]:
    """One request in sorted Parquet against the imports."""
    inputs = measuring.inputs
    source = inputs.long() or inputs.parquet()
    rounds = inputs.sizes.long or inputs.sizes.parquet
    what = f"one request, converted Parquet of {_events(rounds)}: CPU / imports"
    folder = inputs.converted(source)
    if folder is None:
        yield Figure(what, None, "", 3.0, detail="this version has no `divtrace convert`")
        return
    imports = [sys.executable, "-c", "import typer, pyarrow.parquet"]
    first = [DIVTRACE, "first-divergence", "--req", REQUEST, str(folder), "--jobs", "1"]
    runs = measuring.turns({"first-divergence": first, "imports": imports})
    yield Figure(what, runs.ratio("first-divergence", "imports"), "", 3.0, False, _seconds(runs, *runs.samples))


def startup(measuring: Measuring) -> Iterator[Figure]:
    """What every call costs."""
    commands: dict[str, Command] = {
        "--help": [DIVTRACE, "--help"],
        "--version": [DIVTRACE, "--version"],
        "typer": [sys.executable, "-c", "import typer"],
        "fixture": [DIVTRACE, "analyze", str(FIXTURE)],
        "polars": [sys.executable, "-c", "import polars"],
    }
    runs = measuring.turns(commands, max(measuring.runs, 7))
    for name in ("--help", "--version"):
        detail = _seconds(runs, name, "typer")
        yield Figure(f"divtrace {name}: CPU / import typer", runs.ratio(name, "typer"), "", 1.5, False, detail)
    detail = f"{_seconds(runs, 'fixture', 'polars')}; wall ratio {runs.ratio('fixture', 'polars', 'wall'):.2f}"
    yield Figure("small fixture: CPU / import polars", runs.ratio("fixture", "polars"), "", 3.0, True, detail)


SECTIONS: dict[str, Callable[[Measuring], Iterator[Figure]]] = {
    "jsonl": jsonl,
    "parquet": parquet,
    "converted": converted,
    "divergence": divergence,
    "fork-one": fork_one,
    "forked": forked,
    "wall": wall,
    "same": same,
    "memory": memory,
    "unsorted": unsorted,
    "packed": packed,
    "request": request,
    "request-parquet": request_parquet,
    "startup": startup,
}


def measured(name: str, measuring: Measuring) -> list[Figure]:
    """The figures of one section; what cannot be measured is a figure without a value."""
    figures: list[Figure] = []
    try:
        figures.extend(SECTIONS[name](measuring))
    except (CommandError, subprocess.CalledProcessError) as error:
        what = (SECTIONS[name].__doc__ or name).rstrip(".")
        figures.append(Figure(what, None, detail=str(error)))
    return figures
