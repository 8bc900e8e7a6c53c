"""The progress bar, on standard error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column
from rich.text import Text

from divtrace.errors import UsageError

PATIENCE = 0.5
"""Seconds without a bar: what is done by then needs none."""
PAUSE = 0.1
"""Seconds between two looks at the bar."""


class EventSpeedColumn(ProgressColumn):
    """Events a second, from bytes a second and the bytes that an event takes in this input."""

    def __init__(self, bytes_per_event: float | None) -> None:
        """None leaves the column empty."""
        super().__init__(table_column=Column(no_wrap=True))
        self._bytes_per_event = bytes_per_event

    def render(self, task: Task) -> Text:
        """Such as "about 180,000 events/s"; empty while the speed is unknown."""
        speed = task.finished_speed or task.speed
        if speed is None or self._bytes_per_event is None:
            return Text()
        return Text(f"about {round_down(speed / self._bytes_per_event):,} events/s", style="progress.data.speed")


def round_down(number: float) -> int:
    """To two digits that count: more would promise what an estimate does not hold."""
    whole = int(number)
    unit: int = 10 ** max(0, len(str(whole)) - 2)
    return whole // unit * unit


class Bar:
    """A bar of bytes read, which appears after `PATIENCE` and leaves nothing behind."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        """Start the clock; draw nothing. `paths` is the input, from which the number of events is estimated."""
        self._paths = paths
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._due = time.monotonic() + PATIENCE

    def __enter__(self) -> Bar:
        """Begin."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are read; called as often as is convenient."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + PAUSE
        if self._bar is None:
            self._bar = Progress(
                TextColumn("reading"),
                BarColumn(bar_width=None),
                DownloadColumn(),
                TransferSpeedColumn(),
                EventSpeedColumn(_bytes_per_event(self._paths)),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=Console(stderr=True),
                transient=True,
                expand=True,
            )
            self._task = self._bar.add_task("reading", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)


def _bytes_per_event(paths: Sequence[str]) -> float | None:
    from divtrace.trace.density import bytes_per_event
    from divtrace.trace.discover import discover

    try:
        return bytes_per_event(discover(paths).sources)
    except UsageError:
        return None  # the command itself says what is wrong with the paths
