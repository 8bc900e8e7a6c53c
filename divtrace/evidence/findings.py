"""Mismatches and crossed orders as findings."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from divtrace.evidence.compare import Mismatch
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.report import EvidenceFinding
from divtrace.waits.relation import Crossing


def mismatch_finding(mismatch: Mismatch) -> EvidenceFinding:
    """The finding of one communicator's first mismatch."""
    what, group = mismatch.what, mismatch.comm
    ranks = tuple(rank for _, rank in what.ranks)
    named = next(d for d in what.differences if d.rule == what.rule)
    lowest = group.lanes[ranks[0]]
    op = lowest[0].signatures[lowest[1].numbers[what.number]].op
    parts = [f"{group.label} #{what.number}: {named.field} differs between the ranks that issued it."]
    for rank, shift in mismatch.shifts:
        span = f"#{shift.earliest}" if shift.earliest == shift.latest else f"#{shift.earliest} to #{shift.latest}"
        verb = "lacks one operation" if shift.kind == "missing" else "has one operation more"
        parts.append(
            f"Consistent with: rank {rank} {verb} at {span}; {shift.agreeing} later operations fit when moved by one, "
            f"so results from #{shift.earliest} on cannot be trusted."
        )
    return EvidenceFinding(
        rule=what.rule,
        comm=group.label,
        comm_ranks=group.members if not group.open else None,
        number=what.number,
        op=op,
        ranks=ranks,
        field=named.field,
        values={rank: value for (_, rank), value in named.values.items()},
        fields=tuple((d.field, {rank: value for (_, rank), value in d.values.items()}) for d in what.differences),
        odd_ranks=tuple(rank for _, rank in what.odd_ranks),
        attribution=" ".join(parts),
        where={rank: mismatch.where(rank) for rank in ranks},
        following=mismatch.following,
        shifts=mismatch.shifts,
    )


def crossing_finding(
    crossing: Crossing, groups: Sequence[GroupLanes], already: Sequence[EvidenceFinding]
) -> EvidenceFinding | None:
    """The finding of a crossed order, unless an operation of the cycle is a finding already."""
    if any(f.comm == wait.comm and f.number == wait.number for f in already for wait in crossing.cycle):
        return None
    by_label = {group.label: group for group in groups}
    ranks = tuple(rank for _, rank in crossing.ranks)
    values: dict[int, Hashable] = {}
    where: dict[int, tuple[str, int | None]] = {}
    for wait in crossing.cycle:
        rank = wait.waiter[1]
        values[rank] = wait.comm
        group = by_label.get(wait.comm)
        if group is not None and rank in group.lanes:
            dump, lane = group.lanes[rank]
            where[rank] = (dump.path, lane.position.get(wait.number))
    first = crossing.cycle[0]
    group = by_label.get(first.comm)
    op = None
    if group is not None and first.waiter[1] in group.lanes:
        dump, lane = group.lanes[first.waiter[1]]
        sid = lane.numbers.get(first.number)
        op = dump.signatures[sid].op if sid is not None else None
    return EvidenceFinding(
        rule="collective-order",
        comm=first.comm,
        comm_ranks=group.members if group is not None and not group.open else None,
        number=first.number,
        op=op,
        ranks=ranks,
        field="comm",
        values=values,
        fields=(("comm", values),),
        odd_ranks=(),
        attribution="Crossed order: " + cycle_text(crossing) + ".",
        where=where,
    )


def cycle_text(crossing: Crossing) -> str:
    """The cycle in words, with the operation on every edge."""
    return ", ".join(
        f"rank {wait.waiter[1]} waits in {wait.comm} #{wait.number} for rank {wait.awaited[1]}"
        for wait in crossing.cycle
    )
