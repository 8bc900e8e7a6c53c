"""Injected faults: for every rule at least one way in which an engine breaks it, with the answer that SPEC gives."""

from faults import broken, control, layouts, syncs
from faults.model import KINDS, Case, Expected, FaultKind, Injected, UnsuitableError, clean_run

__all__ = [
    "KINDS",
    "Case",
    "Expected",
    "FaultKind",
    "Injected",
    "UnsuitableError",
    "broken",
    "clean_run",
    "control",
    "layouts",
    "syncs",
]
