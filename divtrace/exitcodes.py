"""The exit statuses, in the one place where they are numbered."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command says to a script."""

    CLEAN = 0
    """No divergence."""
    DIVERGENCE = 1
    """A divergence was found."""
    USAGE = 2
    """Wrong usage, no trace, nothing readable, or (with --strict) damage."""
    NOT_CLEAN = 3
    """No divergence, but not clean: rank_failed, rank_silent, uniform_stall or insufficient."""
    INTERNAL = 101
    """A fault of divtrace itself."""
