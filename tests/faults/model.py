"""What an injected fault is: a change of one decision on some ranks, and the answer that SPEC determines for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from simulator import At, Change, NoFault, Record, Run, Scenario, Several, simulate

LAST_STEPS = 3
"""A fault comes so many steps before the end of the run, so that later events show what was skipped."""


class UnsuitableError(Exception):
    """The scenario holds no event at which this fault could happen."""


@lru_cache(maxsize=256)
def clean_run(scenario: Scenario) -> Run:
    """The run without a fault; shared, so nobody may change it."""
    return simulate(scenario)


@dataclass(frozen=True)
class Expected:
    """The answer. Where `ranks` or `odd_ranks` is None, SPEC does not determine it for this fault."""

    rule: str
    rule_class: str
    stage: str
    site: str | None
    req: str | None = None
    attempt: int | None = None
    round: int | None = None
    step: int | None = None
    phase: str = "used"
    n: int = 0
    field: str | None = None
    index: int | None = None
    ranks: tuple[int, ...] | None = None
    odd_ranks: tuple[int, ...] | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pick:
    """One event of the clean run, and who records it."""

    record: Record
    ranks: tuple[int, ...]

    def key(self) -> dict[str, Any]:
        """The key as `Expected` names it."""
        record = self.record
        return {
            "stage": record["stage"],
            "site": record["site"],
            "req": record.get("req"),
            "attempt": record.get("attempt", 0) if "req" in record else None,
            "round": record.get("round"),
            "step": record.get("step"),
            "phase": record.get("phase", "used"),
            "n": record.get("n", 0),
        }

    def is_at(self, at: At, phases: tuple[str, ...] | None = None) -> bool:
        """Whether a rank's decision is about this event."""
        record = self.record
        if (at.stage, at.site, at.req) != (record["stage"], record["site"], record.get("req")):
            return False
        if at.phase not in (phases or (record.get("phase", "used"),)):
            return False
        if "round" in record:
            return (at.attempt, at.round) == (record.get("attempt", 0), record["round"])
        return at.step == record.get("step")

    def matches(self, record: Record) -> bool:
        names = ("stage", "site", "req", "attempt", "round", "phase", "n")
        same = all(record.get(name) == self.record.get(name) for name in names)
        return same and ("round" in record or record.get("step") == self.record.get("step"))


@dataclass(frozen=True)
class Case:
    """A scenario, a replica of it and a source of choices. `everyone` makes all ranks of the replica wrong alike."""

    scenario: Scenario
    seed: int = 0
    everyone: bool = False
    rng: random.Random = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rng", random.Random(self.seed))

    @property
    def clean(self) -> Run:
        return clean_run(self.scenario)

    def pick(
        self,
        stage: str,
        site: str | None = None,
        *,
        phase: str | None = None,
        usable: Callable[[Record], bool] | None = None,
        among: Callable[[int], bool] = lambda _: True,
        fewest: int | None = None,
    ) -> Pick:
        """Some event of this kind in a replica, recorded by at least two ranks (one, if everyone is wrong)."""
        fewest = fewest or (1 if self.everyone else 2)
        topology = self.scenario.topology
        picks: list[Pick] = []
        for index in range(topology.data):
            ranks = [rank for rank in topology.replica_ranks(index) if among(rank)]
            for record in self._records(ranks, stage, site, phase):
                pick = Pick(record, tuple(r for r in ranks if self.has(self.clean, r, record)))
                if len(pick.ranks) >= fewest and (usable is None or usable(record)):
                    picks.append(pick)
        if not picks:
            raise UnsuitableError(f"{stage}/{site} in {self.scenario}")
        return self.rng.choice(picks)

    def _records(self, ranks: list[int], stage: str, site: str | None, phase: str | None) -> Iterator[Record]:
        scenario = self.scenario
        last = scenario.first_step + scenario.steps - LAST_STEPS
        finished = {(r["req"], r.get("attempt", 0)): r["round"] for _, r in self.clean.events() if r.get("finished")}
        for rank in ranks:
            found = False
            for record in self.clean.records[rank]:
                if record.get("round", 0) > finished.get((record.get("req"), record.get("attempt", 0)), 10**6):
                    continue
                fits = record["stage"] == stage and site in (None, record["site"]) and record.get("phase") == phase
                late_enough = record["stage"] in ("prefill", "init") or record.get("step", 0) > scenario.first_step + 1
                if fits and late_enough and record.get("step", 0) < last and not record.get("dummy"):
                    found = True
                    yield record
            if found:
                return

    @staticmethod
    def has(run: Run, rank: int, record: Record) -> bool:
        return any(Pick(record, ()).matches(other) for other in run.records[rank])

    def victims(self, ranks: tuple[int, ...]) -> frozenset[int]:
        """Some of these ranks, never all; all of them, if everyone is wrong."""
        if self.everyone:
            return frozenset(ranks)
        return frozenset(self.rng.sample(ranks, self.rng.randrange(1, len(ranks))))


