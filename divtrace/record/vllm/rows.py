"""The requests of one step of a vLLM runner, and the events that follow from the values of their rows."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from divtrace.record.rounds import Rounds


class Row:
    """One request of the current step."""

    __slots__ = ("attempt", "chunk", "drafts", "partial", "prefill", "req", "round", "rows", "start")

    def __init__(self, req: str, start: int, rows: int, drafts: int) -> None:
        self.req = req
        self.start = start
        self.rows = rows
        self.drafts = drafts
        self.attempt = 0
        self.round = 0
        self.chunk = 0
        self.prefill = False
        self.partial = False
        """A part of a prefill that yields no token."""

    def key(self, stage: str, site: str, step: int | None) -> dict[str, Any]:
        """The identity of an event about this request."""
        event: dict[str, Any] = {"step": step, "req": self.req, "round": self.round, "stage": stage, "site": site}
        if self.attempt:
            event["attempt"] = self.attempt
        if self.prefill and self.chunk:
            event["n"] = self.chunk
        return event


def plan_rows(
    rounds: Rounds, requests: list[str], counts: list[int], drafts: list[int], partial: list[bool]
) -> list[Row]:
    """The rows of a step in batch order: who is in which round; moves the rounds on."""
    planned, start = [], 0
    for req, count, draft, is_partial in zip(requests, counts, drafts, partial, strict=True):
        row = Row(req, start, count, draft)
        position = rounds.of(req)
        row.attempt, row.round, row.chunk = position.attempt, position.round, position.chunk
        row.prefill = position.round == 0
        row.partial = is_partial
        if is_partial:
            position.chunk += 1
        else:
            position.round += 1
        start += count
        planned.append(row)
    return planned


def next_draft(row: Row, site: str, step: int | None) -> dict[str, Any]:
    """The identity of a draft for the round after this row's."""
    event: dict[str, Any] = {"stage": "draft", "site": site, "step": step, "req": row.req, "round": row.round + 1}
    if row.attempt:
        event["attempt"] = row.attempt
    return event


def layout_events(
    rows: list[Row],
    step: int | None,
    starts: list[int],
    input_ids: list[int],
    positions: list[int],
    slots: list[int] | None = None,
) -> list[dict[str, Any]]:
    """Layout, plan and input of every request: one event for a prefill, three for a verify.

    `starts` are the row starts and the end; the device's own where it may hand out the drafts of a step unevenly.
    """
    events = []
    for index, row in enumerate(rows):
        part = slice(starts[index], starts[index + 1])
        stage = "prefill" if row.prefill else "verify"
        layout = row.key(stage, "layout", step)
        layout.update(row=index, seq_len=positions[part][0], positions=positions[part])
        if slots is not None:
            layout.update(kv_positions=positions[part], kv_slots=slots[part])
        events.append(layout)
        if row.prefill:
            continue
        tokens = input_ids[part]
        events.append({**row.key(stage, "plan", step), "num_draft_tokens": row.drafts + 1, "verify_len": len(tokens)})
        events.append({**row.key(stage, "input", step), "draft_root": tokens[0], "draft_tokens": tokens[1:]})
    return events


def decisions(logits: Any) -> list[Any]:
    """The target's token of every row of the logits, and how far the next one is behind; both on the device."""
    top = logits.topk(2, dim=-1).values
    return [logits.argmax(dim=-1), top[:, 0] - top[:, 1]]


def decided(targets: list[int], margins: list[float], part: slice) -> dict[str, Any]:
    """The fields of one request's target tokens. A mask may leave one token only; there is no margin then."""
    fields: dict[str, Any] = {"target_tokens": targets[part]}
    margin = min(margins[part], default=math.inf)
    if math.isfinite(margin):
        fields["margin"] = round(margin, 5)
    return fields


def accept_events(
    all_rows: list[Row],
    rows: list[tuple[int, Row]],
    branches: list[str],
    step: int | None,
    sampled: list[list[int]],
    targets: list[int] | None = None,
    margins: list[float] | None = None,
) -> list[dict[str, Any]]:
    """What the sampler took for every row that yields tokens; the target's tokens where the greatest logit decides."""
    starts, total = [], 0
    for row in all_rows:
        starts.append(total)
        total += row.drafts + 1
    events = []
    for index, row in rows:
        tokens = [token for token in sampled[index] if token >= 0]
        branch = branches[index]
        target: dict[str, Any] = {}
        if targets is not None and margins is not None:
            target = decided(targets, margins, slice(starts[index], starts[index] + row.drafts + 1))
        if row.prefill:
            first = {"branch": branch, "bonus": tokens[-1] if tokens else None}
            events.append({**row.key("prefill", "target", step), **target, **first})
            continue
        if target:
            events.append({**row.key("verify", "target", step), **target, "branch": branch})
        accept = row.key("accept", "rejection-sampler", step)
        accept.update(branch=branch, correct_len=len(tokens) - 1, bonus=tokens[-1] if tokens else None)
        events.append(accept)
    return events
