"""The files of one conversion while they are written: unfinished ones first, which get their names together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from divtrace.convert.table import Wider
from divtrace.convert.writer import RankWriter
from divtrace.errors import UsageError
from divtrace.events import Event, Meta
from divtrace.trace.discover import readable
from divtrace.trace.index import indexed, write_index
from divtrace.trace.model import Damage, RankId
from divtrace.trace.provenance import Provenance

Row = tuple[Event, str, int, bool]
"""A record, its file and line, and whether that is a row of a Parquet file."""
_MOST_WIDENINGS = 64


@dataclass(slots=True)
class Conversion:
    """What was written."""

    files: list[Path] = field(default_factory=list)
    records: int = 0
    damage: list[Damage] = field(default_factory=list)
    """What was bad in the input; it is written down in the files too."""


class Writing:
    """The files of one conversion while they are written."""

    def __init__(self, folder: Path) -> None:
        """Write to a folder, which is made when the first rank is."""
        self._folder = folder
        self._done: list[tuple[Path, Path]] = []
        self._known: list[Damage] = []
        self._records = 0
        self._told: list[tuple[RankId, int, list[Meta]]] = []
        """Of every file its rank, first `seq` and metas."""
        self._requests: dict[str, list[int]] = {}
        """The files that hold each request, by their numbers."""

    def rank(
        self,
        rank: RankId,
        rows: Callable[[], Iterable[Row]],
        finish: Callable[[], tuple[list[Meta], Provenance]],
        *,
        is_sorted: bool,
        several_worlds: bool,
    ) -> None:
        """Write one rank; `rows` is called again if a column turns out too narrow, `finish` behind the last row."""
        name = f"world{rank[0]}-rank{rank[1]}" if several_worlds else f"rank{rank[1]}"
        target = self._folder / f"{name}.parquet"
        if target.exists():
            raise UsageError(f"{readable(str(target))} is there already", hint="convert into another folder")
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{name}.{os.getpid()}.partial"
        widths: dict[str, int] = {}
        self._done.append((unfinished, target))
        for _ in range(_MOST_WIDENINGS):
            writer = RankWriter(unfinished, rank, widths, is_sorted=is_sorted)
            files: set[str] = set()
            count = 0
            try:
                for event, file, line, is_row in rows():
                    writer.add(event, file, line)
                    count += 1
                    if is_row:
                        files.add(file)
                metas, provenance = finish()
                provenance.row_files = sorted(files)
                writer.finish(metas, provenance)
            except Wider as wider:
                writer.abandon()
                widths[wider.name] = widths.get(wider.name, 0) + 1
                continue
            except BaseException:
                writer.abandon()
                raise
            self._records += count
            for req in writer.requests:
                self._requests.setdefault(req, []).append(len(self._told))
            self._told.append((rank, provenance.first_seq, metas))
            return
        raise AssertionError("no column is wide enough")

    def note(self, damage: Iterable[Damage]) -> None:
        """Remember what was bad."""
        self._known += damage

    def discard(self) -> None:
        """Remove what was written so far."""
        for unfinished, _ in self._done:
            with suppress(OSError):
                unfinished.unlink()
        self._done, self._known, self._records, self._told, self._requests = [], [], 0, [], {}

    def publish(self, *, with_index: bool) -> Conversion:
        """Give the files their names, and put an index beside them.

        The index comes first: an error leaves no file under its name, and an index of other files says nothing.
        """
        if with_index:
            known = [
                indexed(unfinished, target.name, *told)
                for (unfinished, target), told in zip(self._done, self._told, strict=True)
            ]
            write_index(self._folder, known, self._requests)
        for unfinished, target in self._done:
            unfinished.rename(target)
        files = [target for _, target in self._done]
        damage = sorted(self._known, key=lambda one: (one.file, one.line or 0, one.what))
        self._done = []
        return Conversion(files, self._records, damage)
