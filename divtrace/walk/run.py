"""The whole walk: every world of an input, and the roles of all that was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from divtrace.trace.model import RankTrace, Traces
from divtrace.walk.precedence import TimedOut, timed_out
from divtrace.walk.roles import Roles, Timelines, assign
from divtrace.walk.settings import GroupFlags
from divtrace.walk.verdict import Outcome, overall
from divtrace.walk.world import Sieved, WorldWalk, walk_world

if TYPE_CHECKING:
    from divtrace.evidence.report import EvidenceReport

DECISIONS = (
    "batch",
    "draft_tokens",
    "verify_len",
    "positions",
    "target_tokens",
    "correct_len",
    "bonus",
    "commit_len",
    "new_seq_len",
    "out_tokens",
    "finished",
    "kv_slots",
    "comm_seq",
)
"""What a complete trace holds; those that no rank recorded are listed as missing."""


class Walk(msgspec.Struct):
    """Everything that the report is built from."""

    traces: Traces
    worlds: list[WorldWalk]
    roles: Roles
    outcome: Outcome
    timeouts: list[TimedOut]
    missing_fields: tuple[str, ...]
    """Decisions that no rank recorded anywhere."""
    evidence: EvidenceReport | None = None
    """What dumps and logs among the input support; None if there were none."""
    evidence_world: int = 0
    """The world that they belong to."""
    notes: tuple[str, ...] = ()
    """What is to be said about how evidence and traces fit together."""


def missing_fields(traces: Traces) -> tuple[str, ...]:
    """Decisions that no rank recorded anywhere."""
    missing = list(DECISIONS)
    for trace in traces.ranks.values():
        for record in trace.records:
            if any(getattr(record.event, name) is not None for name in missing):
                missing = [name for name in missing if getattr(record.event, name) is None]
        if not missing:
            break
    return tuple(missing)


def walk(
    traces: Traces,
    flags: GroupFlags,
    sieved: Mapping[int, Sieved] | None = None,
    missing: tuple[str, ...] | None = None,
) -> Walk:
    """Walk all worlds.

    Args:
        traces: the records that are loaded.
        flags: sizes and groups from the command line.
        sieved: by world, what the sieve knows of records that are not loaded; None if all are.
        missing: decisions that no rank recorded, where not all records are loaded.

    Raises:
        TopologyError: sizes do not divide or groups overlap.
    """
    by_world: dict[int, dict[int, RankTrace]] = {}
    for (world, rank), trace in traces.ranks.items():
        by_world.setdefault(world, {})[rank] = trace
    worlds: list[WorldWalk] = []
    replicas = 0
    for world in sorted(by_world):
        one = walk_world(world, by_world[world], flags, replicas, None if sieved is None else sieved[world])
        replicas += len(one.replicas)
        worlds.append(one)
    return concluded(traces, worlds, missing_fields(traces) if missing is None else missing)


def concluded(traces: Traces, worlds: list[WorldWalk], missing: tuple[str, ...]) -> Walk:
    """The walk of worlds that were walked one by one: roles across them, and the verdict."""
    operations = {(one.world, rank): own for one in worlds for rank, own in one.operations.items()}
    divergences = [divergence for one in worlds for divergence in one.divergences]
    roles = assign(divergences, Timelines(operations))
    return Walk(traces, worlds, roles, overall(worlds, bool(divergences)), timed_out(worlds), missing)
