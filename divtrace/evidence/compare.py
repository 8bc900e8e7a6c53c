"""The operations of one communicator, number by number, across the ranks that recorded them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from divtrace.evidence.dump import Signature, elements
from divtrace.evidence.groups import GroupLanes
from divtrace.evidence.naming import OUTPUT_SIZED, SIZE_FREE
from divtrace.waits.mismatch import Disagreement, Rule, disagreements
from divtrace.waits.model import RankKey
from divtrace.waits.pairing import Shift, find_shift

_Fields = tuple[str, Hashable, Hashable]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first number at which the ranks of one communicator recorded different operations."""

    comm: GroupLanes
    what: Disagreement
    following: int
    """Further numbers of this communicator at which they differ; consequences, as a rule."""
    shifts: tuple[tuple[int, Shift], ...]
    """(rank, shift) where one operation left out or put in explains the difference."""

    def where(self, rank: int) -> tuple[str, int]:
        """File and position of the rank's operation."""
        dump, lane = self.comm.lanes[rank]
        return dump.path, lane.position[self.what.number]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All mismatches in causal order, and how much was compared."""

    mismatches: tuple[Mismatch, ...]
    compared: int
    """Numbers that two ranks or more recorded."""


def comparable(signature: Signature) -> _Fields:
    """(op, shape, dtype) as they must be equal on all ranks; None where ranks may differ."""
    sizes = signature.output_sizes if signature.op in OUTPUT_SIZED else signature.input_sizes
    loose = any(op in SIZE_FREE for op in signature.op.split("+"))
    shape: Hashable = None
    if not loose and sizes:
        shape = sizes[0] if len(sizes) == 1 else sizes
    return signature.op, shape, signature.dtype or None


def compare(groups: Sequence[GroupLanes]) -> Comparison:
    """Compare all operations that carry the same number in the same communicator.

    Time is linear in the operations: ranks are compared with the first one as sets, and only numbers that differ
    are looked at one by one.
    """
    identity: dict[_Fields, int] = {}
    found: list[Mismatch] = []
    compared = 0
    translated: dict[int, list[int]] = {}
    for group in groups:
        lanes: dict[int, dict[int, int]] = {}
        for rank, (dump, lane) in sorted(group.lanes.items()):
            table = translated.get(id(dump))
            if table is None:
                table = translated[id(dump)] = [
                    identity.setdefault(comparable(s), len(identity)) for s in dump.signatures
                ]
            lanes[rank] = {number: table[sid] for number, sid in lane.numbers.items()}
        if len(lanes) < 2:
            continue
        shared, differing = _differing(lanes)
        compared += shared
        if differing:
            mismatch = _describe(group, lanes, sorted(differing))
            if mismatch is not None:
                found.append(mismatch)
    return Comparison(tuple(_causal_order(found)), compared)


def _differing(lanes: dict[int, dict[int, int]]) -> tuple[int, set[int]]:
    """How many numbers two ranks recorded, and those at which not all agree."""
    agreed: dict[int, int] = {}
    differing: set[int] = set()
    shared: set[int] = set()
    for own in lanes.values():
        common = agreed.keys() & own.keys()
        shared |= common
        if common:
            differing.update(number for number, _ in own.items() - agreed.items() if number in agreed)
        agreed.update((number, own[number]) for number in own.keys() - common)
    return len(shared), differing


def _describe(group: GroupLanes, lanes: dict[int, dict[int, int]], differing: list[int]) -> Mismatch | None:
    real = [(number, what) for number in differing if (what := _disagreement(group, lanes, number)) is not None]
    if not real:
        return None
    number, what = real[0]
    counts: dict[int, int] = defaultdict(int)
    for own in lanes.values():
        if number in own:
            counts[own[number]] += 1
    usual = max(counts, key=lambda identity: (counts[identity], -identity))
    holders = [own for own in lanes.values() if own.get(number) == usual]
    shifts: list[tuple[int, Shift]] = []
    if counts[usual] * 2 > sum(counts.values()):
        for rank, own in sorted(lanes.items()):
            if own.get(number, usual) != usual and (shift := find_shift(own, holders[0], number)) is not None:
                shifts.append((rank, shift))
    return Mismatch(group, what, len(real) - 1, tuple(shifts))


def _disagreement(group: GroupLanes, lanes: dict[int, dict[int, int]], number: int) -> Disagreement | None:
    ops: dict[RankKey, Hashable] = {}
    shapes: dict[RankKey, Hashable] = {}
    types: dict[RankKey, Hashable] = {}
    elements_of: dict[RankKey, Hashable] = {}
    for rank, own in lanes.items():
        if number not in own:
            continue
        dump, lane = group.lanes[rank]
        signature = dump.signatures[lane.numbers[number]]
        op, shape, dtype = comparable(signature)
        key = (0, rank)
        ops[key] = op
        if shape is not None:
            shapes[key] = shape
            elements_of[key] = elements(signature.output_sizes if op in OUTPUT_SIZED else signature.input_sizes)
        if dtype is not None:
            types[key] = dtype
    fields: dict[str, tuple[Rule, dict[RankKey, Hashable]]] = {"op": ("collective-order", ops)}
    if len(set(ops.values())) == 1:
        fields["shape"] = ("collective-shape", shapes)
        fields["dtype"] = ("collective-shape", types)
        fields["numel"] = ("collective-shape", elements_of)
    return disagreements(number, fields, tuple(sorted(ops)))


def _causal_order(found: list[Mismatch]) -> list[Mismatch]:
    """By the record order of shared ranks; where none is shared, by the time of the lowest rank, then by name."""

    def created(mismatch: Mismatch) -> tuple[int, str]:
        rank = mismatch.what.ranks[0][1]
        dump, lane = mismatch.comm.lanes[rank]
        position = lane.position[mismatch.what.number]
        return dump.columns[5][position - 1] if position else 0, mismatch.comm.label

    ordered: list[Mismatch] = []
    rest = sorted(found, key=created)
    while rest:
        chosen = next((m for m in rest if not any(_precedes(other, m) for other in rest if other is not m)), rest[0])
        rest.remove(chosen)
        ordered.append(chosen)
    return ordered


def _precedes(first: Mismatch, second: Mismatch) -> bool:
    shared = set(first.what.ranks) & set(second.what.ranks)
    if not shared:
        return False
    rank = min(shared)[1]
    return first.where(rank)[1] < second.where(rank)[1]
