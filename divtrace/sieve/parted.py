"""Requests on which ranks have parted, as the sieve hands them over to the walk and as the walk confirms them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from divtrace.sieve.facts import RankFacts, ReplicaFacts
from divtrace.sieve.forks import Forks
from divtrace.sieve.listing import Listing

if TYPE_CHECKING:
    from divtrace.walk.judge import ReplicaWalk

_FEWEST = 9
"""Requests below which all of their records are loaded: so few can be searched for."""
_BEFORE = 2
"""Steps in front of the first suspicion that are judged with it."""


def hand_over(facts: ReplicaFacts, forks: Forks) -> None:
    """Note in the facts for which requests findings were counted, if nothing can hide in what was counted."""
    counted = forks.counted()
    suspicions = [step for req in counted if (step := facts.suspects.get(req)) is not None]
    if forks.cut is None or len(counted) < _FEWEST or len(suspicions) < len(counted):
        return
    steps = range(min(suspicions) - _BEFORE, forks.cut)
    if any(_has_hole(rank, steps.start) for rank in facts.ranks.values()):
        return
    facts.parted, facts.parted_steps = counted, steps
    for one in counted.values():
        if one.agreed_step is not None:
            facts.agreed = True
            facts.agreed_step = max(one.agreed_step, facts.agreed_step or 0)


def _has_hole(facts: RankFacts, start: int) -> bool:
    """True if records may be missing behind the beginning of a step."""
    reading = facts.reading
    if max((meta.dropped for meta in reading.metas if meta.dropped is not None), default=0) > reading.lost:
        return True
    return bool(reading.gaps) and reading.gaps[-1] >= facts.first_of_step.get(start, 0)


def give_back_unconfirmed(facts: ReplicaFacts, walk: ReplicaWalk, listing: Listing) -> bool:
    """Give back to the walk what it does not count like the sieve, in the steps that both have looked at.

    Args:
        facts: what the sieve found; requests are removed from its `parted`.
        walk: the replica after the walk.
        listing: which findings are looked at.

    Returns:
        True if something was given back, so that more has to be loaded.
    """
    if not facts.parted:
        return False
    cut = facts.parted_steps.stop
    found: dict[str, Counter[str]] = {req: Counter() for req in facts.parted}
    enough = 0
    for divergence in walk.divergences:
        key, step = divergence.key, divergence.step
        if step is None or step >= cut:
            continue
        enough += 1
        if key.req in found and key.round is not None and key.round >= facts.parted[key.req].first_round:
            found[key.req][divergence.rule] += 1
    wrong = (
        set(found) if enough < listing.most else {req for req, one in facts.parted.items() if found[req] != one.before}
    )
    for req in wrong:
        del facts.parted[req]
    return bool(wrong)
