"""Comparison of the records of one event: which fields differ, between which ranks, from which element on.

Sources of the scopes: SPEC section 5. Control and layout are compared inside the replica, launch shapes and
`kv_positions` inside the attn_tp group. What is padding or decides nothing is left out before values are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import compress
from operator import attrgetter, ne
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from divtrace.align.groups import Group
from divtrace.events import FIELD, TOKEN_FIELDS, VALUE_FIELDS, Event, Kind, extra_kind
from divtrace.topology import ReplicaGroup
from divtrace.trace.model import Record
from divtrace.walk.rounds import RoundView

if TYPE_CHECKING:
    from divtrace.rules.base import RuleClass

_COLLECTIVE_ONLY = frozenset({"op", "src", "numel"})
_CLASSES: dict[Kind, RuleClass] = {Kind.CONTROL: "control", Kind.LAYOUT: "logical-layout", Kind.SHAPE: "shape"}
COMPARED = tuple(name for name in VALUE_FIELDS if name not in _COLLECTIVE_ONLY)
IN_ATTN_TP = frozenset(name for name in COMPARED if FIELD[name].kind is Kind.SHAPE) | {"kv_positions"}
"""Compared inside the attn_tp group only."""


_INDICES = range(len(COMPARED))
values_of = attrgetter(*COMPARED)
"""The compared fields of an event, in their order."""


class Difference(msgspec.Struct, frozen=True):
    """One field in which ranks differ."""

    name: str
    rule: str
    rule_class: RuleClass
    index: int | None
    values: dict[int, Any]
    """As recorded, by rank; only ranks that recorded the field and take part in the comparison."""
    compared: dict[int, Any]
    """What was compared of them: without padding, without rows that decide nothing, batches as sorted sets."""


def first_difference(values: Iterable[list[Any]]) -> int | None:
    """Index of the first element in which lists differ; the shorter length if one is a prefix of the other."""
    lists = list(values)
    shortest = min(len(value) for value in lists)
    for index in range(shortest):
        element = lists[0][index]
        if any(value[index] != element for value in lists):
            return index
    return shortest if any(len(value) != shortest for value in lists) else None


def differ(values: Mapping[int, Any]) -> bool:
    """True if two of the values are unequal. A bool is not a number."""
    it = iter(values.values())
    reference = next(it, None)
    return any(value != reference or isinstance(value, bool) is not isinstance(reference, bool) for value in it)


def rounds_at(rounds: Mapping[int, RoundView] | None, rank: int) -> RoundView | None:
    """This rank's view of the round of an event, if the event belongs to one."""
    return None if rounds is None else rounds.get(rank)


class Comparison:
    """Compares the records of one event at a time, for one replica."""

    def __init__(self, replica: ReplicaGroup, token_keys: Mapping[int, str] | None = None) -> None:
        """Keep the groups in which shapes are compared, and how each rank recorded token ids (all alike if None)."""
        self._attn_tp = {rank: replica.attn_tp_group(rank) for rank in replica.ranks}
        self._token_keys = token_keys if token_keys is not None and len(set(token_keys.values())) > 1 else None

    def differences(self, group: Group, rounds: Mapping[int, RoundView] | None) -> tuple[list[Difference], list[str]]:
        """All differing fields, upstream first, and the fields that differ only in what decides nothing (drift)."""
        records = group.records
        found: list[Difference] = []
        drift: list[str] = []
        rows = [values_of(record.event) for record in records.values()]
        first = rows[0] if rows else ()
        unlike = {index for row in rows[1:] if row != first for index in compress(_INDICES, map(ne, first, row))}
        for index in sorted(unlike):
            name = COMPARED[index]
            values = {rank: row[index] for rank, row in zip(records, rows, strict=True) if row[index] is not None}
            if self._token_keys is not None and name in TOKEN_FIELDS:
                values = self._same_tokens(values)
            if len(values) < 2 or not differ(values):
                continue
            if name == "batch":
                found.append(_batch(values))
                continue
            if name == "target_tokens":
                deciding_rows = _deciding_rows(rounds, max(len(value) for value in values.values()))
                row = first_deciding_difference(values, deciding_rows)
                if row is not None:
                    deciding = {rank: _at(value, deciding_rows) for rank, value in values.items()}
                    found.append(Difference(name, "target-tokens", "control", row, values, deciding))
                elif first_difference(values.values()) != min(len(value) for value in values.values()):
                    drift.append(name)
                continue
            compared = {
                rank: significant(name, values[rank], records[rank].event, rounds_at(rounds, rank)) for rank in values
            }
            difference = self._difference(name, FIELD[name].kind, values, compared)
            if difference is not None:
                found.append(difference)
        found.extend(self._extra(records))
        return found, drift

    def _same_tokens(self, values: dict[int, Any]) -> dict[int, Any]:
        """The values of the ranks that recorded token ids like most do: other hashes of equal tokens are not equal."""
        keys = {rank: (self._token_keys or {}).get(rank, "") for rank in values}
        counts = Counter(keys.values())
        chosen = min(counts, key=lambda key: (-counts[key], key), default="")
        return {rank: value for rank, value in values.items() if keys[rank] == chosen}

    def _difference(self, name: str, kind: Kind, values: dict[int, Any], compared: dict[int, Any]) -> Difference | None:
        rule = FIELD[name].rule if name in FIELD else "extra-field"
        if kind is Kind.SHAPE or name in IN_ATTN_TP:
            unequal: dict[int, Any] = {}
            index = None
            for ranks in self._by_attn_tp(compared):
                part = {rank: compared[rank] for rank in ranks}
                if differ(part):
                    unequal |= {rank: values[rank] for rank in ranks}
                    index = index_of(part.values()) if index is None else index
            if not unequal:
                return None
            parts = {rank: compared[rank] for rank in unequal}
            return Difference(name, rule or "", _CLASSES[kind], index, dict(sorted(unequal.items())), parts)
        if not differ(compared):
            return None
        return Difference(name, rule or "", _CLASSES[kind], index_of(compared.values()), values, compared)

    def _by_attn_tp(self, ranks: Iterable[int]) -> list[list[int]]:
        parts: dict[tuple[int, ...], list[int]] = {}
        for rank in ranks:
            parts.setdefault(self._attn_tp.get(rank, (rank,)), []).append(rank)
        return list(parts.values())

    def _extra(self, records: Mapping[int, Record]) -> list[Difference]:
        extras = {rank: extra for rank, record in records.items() if (extra := record.event.extra) is not None}
        if len(extras) < 2:
            return []
        found = []
        for key in sorted(set().union(*extras.values())):
            kind = extra_kind(key)
            if kind not in _CLASSES:
                continue
            values = {rank: extra[key] for rank, extra in extras.items() if extra.get(key) is not None}
            values = {rank: value for rank, value in values.items() if not _has_float(value)}
            if len(values) > 1 and differ(values):
                difference = self._difference(f"extra.{key}", kind, values, values)
                if difference is not None:
                    found.append(difference)
        return found


