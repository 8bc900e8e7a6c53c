"""The answer for one request, and its events with the ranks side by side."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from divtrace.align.groups import Group
from divtrace.errors import UsageError
from divtrace.report.answers import FirstDivergence, RequestResult, Shown, ShownEvent
from divtrace.report.build import Names, recorded_stages, replicas_of
from divtrace.report.findings import finding, finding_id, place, where
from divtrace.report.model import Tool
from divtrace.version import __version__
from divtrace.walk.compare import COMPARED
from divtrace.walk.divergence import Divergence
from divtrace.walk.judge import ReplicaWalk
from divtrace.walk.run import Walk


def first_divergence_of(
    walk: Walk, req: str, *, attempt: int | None = None, replica: int | None = None
) -> FirstDivergence:
    """The earliest finding of one request in every replica that served it.

    Raises:
        UsageError: no replica served the request; the message lists the nearest ids.
    """
    names = Names(walk)
    serving = _serving(walk, req, replica)
    results = []
    for one in serving:
        head = next((d for d in walk.roles.ordered if one.index in d.orders and concerns(d, req, attempt)), None)
        cause = walk.roles.causes.get(id(head))
        origin = cause.root if cause is not None else head
        results.append(
            RequestResult(
                world=one.world,
                replica=one.index,
                finding=None if head is None else finding(head, walk.roles, recorded_stages(walk, head), names.key),
                origin=None
                if origin is None
                else finding(origin, walk.roles, recorded_stages(walk, origin), names.key),
            )
        )
    return FirstDivergence(tool=Tool(__version__), req=req, attempt=attempt, results=tuple(results))


def is_judged(walk: Walk, req: str, attempt: int | None = None) -> bool:
    """True if all that comes before the earliest finding of a request was judged, and not only counted."""
    for one in replicas_of(walk):
        if not one.counted or one.scope is None:
            continue
        head = next((d for d in walk.roles.ordered if one.index in d.orders and concerns(d, req, attempt)), None)
        if head is not None and head.orders[one.index].step >= one.scope.parted_steps.stop:
            return False
    return True


def concerns(divergence: Divergence, req: str, attempt: int | None) -> bool:
    """True if a finding is of this request, or of a batch that holds it on some ranks only."""
    if divergence.key.req == req:
        return attempt is None or divergence.key.attempt == attempt
    for difference in divergence.differences:
        if difference.name == "batch":
            holds = {req in batch for batch in difference.values.values()}
            if len(holds) > 1:
                return True
    return False


def _serving(walk: Walk, req: str, replica: int | None) -> list[ReplicaWalk]:
    known = {one.index: _requests(one) for one in replicas_of(walk)}
    if replica is not None and replica not in known:
        raise UsageError(f"there is no replica {replica}", hint=f"replicas of this input: {', '.join(map(str, known))}")
    serving = [one for one in replicas_of(walk) if req in known[one.index] and replica in (None, one.index)]
    if not serving:
        everywhere = sorted(set().union(*(ids for index, ids in known.items() if replica in (None, index))))
        raise UsageError(f"no rank recorded request {req!a}", hint=_nearest(req, everywhere))
    return serving


def _requests(replica: ReplicaWalk) -> set[str]:
    found = {group.key.req for group in replica.groups if group.key.req is not None} | replica.requests.keys()
    for group in replica.groups:
        for record in group.records.values():
            found.update(record.event.batch or ())
    return found


def _nearest(req: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(req, known, n=5, cutoff=0.3) or list(known[:5])
    return f"nearest ids: {', '.join(ascii(one) for one in near)}" if near else "the input holds no request at all"


def show_request(walk: Walk, req: str, *, round_number: int | None = None, replica: int | None = None) -> Shown:
    """All events of a request, or of one of its rounds, in causal order, ranks side by side.

    Raises:
        UsageError: no replica served the request, or it has no such round.
    """
    names = Names(walk)
    events = []
    rounds: set[int] = set()
    for one in _serving(walk, req, replica):
        at = {divergence.key: divergence for divergence in one.divergences}
        for group in one.groups:
            if group.key.req != req:
                continue
            if group.key.round is not None:
                rounds.add(group.key.round)
            if round_number is None or group.key.round == round_number:
                events.append(_shown(one, group, at.get(group.key), names))
    if round_number is not None and not events:
        known = ", ".join(str(number) for number in sorted(rounds)[-5:]) or "none"
        raise UsageError(f"request {req!a} has no round {round_number}", hint=f"its last rounds: {known}")
    return Shown(tool=Tool(__version__), req=req, round=round_number, events=tuple(events))


def _shown(replica: ReplicaWalk, group: Group, divergence: Divergence | None, names: Names) -> ShownEvent:
    records = group.records | group.hidden
    values: dict[str, dict[str, Any] | None] = {}
    for rank in sorted(replica.views):
        record = records.get(rank)
        values[names.key(replica.world, rank)] = None if record is None else _recorded(record.event)
    return ShownEvent(
        world=replica.world,
        replica=replica.index,
        key=place(group),
        values=values,
        differing=() if divergence is None else tuple(one.name for one in divergence.differences),
        finding=None if divergence is None else finding_id(divergence),
        where={names.key(replica.world, rank): where(records[rank]) for rank in sorted(records)},
    )


_SHOWN_BESIDES = ("kv_slots", "comm_ranks", "src", "decided_on", "margin", "dummy", "error", "error_type", "note")


def _recorded(event: Any) -> dict[str, Any]:
    found = {name: value for name in (*COMPARED, *_SHOWN_BESIDES) if (value := getattr(event, name)) is not None}
    return found | {f"extra.{key}": value for key, value in sorted((event.extra or {}).items())}
