"""The exceptions that divtrace raises on purpose.

- DivtraceError: anything a user can mend; carries a hint with what to do next
    - UsageError: an option or an argument does not fit
    - NoTraceError: nothing in the input is a trace, or nothing in it is readable
    - RunsError: the input mixes several runs
    - TopologyError: sizes that do not divide
    - DamageError: `--strict` was given and something is damaged
"""

from __future__ import annotations


class DivtraceError(Exception):
    """Something that the user can mend. `str()` of it says what is wrong; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Keep the message and the hint."""
        super().__init__(message)
        self.hint = hint


class UsageError(DivtraceError):
    """An option or an argument does not fit the input."""


class NoTraceError(DivtraceError):
    """Nothing in the input is a trace, or nothing in it is readable."""


class RunsError(DivtraceError):
    """The input holds files of more than one run."""


class TopologyError(DivtraceError):
    """The sizes of the parallel layout do not fit together."""


class DamageError(DivtraceError):
    """Something in the input is damaged, and `--strict` was given."""
