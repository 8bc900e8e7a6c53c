"""Many ranks on one line."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from divtrace.report.model import RankName

MOST_RANGES = 12


def rank_key(rank: RankName) -> tuple[int, int]:
    """(world, rank) of a rank's name: `3`, `"3"` (world 0) or `"1/3"`; the order in which ranks are listed."""
    world, _, number = str(rank).rpartition("/")
    return (int(world or 0), int(number))


def rank_ranges(ranks: Iterable[RankName], most: int = MOST_RANGES) -> str:
    """`0-7,9`; with worlds `0/0-7,1/0-7`. Ranges beyond `most` are counted, by the ranks in them."""
    named = sorted({(rank_key(rank), "/" in str(rank)) for rank in ranks})
    # In a run of consecutive ranks, rank minus place stays the same.
    runs = [
        [member for _, member in run]
        for _, run in groupby(enumerate(named), key=lambda pair: (pair[1][0][0], pair[1][0][1] - pair[0]))
    ]
    shown = ",".join(_range(run) for run in runs[:most])
    left = sum(len(run) for run in runs[most:])
    return f"{shown} and {left:,} more" if left else shown


def ranks_words(ranks: Iterable[RankName], most: int = MOST_RANGES) -> str:
    """`rank 3`, `ranks 0-7,9`, or `no rank`."""
    members = list(ranks)
    if not members:
        return "no rank"
    return f"{'rank' if len(set(members)) == 1 else 'ranks'} {rank_ranges(members, most)}"


def _range(run: list[tuple[tuple[int, int], bool]]) -> str:
    ((world, first), worlds), ((_, last), _) = run[0], run[-1]
    return (f"{world}/" if worlds else "") + (str(first) if first == last else f"{first}-{last}")
