"""The plain life of a request, checked record by record as it comes, keeping values and no records.

Plain means: a chain, rounds one after another, their stages in causal order with one record each, nothing recorded
before a sync. Anything else is told by the answer UNUSUAL, and from then on `divtrace.sieve.request` takes over.
"""

from __future__ import annotations

from divtrace.events import Event

GOOD, SUSPECT, UNUSUAL = 0, 1, 2
"""Answers about a record."""

_NOTHING, _DRAFTED, _VERIFYING, _ACCEPTED, _COMMITTED = range(5)


class PlainRequest:
    """What the next record of one attempt of a request has to fit. Attributes are public for speed, not for use."""

    __slots__ = (
        "attempt",
        "bonus",
        "contested",
        "correct",
        "drafts",
        "extra",
        "greedy",
        "laid",
        "last_token",
        "new_seq_len",
        "number",
        "over_after",
        "progress",
        "req",
        "rounds",
        "skipped",
        "slot_index",
        "targets",
        "verify_len",
        "width",
        "windows",
    )

    def __init__(self, req: str, attempt: int, extra: int) -> None:
        """Start in front of the first round; `extra` is what a commit adds to the accepted drafts."""
        self.req, self.attempt, self.extra = req, attempt, extra
        self.number = -1
        self.rounds = 0
        self.skipped: set[int] = set()
        self.progress = _NOTHING
        self.new_seq_len: int | None = None
        self.last_token: int | None = None
        self.over_after: int | None = None
        self.slot_index = 0
        self.windows: dict[int, tuple[int, int, int, list[int]]] = {}
        self.contested = False
        self._empty()

    def _empty(self) -> None:
        self.drafts: list[int] | None = None
        self.targets: list[int] | None = None
        self.width: int | None = None
        self.verify_len: int | None = None
        self.correct: int | None = None
        self.bonus: int | None = None
        self.greedy: str | None = None
        self.laid = False

    def forget(self) -> None:
        """Continue nothing from here on."""
        self.number, self.progress = -1, _NOTHING
        self.new_seq_len = self.last_token = None
        self._empty()

    def begin(self, number: int) -> bool:
        """Begin a round; False if it does not follow the one before."""
        if self.number >= 0:
            if number != self.number + 1:
                return False
            if self.progress != _COMMITTED and self.number:
                self.new_seq_len = None
                self.last_token = self.bonus
        self.number = number
        self.progress = _NOTHING
        self._empty()
        return True

    def draft(self, event: Event) -> int:
        """A draft record."""
        if self.progress or event.draft_parents is not None or event.n or event.verify_len is not None:
            return UNUSUAL
        self.progress = _DRAFTED
        self.drafts, self.width = event.draft_tokens, event.num_draft_tokens
        root = event.draft_root
        return SUSPECT if root is not None and self.last_token is not None and root != self.last_token else GOOD

    def verify(self, event: Event) -> int:
        """A plan, a layout or the target's tokens."""
        if self.progress > _VERIFYING or event.draft_tokens is not None or event.correct_len is not None:
            return UNUSUAL
        self.progress = _VERIFYING
        answer = GOOD
        verify_len, first, targets = event.verify_len, event.seq_len, event.target_tokens
        if verify_len is not None:
            if self.verify_len is not None:
                return UNUSUAL
            self.verify_len = verify_len
            width = event.num_draft_tokens
            bounds = [bound for bound in (width, self.width) if bound is not None]
            if verify_len < 1 or (bounds and verify_len > min(bounds)):
                answer = SUSPECT
        positions = event.positions
        if positions is not None:
            if self.laid or first is None:
                return UNUSUAL
            self.laid = True
            if positions != list(range(first, first + len(positions))):
                return UNUSUAL
            if self.new_seq_len is not None and first != self.new_seq_len:
                answer = SUSPECT
        elif first is not None:
            return UNUSUAL
        if targets is not None:
            if self.targets is not None:
                return UNUSUAL
            self.targets, self.greedy = targets, event.branch
        return answer

    def accept(self, event: Event) -> int:
        """What was accepted."""
        if self.progress > _VERIFYING or event.out_tokens is not None or event.target_tokens is not None:
            return UNUSUAL
        self.progress = _ACCEPTED
        correct, path, drafts, verify_len = event.correct_len, event.accept_path, self.drafts, self.verify_len
        self.correct, self.bonus = correct, event.bonus
        if correct is None:
            return GOOD if path is None else UNUSUAL
        if (verify_len is not None and correct >= verify_len) or (drafts is not None and correct > len(drafts)):
            return SUSPECT
        if path is not None and (len(path) != correct + 1 or path != list(range(correct + 1))):
            return UNUSUAL
        tokens = self.targets
        if tokens is None or drafts is None or (event.branch or self.greedy) != "greedy":
            return GOOD
        if len(tokens) <= correct or event.cap_trim_len:
            return UNUSUAL
        limit = len(drafts) if verify_len is None else min(len(drafts), verify_len - 1)
        if drafts[:correct] != tokens[:correct] or (correct < limit and drafts[correct] == tokens[correct]):
            return SUSPECT
        return GOOD if event.bonus is None or event.bonus == tokens[correct] else SUSPECT

    def commit(self, event: Event) -> int:
        """What was committed."""
        if self.progress == _COMMITTED or event.correct_len is not None or event.bonus is not None:
            return UNUSUAL
        self.progress = _COMMITTED
        count, seq_len, out, correct = event.commit_len, event.seq_len, event.out_tokens, self.correct
        before, after = self.new_seq_len, event.new_seq_len
        self.new_seq_len = after
        self.last_token = self.bonus
        if event.finished:
            self.over_after = self.number
        if seq_len is not None:
            if before is not None and seq_len != before:
                return SUSPECT
            if count is not None and after is not None and after != seq_len + count:
                return SUSPECT
        if not self.number:
            return UNUSUAL
        if count is not None and correct is not None and count != correct + self.extra:
            return SUSPECT
        if out is None:
            return GOOD
        if count is not None:
            if len(out) < count:
                return SUSPECT
            if count > 0:
                self.last_token = out[count - 1]
        drafts, bonus = self.drafts, self.bonus
        if drafts is None or correct is None or bonus is None:
            return GOOD
        return GOOD if out[:correct] == drafts[:correct] and len(out) > correct and out[correct] == bonus else SUSPECT

    def prefill(self, event: Event) -> int:
        """A chunk of the prompt, and the first token."""
        if self.number:
            return UNUSUAL
        positions = event.positions
        if positions and positions != list(range(positions[0], positions[0] + len(positions))):
            return SUSPECT
        if event.new_seq_len is not None:
            self.new_seq_len = event.new_seq_len
        if event.bonus is not None:
            self.last_token = self.bonus = event.bonus
        elif event.out_tokens:
            self.last_token = event.out_tokens[-1]
        return GOOD


HANDLERS = {
    "draft": PlainRequest.draft,
    "verify": PlainRequest.verify,
    "accept": PlainRequest.accept,
    "commit": PlainRequest.commit,
    "prefill": PlainRequest.prefill,
}
"""By stage; a stage without one is unusual for a record with a round."""
