"""Flight Recorder pickles, read without executing anything.

PyTorch writes plain containers, strings and numbers. Every opcode outside that set is refused before the bytes reach
the unpickler, which in turn refuses every global and every persistent id. The opcode walk also bounds the memo index:
the C unpickler allocates a table as large as the highest index, so ten bytes could otherwise ask for 64 GB.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NoReturn


class RefusedPickleError(ValueError):
    """The bytes are no pickle of plain data, or are larger than allowed."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise RefusedPickleError(f"names the global {module_name[:60]}.{global_name[:60]}")

    def persistent_load(self, _pid: Any) -> NoReturn:
        raise RefusedPickleError("has a persistent id")


_SHORT = b"|".join(re.escape(bytes([length])) + rb"\x00\x00\x00.{%d}" % length for length in range(1, 41))
"""Strings up to 40 bytes; longer ones, which are rare, are skipped by their length."""
_RUN = re.compile(
    # Opcodes that often follow each other are taken together, the most frequent first: a dump has half a million.
    rb"""(?:
      h.(?:h.|K.|\](?:r...\x00)?+|[N\x88\x89]|\x8a\x08.{8}|M..|G.{8}|J....)?+  # BINGET (a key) and its value
    | K.(?:K.)*+[ae]?+                             # BININT1, as in a shape, and APPEND or APPENDS
    | \](?:r...\x00)?+                             # EMPTY_LIST, LONG_BINPUT below 2**24
    | [()}Naesutld\x85\x86\x87\x88\x89\x94]           # other containers, None, booleans, MEMOIZE
    | r...\x00                                     # LONG_BINPUT below 2**24
    | X(?:"""
    + _SHORT
    + rb""")(?:r...\x00)?+                         # BINUNICODE
    | M..                                          # BININT2
    | [Jj]....                                     # BININT, LONG_BINGET
    | \x8a(?:\x08.{8}|\x05.{5}|\x00|\x01.|\x02..|\x03.{3}|\x04.{4}|\x06.{6}|\x07.{7}|\x09.{9})  # LONG1
    | q.                                           # BINPUT
    | G.{8}                                        # BINFLOAT
    | \x95.{8}                                     # FRAME
    )++""",
    re.DOTALL | re.VERBOSE,
)
_LENGTH_PREFIXED = {0x58: 4, 0x54: 4, 0x42: 4, 0x8C: 1, 0x55: 1, 0x43: 1, 0x8D: 8, 0x8E: 8}
"""BINUNICODE, BINSTRING, BINBYTES, SHORT_BINUNICODE, SHORT_BINSTRING, SHORT_BINBYTES, BINUNICODE8, BINBYTES8."""
_NAMES = {
    0x63: "GLOBAL",
    0x93: "STACK_GLOBAL",
    0x52: "REDUCE",
    0x62: "BUILD",
    0x6F: "OBJ",
    0x69: "INST",
    0x81: "NEWOBJ",
}


def check_opcodes(data: bytes) -> None:
    """Raise RefusedPickleError unless `data` is one complete pickle of plain data."""
    if data[:1] != b"\x80" or len(data) < 4:
        raise RefusedPickleError("is no pickle")
    at, end = 2, len(data)
    while at < end:
        run = _RUN.match(data, at)
        if run is not None:
            at = run.end()
            if at >= end:
                break
        opcode = data[at]
        if opcode == 0x2E:
            return
        width = _LENGTH_PREFIXED.get(opcode)
        if width is None:
            if opcode == 0x72:
                raise RefusedPickleError("uses a memo index beyond the file's size")
            name = _NAMES.get(opcode, f"0x{opcode:02x}")
            raise RefusedPickleError(f"uses the opcode {name}, which plain data does not need, or is cut there")
        length = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        at += 1 + width + length
        if at > end:
            break
    raise RefusedPickleError("is cut")


def load_plain(data: bytes) -> Any:
    """The plain value that a pickle holds; it may share parts with itself, so whoever walks it counts visits.

    Raises:
        RefusedPickleError: it is cut, not a pickle, or wants anything but plain data.
    """
    check_opcodes(data)
    try:
        # Without peek the C unpickler would ask the stream for every single opcode.
        return _PlainUnpickler(io.BufferedReader(io.BytesIO(data), 1 << 17)).load()
    except RefusedPickleError:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise RefusedPickleError(f"cannot be unpickled: {error}") from None
    except (OverflowError, MemoryError, RecursionError, UnicodeError) as error:
        raise RefusedPickleError(f"cannot be unpickled: {type(error).__name__}") from None
