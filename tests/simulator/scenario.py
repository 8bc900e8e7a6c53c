"""What is simulated: sizes, algorithm, requests, and the habits of the engine that writes the trace."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from simulator.tokens import Model
from simulator.topology import Topology

Shape = Literal["chain", "tree", "empty-at-times"]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A speculative algorithm, as far as its records differ from those of others."""

    name: str
    draft_site: str
    accept_site: str
    drafts: int = 3
    shape: Shape = "chain"
    greedy: bool = True
    plans: bool = False
    """Every request gets its own number of rows to verify, from a budget."""
    caps: bool = False
    """All rows are verified, and the plan caps what may be accepted."""
    local_drafts: bool = False
    """Every rank proposes by itself; the drafts of the first rank of the sync group are used."""
    synced: frozenset[str] = frozenset()
    """Decisions that are broadcast in the sync group: `plan`, `accept`."""
    phases: bool = False
    """Decisions that are broadcast are recorded before, after and in use."""


EAGLE = Algorithm("EAGLE", "eagle-draft", "eagle-greedy")
EAGLE_SAMPLING = Algorithm(
    "EAGLE", "eagle-draft", "eagle-sampling", greedy=False, synced=frozenset({"accept"}), phases=True
)
EAGLE_COINS = Algorithm("EAGLE", "eagle-draft", "eagle-sampling", greedy=False)
"""Sampling without any broadcast: every rank draws the same coins."""
EAGLE_TREE = Algorithm("EAGLE", "eagle-tree", "eagle-greedy", drafts=5, shape="tree")
EAGLE_TREE_SAMPLING = Algorithm("EAGLE", "eagle-tree", "eagle-sampling", drafts=5, shape="tree", greedy=False)
DSPARK = Algorithm(
    "DSPARK",
    "dspark-draft",
    "dspark-accept-greedy",
    drafts=4,
    plans=True,
    synced=frozenset({"plan", "accept"}),
    phases=True,
)
DSPARK_UNSYNCED = Algorithm("DSPARK", "dspark-draft", "dspark-accept-greedy", drafts=4, plans=True)
DSPARK_CAP = Algorithm("DSPARK", "dspark-draft", "dspark-accept-greedy", drafts=5, plans=True, caps=True)
NGRAM = Algorithm("NGRAM", "ngram", "eagle-greedy", shape="empty-at-times", local_drafts=True)
ALGORITHMS = (
    EAGLE,
    EAGLE_SAMPLING,
    EAGLE_COINS,
    EAGLE_TREE,
    EAGLE_TREE_SAMPLING,
    DSPARK,
    DSPARK_UNSYNCED,
    DSPARK_CAP,
    NGRAM,
)


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """One request as the client sends it. Steps count from the first step of the run."""

    name: str
    prompt: int
    new_tokens: int = 60
    arrives: int = 0
    chunks: int = 1
    prefix: int = 0
    """Tokens found in the cache; they belong to the replica's first request, whose slots are shared."""
    aborted_at: int | None = None
    retracted_at: int | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. `requests` holds the requests of each replica, by its index."""

    topology: Topology = field(default_factory=Topology)
    algorithm: Algorithm = EAGLE
    requests: tuple[tuple[RequestPlan, ...], ...] = ((RequestPlan("A", 21), RequestPlan("B", 17)),)
    model: Model = field(default_factory=Model)
    seed: int = 1
    steps: int = 8
    first_step: int = 100
    world: int | None = None
    run: str | None = "run-1"
    overlap: bool = False
    """The commit of step s is written after the schedule of step s+1, and finished requests run one round more."""
    drafts_early: bool = False
    """The drafts of the next round are computed at the end of a step and carry the next step's number."""
    draft_per_forward: bool = False
    """One draft event (and one collective) per draft forward, numbered by `n`."""
    completions: bool = False
    """A collective is recorded twice, enqueued and completed; else only enqueued."""
    numbered: bool = True
    """Collectives carry `comm_seq`."""
    first_number: int = 0
    timeouts: bool = True
    """Ranks that wait for ever record the timeout of the operation."""
    adaptive: bool = False
    """The number of draft steps is decided per step and recorded batch-wide."""
    time_limit: bool = True
    """Every running request's age is checked in every step, by the rank's own clock."""
    extras: bool = True

    def __post_init__(self) -> None:
        if len(self.requests) != self.topology.data:
            raise ValueError("one list of requests per replica, please")
        chain = self.algorithm.shape == "chain"
        if self.topology.pipeline > 1 and (self.algorithm.plans or self.drafts_early or not chain):
            raise ValueError("pipeline stages are simulated with chains of one length, drafted in the step")
        if self.draft_per_forward and not chain:
            raise ValueError("one event per draft forward is for chains")
        if self.drafts_early and any(r.arrives or r.chunks > 1 or r.retracted_at for row in self.requests for r in row):
            raise ValueError("early drafts need all requests from the first step on")

    def but(self, **changes: Any) -> Scenario:
        return replace(self, **changes)


def two_requests(topology: Topology) -> tuple[tuple[RequestPlan, ...], ...]:
    """Two requests for each replica, with names of its own."""
    return tuple(
        (RequestPlan(f"r{index}-a", 21 + 3 * index), RequestPlan(f"r{index}-b", 17 + index))
        for index in range(topology.data)
    )
