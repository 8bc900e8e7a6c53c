"""Many large files read in several processes. The result does not depend on how many."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from divtrace.errors import DivtraceError

SMALLEST = 32 << 20
"""Bytes below which starting a process costs more than it saves."""
LOTS = 4
"""Lots of files for each process, so that none waits long for the others."""

THREADED = frozenset({"polars", "pyarrow", "numpy", "ray"})
"""Modules whose own threads the interpreter does not know of."""

Lot = list[tuple[str, Path]]
_T = TypeVar("_T")


def split(files: Sequence[tuple[str, Path]], jobs: int | None) -> list[Lot]:
    """Files in lots of about the same size, in their order; one lot if processes are not worth it."""
    workers = jobs if jobs is not None else (os.cpu_count() or 1)
    sizes = [_size(path) for _, path in files] if workers > 1 and len(files) > 1 else []
    total = sum(sizes)
    if total < SMALLEST:
        return [list(files)]
    lots: list[Lot] = [[]]
    filled = 0
    for file, size in zip(files, sizes, strict=True):
        if filled >= total / (workers * LOTS) and lots[-1]:
            lots.append([])
            filled = 0
        lots[-1].append(file)
        filled += size
    return lots


def read_parts(read: Callable[[Lot], _T], lots: Sequence[Lot], jobs: int | None) -> list[_T]:
    """What `read` gives for each lot, in the order of the lots.

    Raises:
        DivtraceError: a process died; without its files the answer would look more complete than it is.
    """
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    workers = min(jobs if jobs is not None else (os.cpu_count() or 1), len(lots))
    with ProcessPoolExecutor(workers, mp_context=get_context(_start_method())) as pool:
        try:
            return list(pool.map(read, lots))
        except BrokenProcessPool as error:
            raise DivtraceError(
                "dumps and logs could not be read: a process died",
                hint="memory may have run out; --jobs 1 needs the least",
            ) from error


def _start_method() -> Literal["fork", "spawn"]:
    """How processes are started: a fork has imported everything, but inherits the locks that other threads hold."""
    alone = threading.active_count() == 1 and not THREADED & sys.modules.keys()
    return "fork" if alone and sys.platform == "linux" else "spawn"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
