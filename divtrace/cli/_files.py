"""Writing answers: a file is replaced whole or left as it was; standard output is flushed or the failure is said."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import Any

from divtrace.errors import UsageError

STDOUT = "-"


def document(answer: Any) -> bytes:
    """An answer as a JSON document that a terminal can show, in UTF-8 and indented, with a line break at the end."""
    import msgspec

    from divtrace.output.escape import json_text

    return encoded(json_text(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()) + "\n")


def is_stdout(name: str | None) -> bool:
    """Whether an answer with this file name goes to standard output."""
    return name is None or name == STDOUT


def write_answer(name: str | None, content: str | bytes) -> None:
    """Write to the file of this name, or to standard output if there is none or it is `-`."""
    if name is None or name == STDOUT:
        write_stdout(content)
    else:
        write_file(name, encoded(content))


def encoded(content: str | bytes) -> bytes:
    """Text as UTF-8; what UTF-8 cannot hold, such as bytes of a file name, as escapes."""
    return content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content


def check_writable(name: str) -> None:
    """Refuse a file that cannot be written, before the work is done rather than after it.

    Raises:
        UsageError: the name is a folder's, or its folder does not exist or takes no new file.
    """
    if name == STDOUT:
        return
    file = Path(os.path.realpath(name))
    if file.is_dir():
        raise UsageError(f"cannot write {name}: it is a folder", hint="name a file in it")
    if not file.parent.is_dir():
        raise UsageError(f"cannot write {name}: there is no folder {file.parent}", hint="make the folder first")
    if not os.access(file.parent if _is_replaceable(file) else file, os.W_OK):
        raise UsageError(f"cannot write {name}: permission denied")


def write_file(name: str, content: bytes) -> None:
    """Put `content` into the file of this name.

    It goes to a new file beside it first, which then takes its place: a reader sees the old content or the new, never a
    part. A link is followed; a device or a pipe is written as it is.

    Raises:
        UsageError: the file cannot be written.
    """
    target = Path(os.path.realpath(name))
    try:
        if not _is_replaceable(target):
            target.write_bytes(content)
            return
        # Only here: it loads hash functions.
        import secrets

        temporary = target.with_name(f".divtrace-{secrets.token_hex(4)}.tmp")
        try:
            temporary.write_bytes(content)
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write {name}: {error.strerror}") from error


def append_file(name: str, content: str | bytes) -> None:
    """Append `content` to the file of this name; raises UsageError if that fails."""
    try:
        with Path(name).open("ab") as file:
            file.write(encoded(content))
    except OSError as error:
        raise UsageError(f"cannot append to {name}: {error.strerror}") from error


def write_stdout(content: str | bytes) -> None:
    """Write to standard output: text in the terminal's encoding, bytes as they are.

    Raises:
        UsageError: standard output is closed or takes no more.
        BrokenPipeError: whoever read it went away.
    """
    if sys.stdout is None:
        raise UsageError("standard output is closed", hint="write to a file with -o FILE")
    try:
        if isinstance(content, str):
            sys.stdout.write(content)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write to standard output: {error.strerror}") from error


def _is_replaceable(file: Path) -> bool:
    """Whether the name is free or a regular file's; replacing a device such as /dev/null would destroy it."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        return True
