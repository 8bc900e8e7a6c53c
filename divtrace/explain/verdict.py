"""The verdict in one line, the notes, and the one next check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from divtrace.explain.coverage import place
from divtrace.explain.wording import counted, listed, ranks_phrase, short
from divtrace.sync_sites import token_for
from divtrace.trace.model import Record
from divtrace.walk.divergence import Divergence
from divtrace.walk.verdict import Outcome

WorldRank = tuple[int, int]


def rank_names(ranks: Iterable[WorldRank], many_worlds: bool) -> str:
    """`rank 1`, `ranks 0-2`, or with several worlds `ranks 0/1 and 1/0`."""
    known = list(ranks)
    if not many_worlds:
        return ranks_phrase(rank for _, rank in known)
    return listed([f"rank {world}/{rank}" for world, rank in known])


def where(divergence: Divergence) -> str:
    """The key of a finding in a few words."""
    key = divergence.key
    parts = [_moment(divergence)]
    if key.req is not None:
        parts.append(f"round {key.round} of {short(key.req)}" if key.round is not None else f"request {short(key.req)}")
    parts.append(key.stage if key.site is None else f"{key.stage}/{short(key.site).strip(chr(34))}")
    return ", ".join(parts)


def _moment(divergence: Divergence) -> str:
    if divergence.step is not None:
        return f"step {divergence.step}"
    communicator = divergence.communicator
    if communicator is None:
        return "the end of the logs" if divergence.outside else "start-up"
    name = communicator.comm or "an unnamed communicator"
    return name if communicator.comm_seq is None else f"{name} #{communicator.comm_seq}"


def summary(
    outcome: Outcome,
    first: Divergence | None,
    extent: str,
    ended_early: Sequence[tuple[WorldRank, Record]],
    many_worlds: bool,
) -> str:
    """The verdict in one line.

    Args:
        outcome: the verdict and its ranks.
        first: the first divergence.
        extent: how much was compared, as `extent_compared` says it.
        ended_early: ranks whose peers go on behind their last event, with that event.
        many_worlds: rank numbers repeat.
    """
    who = _capital(rank_names(outcome.ranks, many_worlds)) if outcome.ranks else ""
    match outcome.verdict:
        case "divergence" if first is not None:
            return f"Divergence: {first.rule} at {where(first)}."
        case "rank_failed":
            return f"{who} raised before issuing what the peers wait for; {extent}."
        case "rank_silent":
            return (
                f"{who} stopped earlier than the peers that wait for it: late, blocked or dead, undetermined; {extent}."
            )
        case "uniform_stall":
            return f"All ranks stopped at the same place and nobody waits for anybody; {extent}."
        case "insufficient":
            missing = f" {rank_names(outcome.ranks, many_worlds)} left no {outcome.lack};" if outcome.ranks else ""
            return f"Insufficient evidence:{missing} {extent}."
        case _:
            early = _early(ended_early, many_worlds)
            return f"Clean: {extent}{early}."


def extent_compared(ranks: int, replicas: int, rounds: int, requests: int, last_step: int | None) -> str:
    """How much was held against another rank and agreed."""
    if ranks < 2:
        return "nothing could be compared"
    upto = "" if last_step is None else f", compared up to step {last_step}"
    return (
        f"{counted(ranks, 'rank')} in {counted(replicas, 'replica')} agree in {counted(rounds, 'round')} "
        f"of {counted(requests, 'request')}{upto}"
    )


def extent_of_dumps(ranks: int, operations: int) -> str:
    """The same where only dumps were compared."""
    if not operations:
        return "nothing could be compared"
    return f"{counted(operations, 'operation')} of {counted(ranks, 'rank')} compared"


def _early(ended_early: Sequence[tuple[WorldRank, Record]], many_worlds: bool) -> str:
    if not ended_early:
        return ""
    (rank, record), *others = ended_early
    more = f" (and {counted(len(others), 'more rank')})" if others else ""
    return f"; {rank_names([rank], many_worlds)} only up to {place(record)}{more}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def next_check(
    outcome: Outcome,
    first: Divergence | None,
    absent: Sequence[WorldRank],
    missing_fields: Sequence[str],
    many_worlds: bool,
) -> list[str]:
    """One check that would separate the remaining explanations."""
    if first is not None:
        return [_next_for(first)]
    who = rank_names(outcome.ranks, many_worlds) if outcome.ranks else ""
    match outcome.verdict:
        case "rank_failed":
            return [f"Read the log of {who} around its error; its traceback says what raised before the collective."]
        case "rank_silent":
            text = f"Look for {who} in the engine's log and with py-spy dump: an exception, a kill, "
            return [text + "or a stack that still moves."]
        case "uniform_stall":
            text = "Take two py-spy dumps of all ranks a minute apart: a stack that moves is slow, "
            return [text + "one that does not is stuck below the engine."]
        case "insufficient" if absent:
            return [f"Hand in the trace of {rank_names(absent, many_worlds)}, or the log that tells how it ended."]
        case "insufficient":
            fields = listed(list(missing_fields[:3])) or "the decisions"
            return [f"Record {fields} on every rank and run again; nothing that two ranks share was recorded."]
        case _:
            return []


def _next_for(first: Divergence) -> str:
    token = token_for(first.key.site)
    if token is not None and first.rule not in ("sync-group", "sync-overridden"):
        return (
            f"Run again with SGLANG_SPEC_TP_SYNC=all, then with all,-{token}: if the divergence comes only with "
            f"{token} taken out, the ranks' own values differ there; if it stays with all, the sync itself does "
            "not take effect."
        )
    from divtrace.rules import RULES

    return RULES[first.rule].look_next[0]


def notes(
    *,
    healed_without_after: int,
    overridden: int,
    by_clock: bool,
    meta_conflict: bool,
    no_decision: bool,
    by_evidence: bool = False,
    tokens_apart: bool,
) -> list[str]:
    """What a reader should know besides the findings."""
    found = []
    if by_clock:
        found.append(
            "Several replicas diverged and no shared collective orders them: which one is named first follows from "
            "wall clocks of different ranks, which may be off."
        )
    if meta_conflict:
        found.append("The ranks' metas disagree in what they must share; the groups are taken from the lowest rank.")
    if tokens_apart:
        found.append(
            "Ranks of one replica recorded token ids in different ways (plain, hashed with other keys, or not at all): "
            "their tokens are compared only where they were recorded alike."
        )
    if healed_without_after:
        found.append(
            f"{counted(healed_without_after, 'difference')} before a sync with nothing recorded after it: "
            "neither healed nor a finding."
        )
    if overridden:
        found.append(f"{counted(overridden, 'synced value')} replaced by one and the same other value on all ranks.")
    if by_evidence:
        found.append("There is no trace: the verdict rests on flight-recorder dumps and logs, which hold no decisions.")
    elif no_decision:
        found.append("No decision was recorded: the verdict rests on collectives and host records alone.")
    return found
