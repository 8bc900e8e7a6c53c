"""Reports with and without the sieve, and runs in which one rank recorded something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from simulator.recorder import Record
from simulator.run import Run, simulate
from simulator.scenarios import scenario

import divtrace.sieve.run
from divtrace.api import Options, analyze
from divtrace.report.model import encode
from divtrace.sieve.columnar import lockstep
from divtrace.sieve.cursor import NotSievableError

IDENTITY = ("seq", "rank", "world", "stage", "phase", "step", "req", "round", "attempt", "n")


def loaded(folder: Path) -> bytes:
    """The report on traces that are loaded as a whole."""
    return encode(analyze(folder, Options(sieve_from=1 << 60)))


def sieved(folder: Path) -> bytes:
    """The report on traces that pass through the sieve; fails if they cannot."""
    with no_way_around():
        return encode(analyze(folder, Options(sieve_from=0, jobs=1)))


@contextmanager
def no_way_around() -> Iterator[None]:
    """Turns the wish to load everything into a failure."""
    real: Callable[..., Any] = divtrace.sieve.run.sieve

    def strict(*arguments: Any) -> Any:
        try:
            return real(*arguments)
        except NotSievableError as error:
            pytest.fail(f"not sieved: {error}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divtrace.sieve.run, "sieve", strict)
        patch.setattr(lockstep, "_LEAST", 1)
        yield


def changed(place: tuple[str, str], seed: int) -> Run:
    """A run in which one rank, or all of them, recorded one value otherwise."""
    run = simulate(scenario(*place))
    rng = Random(seed)
    rank = rng.choice(list(run.ranks))
    index = rng.randrange(len(run.records[rank]))
    record = run.records[rank][index]
    names = [name for name in record if name not in IDENTITY and name not in ("ts", "extra", "comm", "comm_seq")]
    if not names:
        return run
    name = rng.choice(names)
    for other in [rank] if rng.random() < 0.7 else list(run.ranks):
        if index < len(run.records[other]) and name in run.records[other][index]:
            _change(run.records[other][index], name, rng)
    return run


def _change(record: Record, name: str, rng: Random) -> None:
    value = record[name]
    if rng.random() < 0.15:
        del record[name]
    elif isinstance(value, bool):
        record[name] = not value
    elif isinstance(value, int):
        record[name] = value + rng.choice([-1, 1, 5])
    elif isinstance(value, str):
        record[name] = value + "x"
    elif isinstance(value, list) and value:
        items = list(value)
        at = rng.randrange(len(items))
        items[at] = items[at] + 1 if isinstance(items[at], int) else f"{items[at]}x"
        record[name] = items
