"""What the sieve knows of ranks and replicas when it has read everything: small, whatever the length of the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from divtrace.align.view import Site
from divtrace.sieve.cursor import Reading
from divtrace.sieve.forks import Counted
from divtrace.trace.model import Record

if TYPE_CHECKING:
    from divtrace.walk.collectives import Communicator


class RankFacts(msgspec.Struct):
    """One rank's trace in summary."""

    rank: int
    reading: Reading
    events: int = 0
    covered: set[Site] = msgspec.field(default_factory=set)
    first_of_step: dict[int, int] = msgspec.field(default_factory=dict)
    last_of_step: dict[int, int] = msgspec.field(default_factory=dict)
    overlapped: bool = False
    closed: bool = False
    last_model: int = -1
    """Position of the last model event; -1 if there is none."""
    last_numbers: dict[Communicator, int] = msgspec.field(default_factory=dict)
    keep: set[int] = msgspec.field(default_factory=set)
    """Positions of single records that the walk needs: init and host records, the last ones, the last operations."""
    kept: list[Record] = msgspec.field(default_factory=list)
    """Those of them that are at hand, in order."""


class ReplicaFacts(msgspec.Struct):
    """One replica in summary, and what of it the walk has to look at."""

    ranks: dict[int, RankFacts]
    suspects: dict[str, int | None] = msgspec.field(default_factory=dict)
    """Requests to be judged exactly, with the step of the first suspicion."""
    irregular: set[int] = msgspec.field(default_factory=set)
    """Steps of which every record is needed."""
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    """Rounds of every request, the prefill not counted."""
    partial: dict[str, int] = msgspec.field(default_factory=dict)
    stepless: bool = False
    """Something without a step needs judging: the whole replica has to be loaded."""
    missing: tuple[str, ...] = ()
    """Decisions that no rank of the replica recorded."""
    agreed: bool = False
    agreed_step: int | None = None
    parted: dict[str, Counted] = msgspec.field(default_factory=dict)
    """Suspects on which ranks have parted for good: only their records of `parted_steps` are needed."""
    parted_steps: range = range(0)
    """From the steps in front of the first suspicion up to those in which findings are only counted."""
