"""Sentences about what was and was not compared."""

from __future__ import annotations

from divtrace.align.view import RankView
from divtrace.explain.wording import counted, listed, short
from divtrace.trace.model import Record
from divtrace.walk.skips import Unseen


def no_trace() -> str:
    """Why an expected rank is not compared at all."""
    return "no trace of this rank in the input"


def place(record: Record) -> str:
    """An event in a few words: `seq 812, step 304, verify/target, round 7 of "A"`."""
    event = record.event
    parts = [] if event.seq is None else [f"seq {event.seq}"]
    if event.step is not None:
        parts.append(f"step {event.step}")
    parts.append(event.stage if event.site is None else f"{event.stage}/{short(event.site).strip(chr(34))}")
    if event.req is not None:
        parts.append(
            f"round {event.round} of {short(event.req)}" if event.round is not None else f"request {short(event.req)}"
        )
    return ", ".join(parts)


def reasons(view: RankView, unseen: Unseen, last: Record | None) -> list[str]:
    """Why parts of a rank's trace are not compared, one sentence each; empty if all of it is."""
    found = []
    if unseen.after_last and last is not None:
        found.append(f"its last event is {place(last)}; what its peers recorded after it is not compared")
    if unseen.before_first:
        found.append("its trace begins later than its peers'; what they recorded before is not compared")
    if view.trace.gaps or view.invisible_loss:
        found.append(_losses(view, unseen))
    if unseen.no_coverage:
        sites = sorted(
            {f"{site.stage}/{short(site.site or '').strip(chr(34))}".rstrip("/") for site in unseen.no_coverage}
        )
        shown = listed(sites[:4] + ([f"{len(sites) - 4} more"] if len(sites) > 4 else []))
        found.append(f"it never records {shown}")
    return found


def _losses(view: RankView, unseen: Unseen) -> str:
    parts = []
    if view.trace.gaps:
        parts.append(f"{counted(len(view.trace.gaps), 'gap')} in seq ({counted(view.trace.lost, 'event')} missing)")
    if not view.trace.has_seq:
        parts.append("its records carry no seq, so lost events cannot be told")
    elif view.trace.dropped > view.trace.lost:
        parts.append(f"its recorder dropped {counted(view.trace.dropped, 'event')}")
    if unseen.hidden:
        parts.append("events that its peers recorded may be hidden by that")
    return ", ".join(parts)
