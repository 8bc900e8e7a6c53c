"""The garbage collector, paused where many objects are made that hold no cycles worth looking for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Records, groups and findings are freed by their counts; looking for cycles takes a quarter of a large walk.

    What importing makes is kept anyway.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
