"""The phrases that several outputs share: where an event stands, and what its ranks hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET

from divtrace.output.escape import name, sentence
from divtrace.output.quantities import lag_words
from divtrace.output.ranks import rank_key, ranks_words
from divtrace.output.shares import Share, shares
from divtrace.output.values import element_text, share_text
from divtrace.report.model import FieldDifference, Finding, Place, RankName, Report, Where

MAP_BUDGET = 300
"""Columns for the entries of a map, all of which tell something."""
BRIEF_MAP_BUDGET = 90
"""The same in a phrase."""
MOST_SHARES = 4
"""Distinct values on one line."""


def verdict_words(verdict: str) -> str:
    """`rank failed` for `rank_failed`."""
    return verdict.replace("_", " ")


def verdict_line(report: Report) -> tuple[str, str]:
    """The verdict as a title, and the rest of the line; a summary may begin with the verdict itself."""
    title = verdict_words(report.verdict)
    head, colon, rest = report.summary.partition(": ")
    if colon and head.lower().startswith(title):
        return sentence(head).upper(), sentence(rest)
    return title.upper(), sentence(report.summary)


def many_worlds(report: Report) -> bool:
    """Whether rank numbers repeat, so that worlds have to be named."""
    return len({replica.world for replica in report.replicas}) > 1


def stage_words(place: Finding | Place) -> str:
    """`verify/target`, with the phase unless it is `used`, and the occurrence unless it is the first."""
    site = f"/{name(place.site)}" if place.site is not None else ""
    phase = f", {place.phase}" if place.phase != "used" else ""
    occurrence = f", occurrence {place.n}" if place.n else ""
    return f"{place.stage}{site}{phase}{occurrence}"


def place_words(place: Finding | Place) -> str:
    """`request A, round 7, step 307, verify/target`; what is not known is left out."""
    parts = []
    if place.req is not None:
        parts.append(f"request {name(place.req)}")
    if place.attempt:
        parts.append(f"attempt {place.attempt}")
    if place.round is not None:
        parts.append(f"round {place.round}")
    if place.step is not None:
        parts.append(f"step {place.step}")
    parts.append(stage_words(place))
    if isinstance(place, Finding) and place.comm is not UNSET:
        parts.append(communicator_words(place))
    return ", ".join(parts)


def communicator_words(finding: Finding) -> str:
    """`operation 5012 of communicator tp, ranks 0-15`."""
    operation = "an operation" if finding.comm_seq in (None, UNSET) else f"operation {finding.comm_seq}"
    communicator = f" of communicator {name(finding.comm)}" if isinstance(finding.comm, str) else ""
    members = f" ({ranks_words(finding.comm_ranks)})" if isinstance(finding.comm_ranks, tuple) else ""
    return operation + communicator + members


def rule_words(finding: Finding) -> str:
    """`target-tokens (control), also accept-derivation`."""
    also = f", also {', '.join(finding.also)}" if finding.also else ""
    return f"{finding.rule} ({finding.rule_class}){also}"


def field_words(field: str, index: int | None) -> str:
    """`target_tokens[2]`, as in the code that reads it."""
    return name(field) + ("" if index is None else f"[{index}]")


def odd_words(finding: Finding) -> str:
    """Which ranks are odd; empty if none is, for the attribution says so."""
    return f"odd: {ranks_words(finding.odd_ranks)}" if finding.odd_ranks else ""


def location_words(where: Where) -> str:
    """`rank0.jsonl:812`, or the row of a Parquet file."""
    if where.line is not None:
        return f"{name(where.file)}:{where.line}"
    return f"{name(where.file)} row {where.row}" if where.row is not None else name(where.file)


def differences(finding: Finding) -> tuple[FieldDifference, ...]:
    """The fields to show: the named one first, and one nameless entry where the rule is not a field's."""
    named = FieldDifference(name=finding.field or "", index=finding.index, values=finding.values)
    others = tuple(field for field in finding.fields if field.name != finding.field)
    if finding.field is None and others and all(value is None for value in finding.values.values()):
        return others
    return (named, *others)


def share_value(finding: Finding, share: Share, budget: int) -> str:
    """What a share holds; for a skipped event, whether its ranks recorded it."""
    if finding.field is None and share.value is None:
        if finding.rule != "skipped-event":
            return "breaks it"
        return "recorded" if share.ranks[0] in finding.where else "no such event"
    return share_text(share, max(budget, MAP_BUDGET) if isinstance(share.value, Mapping) else budget)


def finding_shares(finding: Finding, difference: FieldDifference) -> tuple[Share, ...]:
    """The shares of one field; ranks that lack a skipped event are apart from those that recorded it."""
    if finding.rule != "skipped-event" or any(value is not None for value in difference.values.values()):
        return shares(difference.values, difference.index)
    by_record: dict[bool, list[str]] = {}
    for rank in sorted(difference.values, key=rank_key):
        by_record.setdefault(rank in finding.where, []).append(rank)
    return tuple(Share(tuple(ranks), None) for ranks in by_record.values())


def brief_words(finding: Finding, budget: int = 30) -> str:
    """The named difference in a phrase: `correct_len: 3 on rank 0, 2 on rank 1`."""
    difference = differences(finding)[0]
    parts = []
    held = finding_shares(finding, difference)
    for share in held[:MOST_SHARES]:
        if share.value is None:
            text = share_value(finding, share, budget)
        else:
            whole = isinstance(share.value, Mapping)
            text = element_text(share, difference.index, max(budget, BRIEF_MAP_BUDGET) if whole else budget)
        parts.append(f"{text} on {ranks_words(share.ranks)}")
    if len(held) > MOST_SHARES:
        parts.append(f"{len(held) - MOST_SHARES:,} other values")
    field = f"{field_words(difference.name, difference.index)}: " if difference.name else ""
    return field + ", ".join(parts)


def link_words(finding: Finding, labels: dict[str, str]) -> str:
    """`+0 rounds, +1 event, +0.2 ms: derived from #1`; a cause that is not listed is named as such."""
    if not isinstance(finding.caused_by, str):
        return ""
    cause = labels.get(finding.caused_by, "a finding that is not shown")
    link = f"derived from {cause}" if finding.link == "derived" else f"after {cause}"
    return link if finding.lag is UNSET else f"{lag_words(finding.lag)}: {link}"


def named_ranks(world: int, ranks: Iterable[int], *, worlds: bool) -> list[RankName]:
    """Rank numbers of one world as names that tell the worlds apart if there are several."""
    return [f"{world}/{rank}" if worlds else rank for rank in ranks]
