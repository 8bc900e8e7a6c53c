"""Running commands in turn and comparing what they took."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Command = Sequence[str]
LIMIT = 600.0
"""Seconds after which a command is given up."""


@dataclass(frozen=True)
class Sample:
    """One run of one command."""

    cpu: float
    """Seconds, user and system, of the process and its children."""
    wall: float
    """Seconds."""
    peak: float
    """MiB of resident memory, of the largest of its processes."""
    status: int
    said: str
    """The last line of its output."""


@dataclass(frozen=True)
class Runs:
    """All runs of several commands, which took turns."""

    samples: Mapping[str, list[Sample]]

    def median(self, name: str, what: str = "cpu") -> float:
        """The median of one figure of a command."""
        return float(statistics.median(getattr(one, what) for one in self.samples[name]))

    def ratio(self, name: str, other: str, what: str = "cpu") -> float:
        """The median of the ratios of `name` to `other`, each of runs that followed each other."""
        pairs = zip(self.samples[name], self.samples[other], strict=True)
        return float(statistics.median(getattr(one, what) / getattr(two, what) for one, two in pairs))


class CommandError(Exception):
    """A command ended with a status that it should not have."""


def once(command: Command, limit: float = LIMIT) -> Sample:
    """Run a command to its end; raises CommandError if that takes over `limit` seconds, or if it cannot be started."""
    reading, writing = os.pipe()
    launch = [sys.executable, "-S", str(Path(__file__).with_name("launch.py")), str(writing), *command]
    with subprocess.Popen(
        launch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[writing], start_new_session=True
    ) as child:
        os.close(writing)
        alarm = threading.Timer(limit, os.killpg, (child.pid, signal.SIGKILL))
        alarm.start()
        said = b"" if child.stdout is None else child.stdout.read()
        status = child.wait()
        alarm.cancel()
    with os.fdopen(reading, "rb") as result:
        took = result.read()
    if status == -signal.SIGKILL:
        raise CommandError(f"took over {limit:.0f} s")
    lines = said.decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else ""
    if not took:
        raise CommandError(f"cannot be started: {last}")
    return Sample(**json.loads(took), said=last)


def in_turn(
    commands: Mapping[str, Command],
    runs: int,
    *,
    allowed: Mapping[str, Sequence[int]] | None = None,
    limit: float = LIMIT,
) -> Runs:
    """Run all commands one after another, `runs` times, so that what disturbs the machine disturbs them alike.

    Raises:
        CommandError: a command took too long, or ended with a status other than 0, or those `allowed` for it.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            try:
                sample = once(command, limit)
            except CommandError as error:
                raise CommandError(f"{name} {error}") from None
            if sample.status not in (allowed or {}).get(name, (0,)):
                raise CommandError(f"{name}: exit status {sample.status}: {sample.said[:300]}")
            samples[name].append(sample)
    return Runs(samples)
