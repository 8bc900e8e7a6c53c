"""Two RAS snapshots of one job: counts that did not move between them are stuck ones.

One snapshot in which counts differ is normal while a job runs, whoever is listed as the outlier. Nothing in a snapshot
tells when it was taken; of several, those with the highest counts are the latest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from divtrace.evidence.facts import Fact, Place
from divtrace.waits.model import Progress, RankKey

FORMAT = "nccl-ras"
JOB = "nccl-ras-job"
MAXIMUM_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Counts:
    """How many operations of one kind the ranks of a communicator have launched, in one snapshot."""

    size: int
    ranks: Mapping[int, tuple[int, ...]]
    """By count, the numbers inside the communicator; the report need not list those of the largest class."""
    numbers: Mapping[int, int]
    """By count, how many ranks."""


@dataclass(frozen=True, slots=True)
class Snapshots:
    """What the snapshots of an input show."""

    progresses: tuple[Progress, ...]
    """Of communicators whose counts differ and did not move, with the waiting ranks as pending."""
    notes: tuple[str, ...]


def job_size(facts: Iterable[Fact]) -> int:
    """How many GPUs the job has that RAS was asked about; 0 if no snapshot tells or if they disagree."""
    sizes = {fact.details.get("gpus") for fact in facts if fact.format == JOB}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) and size <= MAXIMUM_RANKS else 0


def compare_snapshots(facts: Iterable[Fact], world: Sequence[int]) -> Snapshots:
    """Compare all snapshots of each communicator.

    Args:
        facts: those of RAS reports count.
        world: all ranks that exist. A communicator of as many ranks holds them all, and torch sorts its members, so
            that its numbers are theirs; of other communicators only numbers inside them are told.
    """
    by_comm: dict[str, list[tuple[Place, dict[str, Counts]]]] = defaultdict(list)
    for fact in facts:
        if fact.format == FORMAT and fact.comm is not None and fact.comm.name and (counts := _counts(fact)):
            by_comm[fact.comm.name.removeprefix("0x")].append((fact.place, counts))
    complete = bool(world) and tuple(world) == tuple(range(len(world)))
    progresses: list[Progress] = []
    notes: list[str] = []
    for name, snapshots in sorted(by_comm.items()):
        if len(snapshots) < 2:
            continue
        snapshots.sort(key=lambda item: (_launched(item[1]), item[0].file, item[0].line or 0))
        (place, before), (last_place, latest) = snapshots[-2:]
        where = f"RAS snapshots {_at(place)} and {_at(last_place)}"
        if {kind: one.numbers for kind, one in before.items()} != {kind: one.numbers for kind, one in latest.items()}:
            notes.append(f"{where}: the counts of communicator {name} moved between them.")
            continue
        notes.append(
            f"{where}: the counts of communicator {name} did not move ({_words(latest)}): it is stuck or idle, unless "
            "one is a copy of the other."
        )
        for kind, one in sorted(latest.items()):
            if len(one.numbers) > 1 and complete and one.size == len(world):
                progresses.append(_progress(f"communicator {name} ({kind})", one))
    return Snapshots(tuple(progresses), tuple(notes))


def _counts(fact: Fact) -> dict[str, Counts]:
    """By kind of operation; empty where the report has none."""
    found: dict[str, Counts] = {}
    stated = fact.details.get("counts")
    if not isinstance(stated, dict):
        return found
    for kind, (size, by_count) in stated.items():
        ranks = {count: tuple(sorted(listed)) for count, (listed, _) in by_count.items()}
        numbers = {count: number for count, (_, number) in by_count.items()}
        short = [count for count, listed in ranks.items() if len(listed) != numbers[count]]
        if len(short) == 1 and size <= MAXIMUM_RANKS:
            # One class is counted and not listed: it holds all the others.
            others = set(range(size)).difference(*(listed for count, listed in ranks.items() if count != short[0]))
            if len(others) == numbers[short[0]]:
                ranks[short[0]] = tuple(sorted(others))
        found[str(kind)] = Counts(size, ranks, numbers)
    return found


def _launched(counts: Mapping[str, Counts]) -> int:
    return sum(count * number for one in counts.values() for count, number in one.numbers.items())


def _progress(label: str, counts: Counts) -> Progress:
    last: dict[RankKey, int] = {(0, rank): count for count, ranks in counts.ranks.items() for rank in ranks}
    lowest = min(counts.numbers)
    members = tuple((0, rank) for rank in range(counts.size))
    return Progress(label, members, last, {rank: count for rank, count in last.items() if count > lowest})


def _words(counts: Mapping[str, Counts]) -> str:
    parts = []
    for kind, one in sorted(counts.items()):
        if len(one.numbers) < 2:
            continue
        ends = ", ".join(
            f"{_ranks(one.ranks[count]) if len(one.ranks[count]) == number and number <= 4 else f'{number} ranks'} "
            f"at {count}"
            for count, number in sorted(one.numbers.items())
        )
        parts.append(f"{kind}: {ends}")
    return "; ".join(parts) or "equal on all ranks"


def _ranks(ranks: Sequence[int]) -> str:
    return f"its rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _at(place: Place) -> str:
    return place.file if place.line is None else f"{place.file}:{place.line}"
