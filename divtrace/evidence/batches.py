"""Batches that schedulers printed, compared inside a replica; other requests on one rank are a divergence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from divtrace.evidence.facts import Fact
from divtrace.evidence.report import EvidenceFinding
from divtrace.waits.mismatch import odd_ranks


def batch_findings(facts: Iterable[Fact], replicas: Sequence[Sequence[int]] | None) -> list[EvidenceFinding]:
    """One finding per replica whose ranks printed different batches.

    Args:
        facts: any facts; those of kind `batch` with a rank count, the last one of each rank.
        replicas: ranks that serve the same requests; None: the attention-DP coordinate of the prefixes decides, and
            without one all ranks are one replica.

    Idle ranks print nothing, so that a rank without a batch is not compared.
    """
    last: dict[int, Fact] = {}
    for fact in facts:
        if fact.kind == "batch" and fact.rank is not None:
            last[fact.rank] = fact
    by_replica: dict[int, dict[int, Fact]] = defaultdict(dict)
    for rank, fact in sorted(last.items()):
        if replicas is not None:
            replica = next((i for i, ranks in enumerate(replicas) if rank in ranks), -1 - rank)
        else:
            replica = fact.coordinates.dp or 0 if fact.coordinates is not None else 0
        by_replica[replica][rank] = fact
    findings = []
    for _, of_rank in sorted(by_replica.items()):
        finding = _compare(of_rank)
        if finding is not None:
            findings.append(finding)
    return findings


def _compare(of_rank: dict[int, Fact]) -> EvidenceFinding | None:
    if len(of_rank) < 2:
        return None
    sizes: dict[int, Hashable] = {rank: _size(fact) for rank, fact in of_rank.items()}
    listed = {
        rank: tuple(sorted(map(str, rids)))
        for rank, fact in of_rank.items()
        if isinstance(rids := fact.details.get("rids"), list) and fact.details.get("complete") is True
    }
    fields: list[tuple[str, dict[int, Hashable]]] = []
    if len(listed) > 1 and len(set(listed.values())) > 1:
        fields.append(("batch", dict(listed)))
    if len(set(sizes.values())) > 1:
        fields.append(("batch_size", sizes))
    if not fields:
        return None
    name, values = fields[0]
    if name == "batch" and len(listed) < len(sizes) and len(fields) > 1:
        name, values = fields[1]
    keyed = {(0, rank): value for rank, value in values.items()}
    counts = ", ".join(f"rank {rank}: {size}" for rank, size in sorted(sizes.items(), key=lambda item: item[0]))
    return EvidenceFinding(
        rule="batch-membership",
        comm=None,
        comm_ranks=None,
        number=None,
        op=None,
        ranks=tuple(sorted(values)),
        field=name,
        values=values,
        fields=tuple(fields),
        odd_ranks=tuple(rank for _, rank in odd_ranks(keyed)),
        attribution=f"The schedulers of one replica printed different batches (requests per rank: {counts}).",
        where={rank: (of_rank[rank].place.file, of_rank[rank].place.line) for rank in sorted(values)},
    )


def _size(fact: Fact) -> int:
    size = fact.details.get("batch_size")
    return size if isinstance(size, int) else -1
