"""Traces in object storage, through the file systems of pyarrow: `s3://bucket/key`, `gs://bucket/key`.

Credentials, region and endpoint are what pyarrow takes from the environment and from the options behind a `?`. Keys
stand as they are, not percent-encoded. Nothing here runs for paths of this machine.
"""

from __future__ import annotations

import functools
import io
import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from divtrace.errors import UsageError
from divtrace.trace.discover import INDEX_NAME, Discovery, Source, is_trace_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

_AHEAD = 4 << 20
"""Bytes asked for at once: a request costs tens of milliseconds, whatever it brings."""
_OPTIONS = re.compile(r"\?((?:[a-z_]+=[^?]*)?)\Z")
_REQUEST_ID = re.compile(r"\s*\(Request ID: [^)]*\)")
"""Differs with every request, and would make two reports of one input differ."""


class Location(msgspec.Struct, frozen=True):
    """An object or a prefix of keys."""

    scheme: str
    authority: str
    """The bucket, maybe behind credentials and `@`."""
    key: str
    """Without a slash at either end; empty for the whole bucket."""
    options: str
    """For pyarrow, such as `region=eu-west-1&endpoint_override=host:9000`."""

    @property
    def bucket(self) -> str:
        """The bucket alone."""
        return self.authority.rpartition("@")[2]

    @property
    def path(self) -> str:
        """As pyarrow's file system calls it."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket

    @property
    def name(self) -> str:
        """As people may see it: without credentials and options."""
        return f"{self.scheme}://{self.path}"

    @property
    def uri(self) -> str:
        """All of it, in the form that `located` takes."""
        end = f"?{self.options}" if self.options or "?" in self.key else ""
        return f"{self.scheme}://{self.authority}/{self.key}{end}"


def located(uri: str) -> Location:
    """The parts of an address."""
    scheme, _, rest = uri.partition("://")
    options = _OPTIONS.search(rest)
    if options is not None:
        rest = rest[: options.start()]
    authority, _, key = rest.partition("/")
    return Location(scheme.lower(), authority, key.strip("/"), options.group(1) if options is not None else "")


def find(arguments: Sequence[str], found: Discovery, *, alone: bool) -> None:
    """Add the traces at some addresses to what was found.

    Args:
        arguments: addresses of objects, which are always taken, and of prefixes, below which the name decides.
        found: takes the traces, and counts the other objects.
        alone: nothing else is read; then names are relative to what the addresses share.

    Raises:
        UsageError: there is nothing at an address, or it cannot be reached.
    """
    traces: dict[Location, int] = {}
    ignored: set[Location] = set()
    folders: list[Location] = []
    for argument in sorted({located(argument) for argument in arguments}, key=lambda one: one.uri):
        try:
            folders.append(_look(argument, traces, ignored))
        except OSError as error:
            raise UsageError(f"{argument.name}: {why(error)}", hint="check the address and the credentials") from error
    common = None
    if alone and len({(folder.scheme, folder.bucket) for folder in folders}) == 1:
        common = posixpath.commonpath([folder.key for folder in folders])
    for location, size in traces.items():
        name = location.name if common is None else location.key[len(common) + bool(common) :]
        found.sources.append(Source(location.uri, name, size))
    found.sources.sort(key=lambda source: (source.name, source.path))
    found.ignored_files += len(ignored - traces.keys())


def _look(argument: Location, traces: dict[Location, int], ignored: set[Location]) -> Location:
    """Take in what is at an address; returns the folder that it is, or is in."""
    from pyarrow.fs import FileSelector, FileType

    system = _file_system(argument)
    info = system.get_file_info(argument.path)
    if info.type == FileType.File:
        traces[argument] = info.size
        return msgspec.structs.replace(argument, key=posixpath.dirname(argument.key))
    if info.type == FileType.NotFound:
        raise FileNotFoundError(2, "there is no such object, and none below it")
    for entry in system.get_file_info(FileSelector(argument.path, recursive=True)):
        if entry.type != FileType.File:
            continue
        location = msgspec.structs.replace(argument, key=entry.path.partition("/")[2])
        if is_trace_name(location.key):
            traces[location] = entry.size
        elif posixpath.basename(location.key) != INDEX_NAME:
            ignored.add(location)
    return argument


def open_object(path: str) -> BinaryIO:
    """An object as a file that is read from front to back.

    Raises:
        OSError: it is not there or cannot be read; its `strerror` says why, also when reading fails later.
    """
    return cast(BinaryIO, io.BufferedReader(_Object(open_random(path)), _AHEAD))


def open_random(path: str) -> pa.NativeFile:
    """An object as a file of pyarrow, for Parquet; raises OSError as `open_object`."""
    location = located(path)
    try:
        return _file_system(location).open_input_file(location.path)
    except OSError as error:
        raise OSError(error.errno or 5, why(error)) from error


def why(error: OSError) -> str:
    """What went wrong, in one line, the same for the same cause."""
    if isinstance(error, FileNotFoundError):
        return "there is no such object, and none below it"
    text = error.strerror or next(iter(str(error).splitlines()), type(error).__name__)
    return _REQUEST_ID.sub("", text)[:300]


def _file_system(location: Location) -> FileSystem:
    return _made(location.scheme, location.authority, location.options)


@functools.lru_cache(maxsize=64)
def _made(scheme: str, authority: str, options: str) -> FileSystem:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(f"{scheme}://{authority}" + (f"?{options}" if options else ""))[0]
    except (pa.ArrowException, ValueError) as error:
        raise OSError(22, why(OSError(str(error)))) from error


class _Object(io.RawIOBase):
    """A file of pyarrow whose errors say what happened where Python expects it."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._file.read(len(buffer))
        except OSError as error:
            raise OSError(error.errno or 5, why(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
