"""What the sieve remembers of a live request: its open rounds, and whether the invariants hold in them.

The ranks agree while this is used, so one rank's records stand for all. `_Chain` covers the plain shape of a round (a
chain, one record each, nothing before a sync); any other shape goes through the very checks of the walk.
"""

from __future__ import annotations

import msgspec

from divtrace.events import Event
from divtrace.sieve.counting import RoundCount
from divtrace.walk.settings import added_by_commit


class LiveRequest(msgspec.Struct, eq=False):
    """One attempt of a request on ranks that agree about it."""

    req: str
    attempt: int
    number: int = -1
    """The older of at most two open rounds; -1 for none."""
    events: list[Event] = msgspec.field(default_factory=list)
    later_number: int = -1
    later_events: list[Event] = msgspec.field(default_factory=list)
    """A round may begin before the one before it is over: drafts are written early, commits late."""
    closed_number: int = -2
    """The last round that was checked; the next one continues it."""
    closed_events: list[Event] = msgspec.field(default_factory=list)
    closed_unusual: bool = False
    new_seq_len: int | None = None
    last_token: int | None = None
    rounds: RoundCount = msgspec.field(default_factory=RoundCount)
    restarted: bool = False
    """A schedule event retracted or extended it since the last check of a round."""
    over_after: int | None = None
    """The round in which it finished; the one behind it is overshoot."""
    slot_index: int = 0
    windows: dict[int, tuple[int, int, int]] = msgspec.field(default_factory=dict)
    """Its last rows on each rank: first and last position, first slot if slots and positions run on by one (else -1),
    and the slots."""
    open_round: int = -1
    """None of its rounds is left pending; see `PlainRequest`."""
    contested: bool = False
    """One of its slots went to another request; if it goes on, both are suspects."""

    def forget_rounds(self) -> None:
        """Continue nothing from here on."""
        self.number = self.later_number = -1
        self.events, self.later_events, self.closed_events = [], [], []
        self.closed_number = -2
        self.new_seq_len = self.last_token = None


class _Chain:
    """The records of a round by what they tell; `unusual` if two tell the same, or one tells what it should not."""

    __slots__ = ("accept", "commit", "draft", "layout", "plan", "prefill", "target", "unusual")

    def __init__(self, number: int, events: list[Event]) -> None:
        self.draft = self.plan = self.layout = self.target = self.accept = self.commit = self.prefill = None
        draft = plan = layout = target = accept = commit = prefill = None
        unusual = False
        for event in events:
            stage = event.stage
            if event.phase is not None and event.phase != "used":
                unusual = True
            if stage == "verify":
                if event.positions is not None:
                    unusual = unusual or layout is not None
                    layout = event
                elif event.seq_len is not None:
                    unusual = True
                if event.target_tokens is not None:
                    unusual = unusual or target is not None
                    target = event
                if event.verify_len is not None:
                    unusual = unusual or plan is not None
                    plan = event
                if event.draft_tokens is not None or event.correct_len is not None or event.bonus is not None:
                    unusual = True
            elif stage == "draft":
                if draft is not None or event.draft_parents is not None or event.n or event.verify_len is not None:
                    unusual = True
                draft = event
            elif stage == "accept":
                if accept is not None or event.out_tokens is not None or event.target_tokens is not None:
                    unusual = True
                accept = event
            elif stage == "commit":
                if commit is not None or event.correct_len is not None or event.bonus is not None:
                    unusual = True
                commit = event
            elif stage == "prefill" and not number and prefill is None:
                prefill = event
            else:
                unusual = True
        self.draft, self.plan, self.layout, self.target = draft, plan, layout, target
        self.accept, self.commit, self.prefill, self.unusual = accept, commit, prefill, unusual


