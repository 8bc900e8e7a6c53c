"""Mismatches that gloo's DETAIL mode prints: each rank names one other, together they give the classes of values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

from divtrace.evidence.facts import Fact
from divtrace.evidence.report import EvidenceFinding
from divtrace.waits.mismatch import Rule, disagreements
from divtrace.waits.model import RankKey


def detail_findings(facts: Iterable[Fact]) -> list[EvidenceFinding]:
    """One finding per (number, group of ranks that name each other).

    Only a rank's statement about itself gives a value under its global rank; what it says about a peer counts where
    the peer's global rank is certain. Values are the printed ones.
    """
    by_number: dict[int | None, list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.format == "gloo-detail" and fact.kind == "mismatch" and fact.rank is not None:
            by_number[fact.number].append(fact)
    findings = []
    for number, rows in sorted(by_number.items(), key=lambda pair: -1 if pair[0] is None else pair[0]):
        for cluster in _clusters(rows):
            finding = _finding(number, cluster)
            if finding is not None:
                findings.append(finding)
    return findings


def _clusters(rows: list[Fact]) -> list[list[Fact]]:
    """Rows whose ranks name each other."""
    clusters: list[tuple[set[int], list[Fact]]] = []
    for fact in sorted(rows, key=lambda fact: (fact.rank if fact.rank is not None else -1, fact.place.file)):
        ranks = {*fact.ranks} | ({fact.rank} if fact.rank is not None else set())
        touching = [cluster for cluster in clusters if cluster[0] & ranks]
        merged: tuple[set[int], list[Fact]] = (set(ranks), [])
        for cluster in touching:
            merged[0].update(cluster[0])
            merged[1].extend(cluster[1])
            clusters.remove(cluster)
        merged[1].append(fact)
        clusters.append(merged)
    return [found for _, found in clusters]


def _finding(number: int | None, rows: list[Fact]) -> EvidenceFinding | None:
    values: dict[str, dict[RankKey, Hashable]] = {"op": {}, "shape": {}, "dtype": {}}
    where: dict[int, tuple[str, int | None]] = {}

    def note(rank: int, side: object) -> None:
        if isinstance(side, dict):
            for name, by_rank in values.items():
                value = side.get(name)
                if value is not None:
                    by_rank.setdefault((0, rank), tuple(value) if isinstance(value, list) else value)

    for fact in rows:
        if fact.rank is not None:
            note(fact.rank, fact.details.get("own"))
            where.setdefault(fact.rank, (fact.place.file, fact.place.line))
    for fact in rows:
        if len(fact.ranks) == 1:
            note(fact.ranks[0], fact.details.get("peer"))
    fields: dict[str, tuple[Rule, dict[RankKey, Hashable]]] = {"op": ("collective-order", values["op"])}
    if len(set(values["op"].values())) == 1:
        fields["shape"] = ("collective-shape", values["shape"])
        fields["dtype"] = ("collective-shape", values["dtype"])
    what = disagreements(number or 0, fields, tuple(sorted(values["op"])))
    if what is None:
        return None
    named = what.differences[0]
    ranks = tuple(rank for _, rank in what.ranks)
    at = f" of operation {number}" if number is not None else ""
    return EvidenceFinding(
        rule=what.rule,
        comm=None,
        comm_ranks=None,
        number=number,
        op=str(values["op"][what.ranks[0]]),
        ranks=ranks,
        field=named.field,
        values={rank: value for (_, rank), value in named.values.items()},
        fields=tuple((d.field, {rank: value for (_, rank), value in d.values.items()}) for d in what.differences),
        odd_ranks=tuple(rank for _, rank in what.odd_ranks),
        attribution=f"The ranks printed different fingerprints{at} of one process group: {named.field} differs.",
        where=where,
    )
