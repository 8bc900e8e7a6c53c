"""The one sentence about a finding: what was observed, and what it is consistent with.

Wording levels (SPEC section 6): *observed*, *consistent with*, *not shown*. Never a cause, never a culprit.
"""

from __future__ import annotations

from collections.abc import Collection

from divtrace.explain.wording import listed, ranks_phrase, same_values, short
from divtrace.walk.divergence import Divergence

_DERIVATIONS = ("accept-derivation", "path-derivation", "out-token-derivation", "commit-arithmetic")
_INPUTS = {
    "target-tokens": "target tokens",
    "draft-tokens": "draft tokens",
    "draft-tree": "draft tree",
    "accept-length": "accepted length",
    "accept-path": "accepted path",
    "bonus-token": "bonus token",
    "commit-length": "committed length",
    "sequence-length": "sequence length",
    "batch-membership": "batch",
    "verify-plan": "verify plan",
    "launch-shape": "launch",
}
_UPSTREAM = {
    "accept": ("draft", "verify"),
    "commit": ("draft", "accept"),
    "collective": (),
}


def attribution(divergence: Divergence, cause: Divergence | None, recorded_stages: Collection[str]) -> str:
    """One sentence about a finding.

    Args:
        divergence: the finding.
        cause: the earlier finding that it is derived from, if any.
        recorded_stages: stages of which the replica recorded anything, for the statement of upstream blindness.
    """
    parts = [_observed(divergence)]
    own = _own_inputs(divergence)
    if own:
        parts.append(own)
    if cause is not None:
        parts.append(_follows(cause))
    elif divergence.odd_ranks:
        parts.append(_odd(divergence))
    elif len(divergence.ranks) > 1 and not divergence.cycle:
        parts.append("which of them is odd is undetermined")
    blind = [stage for stage in _UPSTREAM.get(divergence.key.stage, ()) if stage not in recorded_stages]
    if cause is None and blind:
        parts.append(
            f"this is first observed here, since {listed(blind)} {'was' if len(blind) == 1 else 'were'} not recorded"
        )
    return f"{'; '.join(parts)}.{' ' if divergence.remark else ''}{divergence.remark}"


def _observed(divergence: Divergence) -> str:
    if divergence.cycle:
        names = [f"rank {rank} in {short(divergence.values.get(rank))}" for rank in divergence.cycle]
        return f"Crossed order: {listed(names)} wait for one another"
    who = _capital(ranks_phrase(divergence.ranks))
    match divergence.rule:
        case "skipped-event":
            lacking = [rank for rank in divergence.ranks if divergence.records.get(rank) is None]
            others = [rank for rank in divergence.ranks if rank not in lacking]
            return (
                f"{_capital(ranks_phrase(lacking))} went on without this event, which {ranks_phrase(others)} recorded"
            )
        case "sync-group":
            expected = "communicator" if divergence.field == "comm_ranks" else "source"
            return f"{who} synced over another {expected} than the sync group's: {_values(divergence)}"
        case "sync-overridden":
            return f"{who} went on with another value than the sync gave: {_values(divergence)}"
        case "sync-ineffective":
            return f"Values still differ right after the sync: {_values(divergence)}"
        case _ if divergence.field is not None:
            return f"Observed: {_values(divergence)}"
    broken = next((one for one in divergence.breaks if one.rule == divergence.rule), None)
    details = (
        "" if broken is None else f" ({listed([f'{name} {short(value)}' for name, value in broken.values.items()])})"
    )
    return f"{who} {'breaks' if len(divergence.ranks) == 1 else 'break'} {divergence.rule}{details}"


def _values(divergence: Divergence) -> str:
    index = divergence.index
    name = divergence.field if index is None else f"{divergence.field}[{index}]"
    if divergence.rule == "batch-membership":
        return _batches(divergence)
    parts = [f"{short(value, index)} on {ranks_phrase(ranks)}" for value, ranks in _by_element(divergence)]
    shown = parts if len(parts) <= 4 else [*parts[:3], f"{len(parts) - 3} more values"]
    return f"{name} is {listed(shown)}"


def _by_element(divergence: Divergence) -> list[tuple[object, tuple[int, ...]]]:
    index = divergence.index
    if index is None:
        return same_values(divergence.values)
    elements = {rank: value[index : index + 1] for rank, value in divergence.values.items()}
    return [(divergence.values[ranks[0]], ranks) for _, ranks in same_values(elements)]


def _batches(divergence: Divergence) -> str:
    sizes = [f"{len(value)} requests on {ranks_phrase(ranks)}" for value, ranks in same_values(divergence.values)]
    everywhere = set.intersection(*(set(value) for value in divergence.values.values()))
    anywhere = set().union(*divergence.values.values())
    only = sorted(anywhere - everywhere)
    shown = listed([short(req) for req in only[:3]] + ([f"{len(only) - 3} more"] if len(only) > 3 else []))
    return f"the batch has {listed(sizes[:4])}; not everywhere: {shown}"


def _own_inputs(divergence: Divergence) -> str | None:
    """Whether the ranks' values follow from their own inputs."""
    against = sorted(
        {
            rank
            for rank, record in divergence.records.items()
            for one in divergence.breaks
            if one.record is record and one.rule in _DERIVATIONS
        }
    )
    if divergence.differences and against:
        return f"{ranks_phrase(against)} {'contradicts its' if len(against) == 1 else 'contradict their'} own inputs"
    return None


def _follows(cause: Divergence) -> str:
    what = _INPUTS.get(cause.rule, cause.rule)
    where = "" if cause.index is None else f", which differ at index {cause.index}"
    return f"consistent with following from each rank's own {what}{where}"


def _odd(divergence: Divergence) -> str:
    verb = "differs" if len(divergence.odd_ranks) == 1 else "differ"
    who = ranks_phrase(divergence.odd_ranks)
    if divergence.source_rank is not None:
        return f"{who} {verb} from the recorded sync source, rank {divergence.source_rank}"
    if set(divergence.odd_ranks) == set(divergence.ranks) or not divergence.differences:
        return f"{who} {'stands' if len(divergence.odd_ranks) == 1 else 'stand'} alone with it"
    if 2 * len(divergence.odd_ranks) < len(divergence.ranks):
        return f"{who} {verb} from the majority, which is not the same as being wrong"
    breaks = "breaks" if len(divergence.odd_ranks) == 1 else "break"
    return f"{who} {verb}, and {breaks} an invariant at this very event"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
