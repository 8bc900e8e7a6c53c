"""One finding per event: puts together what differs, breaks or is skipped there, and names it by the first rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from divtrace.align.groups import Group
from divtrace.invariants.base import Break
from divtrace.trace.model import Record
from divtrace.walk import odd
from divtrace.walk.compare import COMPARED, Difference
from divtrace.walk.divergence import Divergence
from divtrace.walk.sync import Override, WrongGroup

if TYPE_CHECKING:
    from divtrace.rules.base import RuleClass


class Evidence(msgspec.Struct):
    """Everything that speaks against one event of one replica."""

    group: Group
    replica: int
    world: int
    wrong_group: WrongGroup | None = None
    override: Override | None = None
    ineffective: bool = False
    differences: list[Difference] = msgspec.field(default_factory=list)
    skipped: dict[int, int] = msgspec.field(default_factory=dict)
    """Ranks that lack the event, with the position of the record that shows they went past it."""
    breaks: list[Break] = msgspec.field(default_factory=list)
    source: int | None = None

    def rules(self) -> list[str]:
        """All broken rules, the naming one first."""
        found = []
        if self.wrong_group is not None:
            found.append("sync-group")
        if self.override is not None:
            found.append("sync-overridden")
        if self.ineffective:
            found.append("sync-ineffective")
        found += [difference.rule for difference in self.differences]
        if self.skipped:
            found.append("skipped-event")
        if self.breaks:
            # The pages of all rules are many modules, which a run without a finding never needs.
            from divtrace.rules import INVARIANT_ORDER

            found += sorted({broken.rule for broken in self.breaks}, key=INVARIANT_ORDER.index)
        return list(dict.fromkeys(found))


def assemble(evidence: Evidence) -> Divergence | None:
    """The divergence at one event, or None if nothing speaks against it."""
    rules = evidence.rules()
    if not rules:
        return None
    rule, group = rules[0], evidence.group
    divergence = Divergence(
        world=evidence.world,
        replica=evidence.replica,
        key=group.key,
        step=group.step,
        rule=rule,
        also=tuple(rules[1:]),
        rule_class=_class_of(rule, evidence),
        ranks=(),
        odd_ranks=(),
        records={},
        orders={evidence.replica: group.order},
        differences=tuple(evidence.differences),
        breaks=tuple(evidence.breaks),
        passed=dict(evidence.skipped),
    )
    _fill(divergence, evidence)
    shown = sorted({*divergence.ranks, *divergence.values})
    divergence.records = {rank: group.records.get(rank) for rank in shown}
    return divergence


def _class_of(rule: str, evidence: Evidence) -> RuleClass:
    named = next((difference for difference in evidence.differences if difference.rule == rule), None)
    if named is not None:
        return named.rule_class
    from divtrace.rules import rule_class

    return rule_class(rule)


def _fill(divergence: Divergence, evidence: Evidence) -> None:
    """Ranks, odd ranks, field and values, by the rule that names the finding."""
    everyone = evidence.group.records.keys()
    match divergence.rule:
        case "sync-group" if evidence.wrong_group is not None:
            wrong = evidence.wrong_group
            divergence.field, divergence.values, divergence.ranks = wrong.name, wrong.values, wrong.ranks
            divergence.odd_ranks = odd.breakers(wrong.ranks, everyone)
        case "sync-overridden" if evidence.override is not None:
            override = evidence.override
            named = next(difference for difference in evidence.differences if difference.name == override.name)
            divergence.field, divergence.index, divergence.values = named.name, named.index, named.values
            divergence.ranks, divergence.odd_ranks = override.ranks, odd.breakers(override.ranks, everyone)
        case "skipped-event":
            divergence.ranks = tuple(sorted({*everyone, *evidence.skipped}))
            divergence.values = {rank: _recorded(evidence.group.records.get(rank)) for rank in divergence.ranks}
            present = {rank: rank in everyone for rank in divergence.ranks}
            divergence.odd_ranks = odd.by_majority(present, divergence.ranks) or ()
        case _ if evidence.differences:
            first = evidence.differences[0]
            divergence.field, divergence.index, divergence.values = first.name, first.index, first.values
            ranks = {rank for difference in evidence.differences for rank in difference.values}
            divergence.ranks = tuple(sorted(ranks))
            divergence.odd_ranks = _odd(divergence, evidence, first)
        case _:
            broken = {id(one.record): one for one in reversed(evidence.breaks) if one.rule == divergence.rule}
            by_rank = {
                rank: broken[id(record)].values
                for rank, record in sorted(evidence.group.records.items())
                if id(record) in broken
            }
            divergence.values, divergence.ranks = dict(by_rank), tuple(by_rank)
            divergence.odd_ranks = odd.breakers(by_rank, everyone)


def _odd(divergence: Divergence, evidence: Evidence, first: Difference) -> tuple[int, ...]:
    majority = odd.by_majority(first.compared, divergence.ranks)
    if majority is not None:
        return majority
    records = evidence.group.records
    broken = {
        rank for rank in divergence.ranks for one in evidence.breaks if rank in records and one.record is records[rank]
    }
    if broken and not broken >= set(divergence.ranks):
        return tuple(sorted(broken))
    against = odd.against_source(first.compared, evidence.source)
    if against:
        divergence.source_rank = evidence.source
    return against


def _recorded(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {name: value for name in COMPARED if (value := getattr(record.event, name)) is not None}
