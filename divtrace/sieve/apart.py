"""The rule that names an event at which ranks differ, for rounds of the plain shape.

The walk finds it with all that a finding tells (`divtrace.walk.compare`); this is what is left of that if only the rule
is asked for: SPEC section 5 on what is compared, section 6 on which difference names the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import ne
from typing import Any

from divtrace.events import FIELD, Event
from divtrace.topology import ReplicaGroup
from divtrace.walk.compare import COMPARED, IN_ATTN_TP, PADDED, significant, values_of

Row = tuple[Event, ...]
"""One event as every rank recorded it, lowest rank first."""

_INDICES = range(len(COMPARED))
RULES = [FIELD[name].rule or "" for name in COMPARED]
"""The rule of each compared field."""
_PLAIN = [name not in PADDED | IN_ATTN_TP | {"target_tokens", "batch"} for name in COMPARED]


class Naming:
    """Names events for one replica."""

    def __init__(self, replica: ReplicaGroup, ranks: Sequence[int]) -> None:
        """Keep where in a row the ranks of each attn_tp group stand."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, rank in enumerate(ranks):
            groups.setdefault(replica.attn_tp_group(rank), []).append(index)
        self._attn_tp = list(groups.values())

    def rule(self, row: Row, rows: Sequence[Row]) -> str | None:
        """The rule of the first field that differs in what is compared; None if there is none.

        Args:
            row: an event of a chain that is no batch-level event and carries no `extra`.
            rows: all events of its round.
        """
        if len(row) == 2:
            return self._rule_of_two(row, rows)
        event = row[0]
        if all(one is event for one in row):
            return None
        values = [values_of(one) for one in row]
        first = values[0]
        for index in sorted({index for one in values for index in compress(_INDICES, map(ne, first, one))}):
            everyone = [one[index] for one in values]
            if _differ(everyone) and (_PLAIN[index] or self._differs(COMPARED[index], everyone, row, rows)):
                return RULES[index]
        return None

    def _rule_of_two(self, row: Row, rows: Sequence[Row]) -> str | None:
        """The same for two ranks, as most replicas have; what is not equal differs if both recorded it."""
        one, other = row
        if one is other:
            return None
        left, right = values_of(one), values_of(other)
        for index in compress(_INDICES, map(ne, left, right)):
            mine, theirs = left[index], right[index]
            if mine is None or theirs is None:
                continue
            if _PLAIN[index] or self._differs(COMPARED[index], (mine, theirs), row, rows):
                return RULES[index]
        return None

    def _differs(self, name: str, values: Sequence[Any], row: Row, rows: Sequence[Row]) -> bool:
        """Whether a field differs in what is compared of it; `values` are None where it was not recorded."""
        compared = values
        if name == "target_tokens":
            known = [
                count for index in range(len(row)) if (count := _OwnRound(rows, index).last("correct_len")) is not None
            ]
            if known:
                # Rows behind the largest accepted length decide nothing.
                compared = [None if value is None else value[: max(*known, -1) + 1] for value in values]
        elif name in PADDED:
            compared = [
                None if value is None else significant(name, value, row[index], _OwnRound(rows, index))
                for index, value in enumerate(values)
            ]
        if name not in IN_ATTN_TP:
            return _differ(compared)
        return any(_differ([compared[index] for index in group]) for group in self._attn_tp)


def _differ(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return len(known) > 1 and any(value != known[0] for value in known)


class _OwnRound:
    """What one rank, by its place in a row, recorded in a round."""

    __slots__ = ("_place", "_rows")

    def __init__(self, rows: Sequence[Row], place: int) -> None:
        self._rows, self._place = rows, place

    def last(self, name: str) -> Any:
        """The last recorded value of a field; None if there is none."""
        for row in reversed(self._rows):
            value = getattr(row[self._place], name)
            if value is not None:
                return value
        return None
