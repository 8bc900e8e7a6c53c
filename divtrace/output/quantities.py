"""Counts, durations and lags in words."""

from __future__ import annotations

from divtrace.report.model import Lag

_MICROSECOND, _MILLISECOND, _SECOND = 1_000, 1_000_000, 1_000_000_000
_MINUTE, _HOUR = 60 * _SECOND, 3600 * _SECOND


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 rank`, `1,024 ranks`; `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if abs(number) == 1 else plural or noun + 's'}"


def duration(ns: int) -> str:
    """A duration of `ns` nanoseconds in the unit that reads best: seconds from 1 s to 10 minutes."""
    amount = abs(ns)
    sign = "-" if ns < 0 else ""
    if amount < _MICROSECOND:
        return f"{sign}{amount} ns"
    if amount < _MILLISECOND:
        return f"{sign}{amount / _MICROSECOND:.1f} us"
    if amount < _SECOND:
        return f"{sign}{amount / _MILLISECOND:.1f} ms"
    if amount < 10 * _MINUTE:
        return f"{sign}{amount / _SECOND:.1f} s"
    if amount < 2 * _HOUR:
        return f"{sign}{amount / _MINUTE:.1f} min"
    return f"{sign}{amount / _HOUR:.1f} h"


def lag_words(lag: Lag) -> str:
    """How far behind the origin something stands: `+1 round, +6 events, +300.0 s`; steps where rounds are unknown."""
    passes = (lag.steps, "step") if lag.rounds is None else (lag.rounds, "round")
    parts = [_signed(count(number, noun)) for number, noun in (passes, (lag.events, "event")) if number is not None]
    if lag.ns is not None:
        parts.append(_signed(duration(lag.ns)))
    return ", ".join(parts) or "lag unknown"


def _signed(text: str) -> str:
    return text if text.startswith("-") else "+" + text