def _holds(live: LiveRequest, chain: _Chain, number: int, extra: int) -> bool:
    """True if the invariants surely hold in a plain chain round, as far as their inputs are recorded.

    False means that `holds_exactly` has to look: padding, unknown shapes and the like are not weighed here. `extra` is
    what a commit adds to the accepted drafts: 1, or 2 with UNO.
    """
    prefill, layout, draft, plan = chain.prefill, chain.layout, chain.draft, chain.plan
    if prefill is not None and prefill.positions:
        first = prefill.positions[0]
        if prefill.positions != list(range(first, first + len(prefill.positions))):
            return False
    before = live.new_seq_len
    if layout is not None and layout.seq_len is not None:
        first, positions = layout.seq_len, layout.positions
        if (before is not None and first != before) or (
            positions and positions != list(range(first, first + len(positions)))
        ):
            return False
    verify_len = drafts = None
    if draft is not None:
        drafts = draft.draft_tokens
        if draft.draft_root is not None and live.last_token is not None and draft.draft_root != live.last_token:
            return False
    if plan is not None:
        verify_len = plan.verify_len
        if verify_len is not None:
            width = plan.num_draft_tokens
            if verify_len < 1 or (width is not None and verify_len > width):
                return False
            if draft is not None and draft.num_draft_tokens is not None and verify_len > draft.num_draft_tokens:
                return False
    accept, commit = chain.accept, chain.commit
    correct = bonus = None
    if accept is not None:
        correct, bonus = accept.correct_len, accept.bonus
        if not _accepts(accept, chain.target, drafts, verify_len):
            return False
    if commit is None:
        return True
    count, seq_len, out = commit.commit_len, commit.seq_len, commit.out_tokens
    if seq_len is not None:
        if before is not None and seq_len != before:
            return False
        if count is not None and commit.new_seq_len is not None and commit.new_seq_len != seq_len + count:
            return False
    if not number:
        return True
    if count is not None and (
        (correct is not None and count != correct + extra) or (out is not None and len(out) < count)
    ):
        return False
    if out is None or drafts is None or correct is None or bonus is None:
        return True
    return out[:correct] == drafts[:correct] and len(out) > correct and out[correct] == bonus


def _accepts(accept: Event, target: Event | None, drafts: list[int] | None, verify_len: int | None) -> bool:
    correct, path = accept.correct_len, accept.accept_path
    if correct is None:
        return path is None
    if (verify_len is not None and correct >= verify_len) or (drafts is not None and correct > len(drafts)):
        return False
    if path is not None and (len(path) != correct + 1 or path != list(range(correct + 1))):
        return False
    if target is None or drafts is None:
        return True
    branch, tokens = accept.branch or target.branch, target.target_tokens
    if (branch is not None and branch != "greedy") or tokens is None:
        return True
    if len(tokens) <= correct or (accept.cap_trim_len and verify_len is None) or drafts[:correct] != tokens[:correct]:
        return False
    limit = len(drafts) if verify_len is None else min(len(drafts), verify_len - 1)
    if correct < limit and drafts[correct] == tokens[correct]:
        return False
    return accept.bonus is None or accept.bonus == tokens[correct]


def close_round(live: LiveRequest, number: int, events: list[Event], algorithm: str | None) -> bool:
    """Check a round that is complete and take over what the next one continues from; False if something breaks."""
    if live.closed_number != number - 1 or live.restarted:
        live.closed_number, live.closed_events, live.closed_unusual = -2, [], False
        live.new_seq_len = live.last_token = None
    chain = _Chain(number, events)
    extra = added_by_commit(algorithm)
    good = True
    if live.over_after is None or number != live.over_after + 1:
        plain = not chain.unusual and not live.closed_unusual
        good = plain and _holds(live, chain, number, extra)
        if not good:
            # Most runs have plain rounds only, and never load the walk's checks.
            from divtrace.sieve.exact import holds_exactly

            good = holds_exactly(live, number, events, algorithm)
    commit, accept, prefill = chain.commit, chain.accept, chain.prefill
    live.new_seq_len = None
    live.last_token = accept.bonus if accept is not None else None
    if prefill is not None:
        live.new_seq_len, live.last_token = prefill.new_seq_len, prefill.bonus
        if prefill.bonus is None and prefill.out_tokens:
            live.last_token = prefill.out_tokens[-1]
    if commit is not None:
        if commit.new_seq_len is not None:
            live.new_seq_len = commit.new_seq_len
        if commit.out_tokens and commit.commit_len and 0 < commit.commit_len <= len(commit.out_tokens):
            live.last_token = commit.out_tokens[commit.commit_len - 1]
    live.closed_number, live.closed_events, live.closed_unusual = number, events, chain.unusual
    live.restarted = False
    return good
