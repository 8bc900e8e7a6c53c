"""The files of one recorder: named, rotated, capped, compressed, and never written over."""

from __future__ import annotations

import errno
import os
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    import threading
    from collections.abc import Callable

    from divtrace.record.settings import Settings

_MOST_PARTS = 1_000_000
_RING_SEGMENTS = 4
_GROWTH = 1 << 20
_HIDDEN = ".new"


class RecordingStopped(Exception):  # noqa: N818 (a state, not a fault)
    """The directory takes no more: full, removed, read-only. Never leaves the writer."""


class Part:
    """One open file, written with `os.write`: what is in it survives the death of the process.

    It gets its name with its first event: who is killed before that leaves no file for the reader to complain about.
    `another_name` gives a name in place of one that somebody else has taken in the meantime.
    """

    _flags = os.O_WRONLY

    def __init__(self, path: str, another_name: Callable[[], str] | None = None) -> None:
        self.path = path
        self.size = 0
        self.rounds = 0
        self._another_name = another_name
        self._hidden: str | None = path + _HIDDEN
        self._file = os.open(self._hidden, self._flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def room(self) -> int | None:
        """Bytes that still fit; None for no limit of its own."""
        return None

    @property
    def hidden(self) -> bool:
        """Whether it has no event yet."""
        return self._hidden is not None

    def begin(self, meta: bytes) -> None:
        """Appends what stands in front of the first event."""
        self._append(meta)

    def write(self, data: bytes) -> None:
        """Appends whole lines. If the disk is full, the lines that were cut are taken back."""
        before = self.size
        try:
            self._append(data)
        finally:
            # The lines that a full disk has taken are worth a name too.
            if self._hidden is not None and self.size > before:
                self._show()

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        done = 0
        try:
            while done < len(view):
                done += os.write(self._file, view[done:])
        except OSError:
            self._take_back(data, done)
            raise
        self.size += done

    def _take_back(self, data: bytes, done: int) -> None:
        whole = data.rfind(b"\n", 0, done) + 1
        try:
            os.ftruncate(self._file, self.size + whole)
            self.size += whole
        except OSError:
            self.size += done

    def _show(self) -> None:
        hidden, self._hidden = self._hidden, None
        assert hidden is not None
        while True:
            try:
                os.link(hidden, self.path)
            except FileExistsError:
                if self._another_name is None:
                    raise
                self.path = self._another_name()
            except OSError:
                # A file system without hard links. The name was free a moment ago.
                os.rename(hidden, self.path)
                return
            else:
                os.unlink(hidden)
                return

    def removed(self) -> bool:
        """Whether the file has no name any more, so that nobody could read what is written."""
        return os.fstat(self._file).st_nlink == 0

    def content(self) -> bytes:
        """What was written so far."""
        with open(self.path, "rb") as file:
            return file.read(self.size)

    def close(self) -> None:
        """Closes the file; twice is harmless. One without an event goes."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._hidden is not None:
            os.unlink(self._hidden)
            self._hidden = None

    def abandon(self) -> None:
        """Lets go of the file in a forked child, without a change to what is the parent's."""
        self._hidden = None
        self.close()


class MappedPart(Part):
    """One segment of the ring: a memory-mapped file that grows up to a limit, filled up with line breaks.

    Line breaks are written to the file before they are mapped: a full disk must be an error here, and not a SIGBUS in
    the engine, and whoever is killed leaves nothing else behind the last event. The reader takes them for blank lines.
    """

    _flags = os.O_RDWR

    def __init__(self, path: str, limit: int, another_name: Callable[[], str] | None = None) -> None:
        super().__init__(path, another_name)
        self._limit = limit
        self._capacity = 0
        self._map: mmap.mmap | None = None
        try:
            self._grow(1)
        except OSError:
            self.close()
            raise

    def _grow(self, least: int) -> None:
        """Makes room for so many bytes at least."""
        import mmap

        capacity = min(-(-least // _GROWTH) * _GROWTH, self._limit)
        try:
            while (start := os.fstat(self._file).st_size) < capacity:
                os.pwrite(self._file, b"\n" * min(_GROWTH, capacity - start), start)
            # Where blocks are found only when pages are written back.
            os.posix_fallocate(self._file, 0, capacity)
        except OSError:
            os.ftruncate(self._file, self._capacity)
            raise
        if self._map is None:
            self._map = mmap.mmap(self._file, capacity)
        else:
            self._map.resize(capacity)
        self._capacity = capacity

    def room(self) -> int | None:
        """Bytes that still fit."""
        return self._limit - self.size

    def _append(self, data: bytes) -> None:
        end = self.size + len(data)
        if self._map is None or end > self._limit:
            raise OSError(errno.ENOSPC, "the ring segment is full", self.path)
        if end > self._capacity:
            self._grow(end)
        self._map[self.size : end] = data
        self.size = end

    def content(self) -> bytes:
        """What was written so far."""
        return b"" if self._map is None else self._map[: self.size]

    def close(self) -> None:
        """Unmaps the file and cuts it to what was written."""
        if self._map is not None:
            self._map.close()
            self._map = None
            os.ftruncate(self._file, self.size)
        super().close()

    def abandon(self) -> None:
        """Lets go of the mapping as well."""
        if self._map is not None:
            self._map.close()
            self._map = None
        super().abandon()


class Parts:
    """The files of one recorder, oldest first. One thread at a time."""

    def __init__(self, directory: str, stem: str, settings: Settings) -> None:
        self._directory = directory
        self._stem = stem
        self._settings = settings
        self._number = 0
        self._closed: list[Part] = []
        self._dumps = 0
        self._compressor: threading.Thread | None = None
        self.current: Part | None = None

    @property
    def ring(self) -> bool:
        """Whether the files are a memory-mapped ring."""
        return self._settings.ring_rounds > 0

    def _free_name(self, ending: str) -> str:
        """A name that no part has, compressed or not: process ids come back, in containers they are always the same."""
        while self._number < _MOST_PARTS:
            base = os.path.join(self._directory, f"{self._stem}-part{self._number:04d}")
            self._number += 1
            if not any(os.path.exists(base + taken) for taken in (".jsonl", ".jsonl.gz", ".jsonl.zst")):
                return base + ending
        raise RecordingStopped(f"no free file name for {self._stem} in {self._directory}")

    def open(self) -> Part:
        """Starts the next file; its first line is the caller's to write.

        Raises:
            RecordingStopped: the directory takes no file.
        """
        try:
            os.makedirs(self._directory, exist_ok=True)
            while True:
                path = self._free_name(".jsonl")
                try:
                    another = partial(self._free_name, ".jsonl")
                    if self.ring:
                        self.current = MappedPart(path, self._settings.file_bytes, another)
                    else:
                        self.current = Part(path, another)
                    return self.current
                except FileExistsError:
                    continue
        except OSError as error:
            raise RecordingStopped(f"cannot write to {self._directory}: {error.strerror or error}") from error

    def is_full(self, coming: int) -> bool:
        """Whether the current file has to be closed before so many bytes more."""
        part = self.current
        if part is None:
            return True
        if part.size == 0:
            return False
        limit = self._settings.file_bytes
        if self.ring and part.rounds * _RING_SEGMENTS > self._settings.ring_rounds:
            return True
        return part.size + coming > limit

    def finish_current(self, *, compress: bool = True) -> None:
        """Closes the current file, compresses it in a thread of its own, and removes the oldest beyond the cap."""
        part = self.current
        if part is None:
            return
        self.current = None
        part.close()
        self._closed.append(part)
        self._drop_oldest()
        if compress and not self.ring and self._settings.compression != "off":
            self._compress(part)

    def _drop_oldest(self) -> None:
        limit = self._settings.total_bytes - self._settings.file_bytes
        while self._closed and (sum(_size(part) for part in self._closed) > limit or self._ring_has_enough()):
            oldest = self._closed.pop(0)
            for ending in ("", ".gz", ".zst"):
                try:
                    os.unlink(oldest.path + ending)
                except OSError:
                    continue

    def _ring_has_enough(self) -> bool:
        kept = sum(part.rounds for part in self._closed[1:])
        return self.ring and kept >= self._settings.ring_rounds

    def _compress(self, part: Part) -> None:
        import threading

        from divtrace.record.compress import compress_file

        if self._compressor is not None and self._compressor.is_alive():
            # One at a time: the engine's cores are not ours. What is left over stays plain.
            return
        self._compressor = threading.Thread(
            target=compress_file,
            args=(part.path, self._settings.compression),
            name="divtrace-compress",
            daemon=True,
        )
        self._compressor.start()

    def dump(self, name: str) -> str:
        """Copies what the ring holds into a file that stays; returns its path."""
        while True:
            self._dumps += 1
            path = os.path.join(self._directory, f"{self._stem}-{name}{self._dumps:02d}.jsonl")
            try:
                target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
                break
            except FileExistsError:
                continue
        try:
            for part in [*self._closed, *([self.current] if self.current else [])]:
                try:
                    data = memoryview(part.content())
                except OSError:
                    continue
                while data:
                    data = data[os.write(target, data) :]
        finally:
            os.close(target)
        return path

    def close(self, wait_seconds: float = 5.0) -> None:
        """Closes the current file as it is, and waits a little for the compression."""
        self.finish_current(compress=False)
        if self._compressor is not None:
            self._compressor.join(wait_seconds)

    def abandon(self) -> None:
        """In a forked child: the files are the parent's; only the descriptors are let go."""
        part = self.current
        self.current = None
        self._closed = []
        self._compressor = None
        if part is not None:
            part.abandon()


def _size(part: Part) -> int:
    for ending in (".gz", ".zst", ""):
        try:
            return os.stat(part.path + ending).st_size
        except OSError:
            continue
    return 0
