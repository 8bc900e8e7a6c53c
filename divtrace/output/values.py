"""One value on one line, shortened around what differs in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from divtrace.output.escape import name, terminal
from divtrace.output.layout import columns, emphasised
from divtrace.output.shares import Share

NOT_RECORDED = "not recorded"
NESTED_BUDGET = 40
"""Columns for a list inside a list."""


def share_text(share: Share, budget: int) -> str:
    """The value of a share, at most `budget` columns if its parts allow it, with `>` and `<` around what differs."""
    return value_text(share.value, budget, share.marked)


def value_text(value: Any, budget: int, marked: frozenset[int] = frozenset()) -> str:
    """A recorded value as people write it; lists and maps are shortened to `budget` columns around the first mark."""
    if isinstance(value, Mapping):
        entries = list(value.items())
        return _shortened(len(entries), lambda place: _entry(entries[place]), marked, budget, "{}")
    if isinstance(value, list | tuple):
        return _shortened(len(value), lambda place: value_text(value[place], NESTED_BUDGET), marked, budget, "[]")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return name(value)
    return NOT_RECORDED if value is None else str(value)


def element_text(share: Share, index: int | None, budget: int) -> str:
    """The differing element alone, `end` where the list is over; the whole value if it is no list."""
    if index is None or not isinstance(share.value, list | tuple):
        return share_text(share, budget)
    return value_text(share.value[index], budget) if index < len(share.value) else "end"


def _entry(entry: tuple[str, Any]) -> str:
    key, value = entry
    return f"{terminal(key)}: {value_text(value, NESTED_BUDGET)}"


def _shortened(length: int, text_at: Callable[[int], str], marked: frozenset[int], budget: int, brackets: str) -> str:
    """The elements from around the first mark outwards, as many as fit; the others are counted at either end."""
    # The end of a shorter list takes part like an element, if it is what differs.
    total = length + (length in marked)
    if total == 0:
        return brackets
    focus = min(marked, default=0)
    parts = [_part(focus, length, text_at, marked)]
    start, stop = focus, focus + 1
    grown = True
    while grown:
        grown = False
        for place, front in ((stop, False), (start - 1, True)):
            if not 0 <= place < total:
                continue
            part = _part(place, length, text_at, marked)
            candidate = [part, *parts] if front else [*parts, part]
            bounds = (start - front, stop + (not front))
            if columns(_joined(candidate, *bounds, length, brackets)) <= budget:
                parts, (start, stop), grown = candidate, bounds, True
    return _joined(parts, start, stop, length, brackets)


def _part(place: int, length: int, text_at: Callable[[int], str], marked: frozenset[int]) -> str:
    text = text_at(place) if place < length else "end"
    return emphasised(f">{text}<", "bad") if place in marked else text


def _joined(parts: Sequence[str], start: int, stop: int, length: int, brackets: str) -> str:
    before = f"({start:,} more) " if start > 0 else ""
    after = f" ({length - stop:,} more)" if stop < length else ""
    return brackets[0] + before + ", ".join(parts) + after + brackets[1]
