"""The traces that the measurements read: written once into a work folder and used again by later runs."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gen_trace import Plan, generate

DIVTRACE = str(Path(sys.executable).with_name("divtrace"))
"""The command of the environment that runs the benchmark."""


@dataclass(frozen=True)
class Sizes:
    """Rounds of the traces; a round of 8 ranks with 64 requests each is 3,096 events."""

    usual: int
    parquet: int
    long: int | None
    """Of the long trace; None leaves out what needs it."""


FULL = Sizes(400, 2000, 3900)
USUAL = Sizes(400, 2000, None)
QUICK = Sizes(60, 120, None)


class Inputs:
    """The folders of all traces, made when they are asked for first."""

    def __init__(self, work: Path, sizes: Sizes) -> None:
        self.work, self.sizes = work, sizes

    def clean(self) -> Path:
        """Ranks that agree, as JSON Lines."""
        return self._made(f"clean-{self.sizes.usual}", Plan(rounds=self.sizes.usual))

    def fault(self) -> Path:
        """One token differs in the middle."""
        rounds = self.sizes.usual
        return self._made(f"fault-{rounds}", Plan(rounds=rounds, fault_round=rounds // 2))

    def forked(self) -> Path:
        """One rank of every group goes its own way from the middle on, in all of its requests."""
        rounds = self.sizes.usual
        return self._made(f"forked-{rounds}", Plan(rounds=rounds, fork_round=rounds // 2))

    def fork_one(self) -> Path:
        """One rank of every group goes its own way from the middle on, in one of its requests."""
        rounds = self.sizes.usual
        return self._made(f"fork-one-{rounds}", Plan(rounds=rounds, fork_round=rounds // 2, fork_requests=1))

    def unsorted(self) -> Path:
        """The clean trace with its records in no order."""
        return self._made(f"unsorted-{self.sizes.usual}", Plan(rounds=self.sizes.usual), unsorted=True)

    def packed(self, compression: str) -> Path:
        """The clean trace as gzip or zstd."""
        name = f"{compression}-{self.sizes.usual}"
        return self._made(name, Plan(rounds=self.sizes.usual), compression=compression)

    def parquet(self) -> Path:
        """A longer clean trace, as Parquet that another library wrote."""
        return self._made(f"parquet-{self.sizes.parquet}", Plan(rounds=self.sizes.parquet), parquet=True)

    def parquet_forked(self) -> Path:
        """The same with a rank of every group going its own way from the middle on, in all of its requests."""
        rounds = self.sizes.parquet
        return self._made(f"parquet-forked-{rounds}", Plan(rounds=rounds, fork_round=rounds // 2), parquet=True)

    def long(self) -> Path | None:
        """Ten times the clean trace, if asked for."""
        if self.sizes.long is None:
            return None
        return self._made(f"long-{self.sizes.long}", Plan(rounds=self.sizes.long))

    def converted(self, source: Path) -> Path | None:
        """What `divtrace convert` makes of a trace; None while there is no such command."""
        if not converts():
            return None
        folder = self.work / f"{source.name}-converted"
        if not folder.exists():
            fresh = folder.with_suffix(".part")
            subprocess.run([DIVTRACE, "convert", str(source), str(fresh), "--no-progress"], check=True)
            fresh.rename(folder)
        return folder

    def _made(self, name: str, plan: Plan, **how: Any) -> Path:
        folder = self.work / name
        if not folder.exists():
            print(f"writing {folder}", file=sys.stderr)
            fresh = folder.with_suffix(".part")
            # In a process of its own: what is measured later would inherit the peak of this one's memory.
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                process.submit(generate, fresh, plan, **how).result()
            fresh.rename(folder)
        return folder


def converts() -> bool:
    """Whether this version of divtrace has the command `convert`."""
    return subprocess.run([DIVTRACE, "convert", "--help"], capture_output=True, check=False).returncode == 0
