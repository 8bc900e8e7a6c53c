"""The progress bar, on standard error."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

PATIENCE = 0.5
"""Seconds without a bar: what is done by then needs none."""
PAUSE = 0.1
"""Seconds between two looks at the bar."""


class Bar:
    """A bar of bytes read, which appears after `PATIENCE` and leaves nothing behind."""

    def __init__(self) -> None:
        """Start the clock; draw nothing."""
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
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("reading", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)
