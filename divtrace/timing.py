"""Where the time of a command goes: stages note their cost for whoever collects it, and for nobody otherwise.

Costs are shown to people and never enter a report, which stays the same whatever the machine does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Cost:
    """What one stage took, or one part of it that may have run in another process."""

    wall: int = 0
    """Nanoseconds passed."""
    cpu: int = 0
    """Nanoseconds of processor time, user and system, of the process that ran it."""
    events: int = 0
    """Events taken in; 0 where that is no measure of the work."""
    peak: int = 0
    """Bytes: the most resident memory that its process had held by the end of it; 0 if unknown."""
    process: int = 0
    """Id of the process that ran it."""

    def add(self, other: Cost) -> None:
        """Add a later run of the same stage."""
        self.wall += other.wall
        self.cpu += other.cpu
        self.events += other.events
        self.peak = max(self.peak, other.peak)


class Clock:
    """Measures from its creation on, in this process."""

    __slots__ = ("_cpu", "_wall")

    def __init__(self) -> None:
        """Start."""
        self._wall, self._cpu = time.perf_counter_ns(), time.process_time_ns()

    def cost(self, events: int = 0) -> Cost:
        """The cost so far."""
        wall, cpu = time.perf_counter_ns() - self._wall, time.process_time_ns() - self._cpu
        return Cost(wall, cpu, events, peak_memory(), os.getpid())


@dataclass(slots=True)
class Stage:
    """One stage of the work, added up over its runs; `events` is for the code inside the stage to set."""

    name: str
    events: int = 0
    cost: Cost = field(default_factory=Cost)
    parts: dict[str, Cost] = field(default_factory=dict)

    def part(self, name: str, cost: Cost) -> None:
        """Note a part, whose processor time counts for the stage if another process spent it."""
        self.parts[name] = cost
        self.events += cost.events
        if cost.process != os.getpid():
            self.cost.cpu += cost.cpu


@dataclass(slots=True)
class Profile:
    """All stages in the order in which they first ran, and the clock that began before the first of them."""

    clock: Clock = field(default_factory=Clock)
    stages: dict[str, Stage] = field(default_factory=dict)


_collected: ContextVar[Profile | None] = ContextVar("divtrace_profile", default=None)


@contextmanager
def collecting() -> Iterator[Profile]:
    """Collect the costs of all stages that run inside."""
    profile = Profile()
    token = _collected.set(profile)
    try:
        yield profile
    finally:
        _collected.reset(token)


@contextmanager
def stage(name: str) -> Iterator[Stage]:
    """Run a stage: its cost is noted, also if it fails, provided that somebody collects. Stages do not nest."""
    profile = _collected.get()
    if profile is None:
        yield Stage(name)
        return
    one = profile.stages.setdefault(name, Stage(name))
    one.events = 0
    clock = Clock()
    try:
        yield one
    finally:
        one.cost.add(clock.cost(one.events))


def peak_memory() -> int:
    """Bytes: the most resident memory that this process has held; 0 if the system does not tell.

    Linux counts what a process inherited in `ru_maxrss`, so its own high-water mark is preferred.
    """
    try:
        with Path("/proc/self/status").open(encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    try:
        import resource
        import sys
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
