"""Scenarios by name: every topology, algorithm and habit at least once."""

from __future__ import annotations

from typing import Any

from simulator.scenario import (
    DSPARK,
    DSPARK_CAP,
    DSPARK_UNSYNCED,
    EAGLE,
    EAGLE_COINS,
    EAGLE_SAMPLING,
    EAGLE_TREE,
    EAGLE_TREE_SAMPLING,
    NGRAM,
    Algorithm,
    RequestPlan,
    Scenario,
    two_requests,
)
from simulator.tokens import Model
from simulator.topology import Topology

TOPOLOGIES: dict[str, Topology] = {
    "one": Topology(tensor=1),
    "tp2": Topology(tensor=2),
    "tp3": Topology(tensor=3),
    "tp4": Topology(tensor=4),
    "tp8": Topology(tensor=8),
    "cp2": Topology(tensor=1, context=2),
    "tp2-cp2": Topology(tensor=2, context=2),
    "pp2": Topology(tensor=1, pipeline=2),
    "tp2-pp2": Topology(tensor=2, pipeline=2),
    "tp2-pp3": Topology(tensor=2, pipeline=3),
    "dp2": Topology(tensor=1, data=2),
    "tp2-dp2": Topology(tensor=2, data=2),
    "tp2-cp2-dp2": Topology(tensor=2, context=2, data=2),
    "tp2-dp2-pp2": Topology(tensor=2, data=2, pipeline=2),
}
ALGORITHMS: dict[str, Algorithm] = {
    "eagle": EAGLE,
    "eagle-sampling": EAGLE_SAMPLING,
    "eagle-coins": EAGLE_COINS,
    "eagle-tree": EAGLE_TREE,
    "eagle-tree-sampling": EAGLE_TREE_SAMPLING,
    "dspark": DSPARK,
    "dspark-unsynced": DSPARK_UNSYNCED,
    "dspark-cap": DSPARK_CAP,
    "ngram": NGRAM,
}
RELAYED = ("eagle", "eagle-sampling", "eagle-coins")
"""Algorithms that are simulated across pipeline stages."""


def scenario(topology: str = "tp2", algorithm: str = "eagle", **changes: Any) -> Scenario:
    sizes = TOPOLOGIES[topology]
    return Scenario(topology=sizes, algorithm=ALGORITHMS[algorithm], requests=two_requests(sizes)).but(**changes)


def busy(topology: str = "tp2", algorithm: str = "eagle", **changes: Any) -> Scenario:
    """Requests that come and go: chunks, shared prefix, finish, abort, retraction, a late arrival."""
    sizes = TOPOLOGIES[topology]
    requests: tuple[tuple[RequestPlan, ...], ...] = tuple(
        (
            RequestPlan(f"r{i}-first", 40, new_tokens=9),
            RequestPlan(f"r{i}-chunked", 33, chunks=2, new_tokens=30),
            RequestPlan(f"r{i}-aborted", 12, aborted_at=6),
            RequestPlan(f"r{i}-again", 18, retracted_at=5),
            RequestPlan(f"r{i}-late", 30, arrives=4, prefix=16),
        )
        for i in range(sizes.data)
    )
    if sizes.data > 1:
        requests = (*requests[:-1], (RequestPlan(f"r{sizes.data - 1}-short", 9, new_tokens=4),))
    return Scenario(topology=sizes, algorithm=ALGORITHMS[algorithm], requests=requests, steps=12).but(**changes)


def every_scenario() -> dict[str, Scenario]:
    """A grid that touches each topology, each algorithm and each habit, not their product."""
    named: dict[str, Scenario] = {}
    for topology in TOPOLOGIES:
        full = topology in ("one", "tp2", "tp2-cp2-dp2")
        for algorithm in ALGORITHMS if full else RELAYED[:2]:
            named[f"{topology}-{algorithm}"] = scenario(topology, algorithm)
    for topology in ("tp2", "tp2-cp2", "tp2-pp2", "tp2-dp2"):
        named[f"busy-{topology}"] = busy(topology)
        named[f"busy-{topology}-overlap"] = busy(topology, overlap=True)
    named |= {
        "busy-dspark-overlap": busy(algorithm="dspark", overlap=True),
        "busy-ngram": busy(algorithm="ngram"),
        "busy-tree": busy(algorithm="eagle-tree"),
        "drafts-early": scenario(drafts_early=True),
        "drafts-early-overlap": scenario("tp2-dp2", drafts_early=True, overlap=True),
        "draft-per-forward": scenario("tp4", draft_per_forward=True),
        "adaptive": scenario(adaptive=True),
        "completions": scenario("tp2-dp2", completions=True),
        "unnumbered": scenario("tp4", numbered=False),
        "hashed-tokens": scenario(model=Model(vocabulary=2**64)),
        "plain-records": scenario(extras=False, time_limit=False),
        "late-numbers": scenario(first_number=5012),
    }
    return named
