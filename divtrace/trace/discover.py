"""Which files of the input are traces, and under which names the report calls them."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from divtrace.errors import UsageError
from divtrace.trace.model import Damage

_TRACE_NAME = re.compile(r"\.(jsonl|ndjson|parquet)(\.gz|\.zst)?$", re.IGNORECASE)
INDEX_NAME = ".divtrace-index"
"""What `divtrace convert` puts beside its files; neither a trace nor a file that is ignored."""
_RANK_IN_NAME = re.compile(r"rank[_-]?([0-9]{1,9})", re.IGNORECASE)


class Source(msgspec.Struct, frozen=True):
    """One trace file, before it is read."""

    path: str
    """For the operating system; may hold bytes that are not UTF-8, as surrogates. Or an address in object storage."""
    name: str
    """For the report: relative to the input, `/` between folders, valid Unicode."""
    size: int | None
    """Bytes it had when the input was looked over; None for a pipe, which is read to its end."""

    def open(self) -> BinaryIO:
        """The file, to be read from front to back; raises OSError."""
        if is_remote(self.path):
            from divtrace.trace.remote import open_object

            return open_object(self.path)
        return open(self.path, "rb")  # noqa: PTH123 - the path may hold surrogates

    @property
    def rank(self) -> int | None:
        """The rank that the file's own name gives as `rank<N>`; None if it gives none, or several."""
        found = {int(digits) for digits in _RANK_IN_NAME.findall(self.name.rpartition("/")[2])}
        return found.pop() if len(found) == 1 else None


class Discovery(msgspec.Struct):
    """The trace files of an input, sorted by name."""

    sources: list[Source] = msgspec.field(default_factory=list)
    ignored_files: int = 0
    damage: list[Damage] = msgspec.field(default_factory=list)
    others: dict[str, Path] = msgspec.field(default_factory=dict)
    """Regular files that are no traces by their name, by the name for the report: what may be evidence."""


class _Walk(msgspec.Struct):
    """Paths found so far; what a path is called can be told only when all arguments are known."""

    traces: list[str] = msgspec.field(default_factory=list)
    ignored: list[str] = msgspec.field(default_factory=list)
    failed: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """(path, what is wrong) of directories that cannot be listed and files that cannot be looked at."""
    linked: list[str] = msgspec.field(default_factory=list)
    """Directories behind symbolic links, visited last so that real names win."""
    visited: set[tuple[int, int]] = msgspec.field(default_factory=set)
    """(device, inode) of every directory visited: links may form loops."""

    def directory(self, path: str) -> None:
        """Take in one directory and all below it."""
        pending = [path]
        while pending:
            folder = pending.pop()
            try:
                status = os.stat(folder)  # noqa: PTH116 - bytes that are no UTF-8 must survive
                if (status.st_dev, status.st_ino) in self.visited:
                    continue
                self.visited.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                self.failed.append((folder, f"the folder cannot be listed: {reason(error)}"))
                continue
            pending.extend(entry.path for entry in reversed(entries) if self._entry(entry))

    def _entry(self, entry: os.DirEntry[str]) -> bool:
        """Take in one entry of a directory; True if it is a directory to go into now."""
        is_trace = _TRACE_NAME.search(entry.name) is not None
        try:
            if entry.is_dir(follow_symlinks=False):
                return True
            if entry.is_dir():
                self.linked.append(entry.path)
            elif entry.name == INDEX_NAME:
                return False
            elif is_trace and stat.S_ISREG(entry.stat().st_mode):
                self.traces.append(entry.path)
            else:
                self.ignored.append(entry.path)
        except OSError as error:
            if is_trace:
                self.failed.append((entry.path, f"the file cannot be read: {reason(error)}"))
            else:
                self.ignored.append(entry.path)
        return False


def is_trace_name(name: str) -> bool:
    """Whether a file in a folder is taken for a trace."""
    return _TRACE_NAME.search(name) is not None


def is_remote(path: str) -> bool:
    """Whether a path is an address in object storage."""
    return path.startswith(("s3://", "gs://", "gcs://"))


def reason(error: OSError) -> str:
    """What the operating system says, without the path, which stands beside it anyway."""
    return error.strerror or type(error).__name__


def discover(paths: Sequence[str | os.PathLike[str]]) -> Discovery:
    """Find the trace files in `paths`, files and directories in any order, also addresses such as `s3://bucket/key`.

    A file is taken once, however many ways lead to it. Files named themselves are always taken; in directories the
    name decides. What cannot be listed or looked at is damage, not a failure.

    Raises:
        UsageError: a path does not exist, or none is given.
    """
    if not paths:
        raise UsageError("no trace was given", hint="name the folder that holds the trace of every rank")
    given = [os.fspath(path) for path in paths]
    remote = [path for path in given if is_remote(path)]
    if remote:
        from divtrace.trace.remote import find

        local = [path for path in given if not is_remote(path)]
        found = discover(local) if local else Discovery()
        find(remote, found, alone=not local)
        return found
    arguments = sorted({os.path.abspath(path) for path in given})  # noqa: PTH100 - keeps surrogates
    walk = _Walk()
    folders = []
    for argument in arguments:
        try:
            mode = os.stat(argument).st_mode  # noqa: PTH116
        except OSError as error:
            raise UsageError(f"{readable(argument)}: {reason(error)}", hint="check the path") from error
        if stat.S_ISDIR(mode):
            folders.append(argument)
            walk.directory(argument)
        else:
            folders.append(os.path.dirname(argument))  # noqa: PTH120
            walk.traces.append(argument)
    while walk.linked:
        linked, walk.linked = sorted(walk.linked), []
        for folder in linked:
            walk.directory(folder)
    return _named(walk, os.path.commonpath(folders))


def _named(walk: _Walk, common: str) -> Discovery:
    found = Discovery()
    real: dict[str, tuple[bool, str]] = {}
    for path in walk.traces:
        target = os.path.realpath(path)
        candidate = (Path(path).is_symlink(), path)
        real[target] = min(real.get(target, candidate), candidate)
    for _, path in real.values():
        name = _relative(path, common)
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            found.damage.append(Damage(name, None, f"the file cannot be read: {reason(error)}"))
            continue
        if not os.access(path, os.R_OK):
            found.damage.append(Damage(name, None, f"the file cannot be read: {os.strerror(errno.EACCES)}"))
            continue
        found.sources.append(Source(path, name, status.st_size if stat.S_ISREG(status.st_mode) else None))
    found.sources.sort(key=lambda source: (source.name, source.path))
    taken = set(real)
    others: dict[str, str] = {}
    for path in walk.ignored:
        target = os.path.realpath(path)
        if target not in taken:
            others[target] = min(others.get(target, path), path)
    found.ignored_files = len(others)
    # Opening a pipe would wait for its writer.
    regular = sorted(path for target, path in others.items() if os.path.isfile(target))  # noqa: PTH113
    found.others = {_relative(path, common): Path(path) for path in regular}
    found.damage += [Damage(_relative(path, common), None, what) for path, what in walk.failed]
    return found


def _relative(path: str, common: str) -> str:
    """`path` as the report calls it: the shortest form that is the same for every argument."""
    below = path[len(common.rstrip("/")) + 1 :]
    return readable(below) or "."


def readable(path: str) -> str:
    r"""A path as valid Unicode: bytes that are no UTF-8 become `\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
