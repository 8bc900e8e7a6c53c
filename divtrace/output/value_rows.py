"""Every rank's value side by side, with the file and line it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from divtrace.output.layout import columns, emphasised, padded, wrapped
from divtrace.output.quantities import count
from divtrace.output.ranks import rank_key, rank_ranges, ranks_words
from divtrace.output.shares import Share
from divtrace.output.values import value_text
from divtrace.output.wording import finding_shares, location_words, share_value
from divtrace.report.model import FieldDifference, Finding

MOST_ROWS = 24
"""Distinct values of one field that are listed."""
MOST_LOCATIONS = 4
"""Ranks of one value whose file and line are given."""
WIDEST_LABEL = 24
NARROWEST_VALUE = 20


@dataclass(frozen=True, slots=True)
class Row:
    """The ranks that hold one value, in words, and where their records stand."""

    share: Share
    ranks: str
    places: tuple[str, ...]
    odd: bool

    @property
    def place_words(self) -> str:
        """The places on one line."""
        return "; ".join(self.places)


def field_rows(finding: Finding, difference: FieldDifference, *, verbose: bool = False) -> tuple[tuple[Row, ...], str]:
    """A row for each distinct value, and in words how many there are beyond `MOST_ROWS`; odd ranks come first then."""
    held = finding_shares(finding, difference)
    listed = held if verbose else _most_telling(held, finding)
    rows = tuple(
        Row(share, ranks_words(share.ranks), _places(finding, share, verbose=verbose), _is_odd(share, finding))
        for share in listed
    )
    if len(listed) == len(held):
        return rows, ""
    ranks = [rank for share in held if share not in listed for rank in share.ranks]
    return rows, f"and {count(len(held) - len(listed), 'other value')} on {ranks_words(ranks)}"


def value_lines(
    finding: Finding, difference: FieldDifference, width: int, indent: str = "    ", *, verbose: bool = False
) -> list[str]:
    """The rows as lines: ranks, value and place in three columns if that fits, else the places below the values."""
    rows, left_out = field_rows(finding, difference, verbose=verbose)
    label_width = min(max((columns(row.ranks) for row in rows), default=0), WIDEST_LABEL)
    room = width - len(indent) - label_width - 2
    budget = room - max((columns(row.place_words) for row in rows), default=0) - 2
    beside = budget >= NARROWEST_VALUE
    values = [share_value(finding, row.share, budget if beside else room) for row in rows]
    value_width = max(map(columns, values), default=0)
    beside = beside and value_width <= budget
    below = indent + " " * (label_width + 2)
    lines: list[str] = []
    for row, value in zip(rows, values, strict=True):
        lead = f"{indent}{emphasised(padded(row.ranks, label_width), 'bad' if row.odd else 'strong')}  "
        if columns(row.ranks) > label_width:
            lines += wrapped(row.ranks, width, indent)
            lead = below
        if beside and not row.places:
            lines.append(lead + value)
        elif beside:
            lines.append(f"{lead}{padded(value, value_width)}  {emphasised(row.place_words, 'dim')}")
        else:
            lines += wrapped(value, width, lead, below)
            lines += [emphasised(line, "dim") for place in row.places for line in wrapped(place, width, below)]
    return lines + (wrapped(left_out, width, indent) if left_out else [])


def _most_telling(held: Sequence[Share], finding: Finding) -> Sequence[Share]:
    if len(held) <= MOST_ROWS:
        return held
    odd_first = sorted(held, key=lambda share: not _is_odd(share, finding))
    kept = {share.ranks for share in odd_first[:MOST_ROWS]}
    return [share for share in held if share.ranks in kept]


def _is_odd(share: Share, finding: Finding) -> bool:
    return any(rank_key(rank)[1] in finding.odd_ranks for rank in share.ranks)


def _places(finding: Finding, share: Share, *, verbose: bool) -> tuple[str, ...]:
    known = [rank for rank in share.ranks if rank in finding.where]
    listed = known if verbose else known[:MOST_LOCATIONS]
    places = [location_words(finding.where[rank]) + _input_words(finding, rank) for rank in listed]
    if len(share.ranks) > 1:
        places = [f"{rank_ranges([rank])}: {place}" for rank, place in zip(listed, places, strict=True)]
    more = [f"and {len(known) - len(listed):,} more"] if len(known) > len(listed) else []
    return (*places, *more)


def _input_words(finding: Finding, rank: str) -> str:
    """What the decision of this rank compared, if it was recorded."""
    if finding.decided_on is UNSET or finding.decided_on.get(rank) is None:
        return ""
    return f", decided on {value_text(finding.decided_on[rank], NARROWEST_VALUE)}"