def _has_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, list) and any(map(_has_float, value)))


def index_of(values: Iterable[Any]) -> int | None:
    """Index of the first differing element if all values are lists, else None."""
    known = list(values)
    return first_difference(known) if all(isinstance(value, list) for value in known) else None


def _batch(values: dict[int, list[str]]) -> Difference:
    members = {rank: sorted(set(value)) for rank, value in values.items()}
    if differ(members):
        return Difference("batch", "batch-membership", "control", None, values, members)
    return Difference("batch", "row-order", "logical-layout", first_difference(values.values()), values, values)


class RoundValues(Protocol):
    """What one rank recorded in a round."""

    def last(self, name: str) -> Any:
        """The last recorded value of a field; None if there is none."""


def significant(name: str, value: Any, event: Event, of_round: RoundValues | None) -> Any:
    """The value without its padding (SPEC section 5, "never compared"); `of_round` is the round of the event."""
    trim = _PADDING.get(name)
    if trim is None:
        return value
    length = trim(event, of_round)
    return value if length is None else value[: max(length, 0)]


def _positions_length(event: Event, of_round: RoundValues | None) -> int | None:
    known = [length for length in (event.num_tokens, _own(event, of_round, "verify_len")) if length is not None]
    return min(known, default=None)


def _own(event: Event, of_round: RoundValues | None, name: str) -> int | None:
    """A field of the same record, else of the same rank's round."""
    value: int | None = getattr(event, name)
    return of_round.last(name) if value is None and of_round is not None else value


def _accept_path_length(event: Event, of_round: RoundValues | None) -> int | None:
    correct = _own(event, of_round, "correct_len")
    return None if correct is None else correct + 1


_PADDING: dict[str, Callable[[Event, RoundValues | None], int | None]] = {
    "positions": _positions_length,
    "out_tokens": lambda event, of_round: _own(event, of_round, "commit_len"),
    "accept_path": _accept_path_length,
}
PADDED = frozenset(_PADDING)
"""Fields whose lists may be longer than what counts of them."""


def first_deciding_difference(values: Mapping[int, list[int]], rows: list[int] | None) -> int | None:
    """The first of the deciding rows (all if None) in which target tokens differ; None if they agree in all of them."""
    if rows is None:
        return first_difference(values.values())
    for row in rows:
        if differ({rank: _at(value, [row]) for rank, value in values.items()}):
            return row
    return None


def _at(value: list[int], rows: list[int] | None) -> list[int | None]:
    return [*value] if rows is None else [value[row] if row < len(value) else None for row in rows]


def _deciding_rows(rounds: Mapping[int, RoundView] | None, length: int) -> list[int] | None:
    """Rows below `length` whose target token decides something (SPEC section 5); None for all.

    In a chain those up to L, the largest accepted length that a rank records; in a tree those on the accepted paths.
    """
    correct: list[int] = []
    rows: set[int] = set()
    tree = paths = False
    for round_view in (rounds or {}).values():
        draft = round_view.draft()
        tree = tree or (draft is not None and draft.parents is not None)
        found = round_view.pick("correct_len") or round_view.pick("correct_len", phases=("local",))
        if found is not None:
            correct.append(found.value)
        path = round_view.pick("accept_path")
        if path is not None:
            paths = True
            rows.update(significant("accept_path", path.value, path.record.event, round_view))
    if not correct or (tree and not paths):
        return None
    if tree:
        return sorted(row for row in rows if 0 <= row < length)
    return list(range(min(max(correct) + 1, length)))