@dataclass(frozen=True)
class Injected:
    """The run with the fault in it, and the answer."""

    run: Run
    expected: Expected


def change(
    case: Case,
    pick: Pick,
    name: str,
    how: Callable[[Any], Any],
    victims: frozenset[int],
    *,
    phases: tuple[str, ...] | None = None,
    more: tuple[NoFault, ...] = (),
) -> Run:
    """The run in which the victims decide otherwise at this event. Raises UnsuitableError if that changes nothing."""

    def where(at: At) -> bool:
        return at.field == name and pick.is_at(at, phases)

    fault = Change(where, victims, lambda value, _: how(value), once=phases is None)
    run = simulate(case.scenario, Several((fault, *more)))
    if all(fault.after[rank] == fault.before[rank] for rank in victims):
        raise UnsuitableError(f"{name} stays as it is")
    return run


def difference(
    case: Case,
    pick: Pick,
    run: Run,
    victims: frozenset[int],
    rule: str,
    rule_class: str,
    field: str,
    *,
    also: tuple[str, ...] = (),
    contradicts_itself: bool = False,
    group_only: bool = False,
) -> Expected:
    """The answer for ranks that differ in `field` of one event: where, in which element, and who is odd.

    `contradicts_itself` says that the victims' own records break an invariant at this very event. `group_only` fields
    are compared inside the attn_tp group, so that it is not determined whether peers outside it took part.
    """
    values = {rank: value_at(run, rank, pick, field) for rank in pick.ranks}
    present = [value for value in values.values() if value is not None]
    if all(value == present[0] for value in present):
        raise UnsuitableError(f"nobody differs in {field}")
    odd = odd_ranks(values)
    if odd is None:
        source = pick.record.get("src")
        if contradicts_itself:
            odd = tuple(sorted(victims))
        elif source in values:
            odd = tuple(rank for rank in pick.ranks if values[rank] != values[source])
        else:
            odd = ()
    alone = set(pick.ranks) == set(case.scenario.topology.attn_tp(pick.ranks[0]))
    return Expected(
        rule,
        rule_class,
        **pick.key(),
        field=field,
        index=first_difference(present),
        ranks=pick.ranks if alone or not group_only else None,
        odd_ranks=odd if alone or not group_only else None,
        also=also,
    )


def broken(pick: Pick, victims: frozenset[int], rule: str, rule_class: str, also: tuple[str, ...] = ()) -> Expected:
    """The answer for an invariant that breaks at this event while all ranks agree."""
    odd = tuple(sorted(victims)) if len(victims) < len(pick.ranks) else ()
    return Expected(rule, rule_class, **pick.key(), ranks=tuple(sorted(victims)), odd_ranks=odd, also=also)


def value_at(run: Run, rank: int, pick: Pick, field: str) -> Any:
    """A rank's value of a field (`extra.<key>` too) at an event, None where it is not recorded."""
    for record in run.records[rank]:
        if pick.matches(record):
            return record.get("extra", {}).get(field[6:]) if field.startswith("extra.") else record.get(field)
    return None


def first_difference(values: list[Any]) -> int | None:
    """First element in which lists differ, the shorter length if one begins the other; None for scalars."""
    if not all(isinstance(value, list) for value in values):
        return None
    shortest = min(len(value) for value in values)
    return next((i for i in range(shortest) if any(value[i] != values[0][i] for value in values)), shortest)


def odd_ranks(values: dict[int, Any]) -> tuple[int, ...] | None:
    """The ranks without the value that more than half hold; None if there is no such value."""
    for candidate in values.values():
        holders = [rank for rank, value in values.items() if value == candidate]
        if 2 * len(holders) > len(values):
            return tuple(rank for rank in sorted(values) if rank not in holders)
    return None


@dataclass(frozen=True)
class FaultKind:
    """One way to go wrong. `places` names topologies and the algorithm under which it can happen."""

    name: str
    rule: str
    inject: Callable[[Case], Injected]
    places: tuple[tuple[str, str], ...]
    changes: tuple[tuple[str, Any], ...] = ()
    """Habits of the scenario that the fault needs."""
    everyone: bool = False
    """All ranks of the replica are wrong alike: an invariant breaks though nobody differs."""


KINDS: list[FaultKind] = []


def places(topologies: str, *algorithms: str) -> tuple[tuple[str, str], ...]:
    return tuple((topology, algorithm) for topology in topologies.split() for algorithm in algorithms)


def fault(
    name: str,
    rule: str,
    where: tuple[tuple[str, str], ...],
    *,
    everyone: bool = False,
    **changes: Any,
) -> Callable[[Callable[[Case], Injected]], Callable[[Case], Injected]]:
    """Registers a fault kind."""

    def register(inject: Callable[[Case], Injected]) -> Callable[[Case], Injected]:
        KINDS.append(FaultKind(name, rule, inject, where, tuple(changes.items()), everyone))
        return inject

    return register
