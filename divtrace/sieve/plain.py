"""The plain life of a request, checked as its records come, keeping values and no records of rounds that are over.

Plain means: a chain, rounds one after another, their stages in causal order with one record each, nothing recorded
before a sync. Anything else is told by the answer UNUSUAL, and from then on `divtrace.sieve.request` takes over.
"""

from __future__ import annotations

from collections.abc import Sequence

from divtrace.events import Event
from divtrace.sieve.counting import RoundCount
from divtrace.sieve.rising import rises_from

GOOD, SUSPECT, UNUSUAL = 0, 1, 2
"""Answers about a record."""

_MOST_RECORDS = 6
"""Records of a round that are taken in at once: draft, plan, layout, target, accept and commit."""
_NOTHING, _DRAFTED, _VERIFYING, _ACCEPTED, COMMITTED = range(5)


class PlainRequest:
    """What the next record of one attempt of a request has to fit. Attributes are public for speed, not for use."""

    __slots__ = (
        "answer",
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
        "open_round",
        "over_after",
        "pending",
        "progress",
        "req",
        "rounds",
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
        self.rounds = RoundCount()
        self.progress = _NOTHING
        self.new_seq_len: int | None = None
        self.last_token: int | None = None
        self.over_after: int | None = None
        self.slot_index = 0
        self.windows: dict[int, tuple[int, int, int]] = {}
        self.contested = False
        self.pending: list[Event] = []
        """Records of the open round that are checked when it is over, or when anything else happens."""
        self.open_round = -1
        """The round whose records may be left pending."""
        self.answer = GOOD
        # What the records of the open round told so far; without a meaning where there are none, or where it is over.
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
        self.new_seq_len = self.last_token = self.bonus = None

    def begin(self, number: int) -> bool:
        """Begin a round; False if it does not follow the one before."""
        if self.number >= 0:
            if number != self.number + 1:
                return False
            if self.progress != COMMITTED and self.number:
                self.new_seq_len = None
                self.last_token = self.bonus
        self.number = number
        self.progress = _NOTHING
        self.bonus = None
        return True

    def take(self, events: Sequence[Event]) -> int:
        """Hold records of the open round against what is known of it, and remember what they tell.

        Returns:
            The index of the first record that is not good, with the answer about it in `answer`; the records behind it
            were not looked at. -1 if all are good.
        """
        progress, bonus = self.progress, self.bonus
        if len(events) == _MOST_RECORDS and not progress and self._take_at_once(*events):
            return -1
        drafts = targets = width = verify_len = correct = greedy = None
        laid = False
        if progress:
            drafts, targets, width, laid = self.drafts, self.targets, self.width, self.laid
            verify_len, correct, greedy = self.verify_len, self.correct, self.greedy
        answer = GOOD
        index = -1
        for index, event in enumerate(events):  # noqa: B007 - the index is the answer
            stage = event.stage
            if stage == "verify":
                if progress > _VERIFYING or event.draft_tokens is not None or event.correct_len is not None:
                    answer = UNUSUAL
                    break
                progress = _VERIFYING
                rows, first, tokens, positions = event.verify_len, event.seq_len, event.target_tokens, event.positions
                if rows is not None:
                    if verify_len is not None:
                        answer = UNUSUAL
                        break
                    verify_len = rows
                    own = event.num_draft_tokens
                    if rows < 1 or (width is not None and rows > width) or (own is not None and rows > own):
                        answer = SUSPECT
                if positions is not None:
                    if laid or first is None or not rises_from(first, positions):
                        answer = UNUSUAL
                        break
                    laid = True
                    if first != self.new_seq_len and self.new_seq_len is not None:
                        answer = SUSPECT
                elif first is not None:
                    answer = UNUSUAL
                    break
                if tokens is not None:
                    if targets is not None:
                        answer = UNUSUAL
                        break
                    targets, greedy = tokens, event.branch
                if answer:
                    break
            elif stage == "draft":
                if progress or event.draft_parents is not None or event.n or event.verify_len is not None:
                    answer = UNUSUAL
                    break
                progress = _DRAFTED
                drafts, width, root = event.draft_tokens, event.num_draft_tokens, event.draft_root
                if root != self.last_token and root is not None and self.last_token is not None:
                    answer = SUSPECT
                    break
            elif stage == "accept":
                if progress > _VERIFYING or event.out_tokens is not None or event.target_tokens is not None:
                    answer = UNUSUAL
                    break
                progress = _ACCEPTED
                correct, bonus = event.correct_len, event.bonus
                answer = _accepts(event, drafts, targets, verify_len, greedy)
                if answer:
                    break
            elif stage == "commit":
                if progress == COMMITTED or event.correct_len is not None or event.bonus is not None:
                    answer = UNUSUAL
                    break
                progress = COMMITTED
                answer = self._commits(event, drafts, correct, bonus)
                if answer:
                    break
            elif stage == "prefill":
                answer = self._prefills(event)
                if answer:
                    break
                bonus = event.bonus if event.bonus is not None else bonus
            else:
                answer = UNUSUAL
                break
        else:
            index = -1
        self.progress, self.answer = progress, answer
        if progress != COMMITTED:
            self.drafts, self.targets, self.width, self.laid = drafts, targets, width, laid
            self.verify_len, self.correct, self.bonus, self.greedy = verify_len, correct, bonus, greedy
        return index

    def _take_at_once(
        self, draft: Event, plan: Event, layout: Event, target: Event, accept: Event, commit: Event
    ) -> bool:
        """Take in a round at once if it has these records and all are good; if not, nothing is taken in.

        What most rounds are is asked here without asking what they might be instead.
        """
        if draft.stage != "draft" or accept.stage != "accept" or commit.stage != "commit":
            return False
        if plan.stage != "verify" or layout.stage != "verify" or target.stage != "verify":
            return False
        drafts, width, root = draft.draft_tokens, draft.num_draft_tokens, draft.draft_root
        rows, first, positions = plan.verify_len, layout.seq_len, layout.positions
        tokens, out, path = target.target_tokens, commit.out_tokens, accept.accept_path
        correct, bonus, count, after = accept.correct_len, accept.bonus, commit.commit_len, commit.new_seq_len
        before = self.new_seq_len
        if drafts is None or out is None or correct is None or count is None or after is None or bonus is None:
            return False
        if root != self.last_token or commit.seq_len != before or correct < 0 or count != correct + self.extra:
            return False
        if before is None or after != before + count or len(out) < count:
            return False
        if positions is None:
            if first is not None:
                return False
        elif first is None or first != before or not rises_from(first, positions):
            return False
        if rows is not None and (width is None or not correct < rows <= width or plan.num_draft_tokens is not None):
            return False
        if path is not None and (len(path) != correct + 1 or not rises_from(0, path)):
            return False
        accepted = drafts[:correct]
        if len(accepted) != correct or out[:correct] != accepted or out[correct] != bonus:
            return False
        if tokens is not None and (accept.branch or target.branch) == "greedy":
            if len(tokens) <= correct or tokens[:correct] != accepted or tokens[correct] != bonus:
                return False
            limit = len(drafts) if rows is None or rows > len(drafts) else rows - 1
            if correct < limit and drafts[correct] == bonus:
                return False
        if commit.finished or not self.number or _has_others(draft, plan, layout, target, accept, commit):
            return False
        self.progress, self.answer = COMMITTED, GOOD
        self.new_seq_len, self.last_token = after, out[count - 1]
        return True

    def _commits(self, event: Event, drafts: list[int] | None, correct: int | None, bonus: int | None) -> int:
        """What was committed."""
        count, seq_len, out = event.commit_len, event.seq_len, event.out_tokens
        before, after = self.new_seq_len, event.new_seq_len
        self.new_seq_len = after
        self.last_token = bonus
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
        if drafts is None or correct is None or bonus is None:
            return GOOD
        return GOOD if out[:correct] == drafts[:correct] and len(out) > correct and out[correct] == bonus else SUSPECT

    def _prefills(self, event: Event) -> int:
        """A chunk of the prompt, and the first token."""
        if self.number:
            return UNUSUAL
        positions = event.positions
        if positions and not rises_from(positions[0], positions):
            return SUSPECT
        if event.new_seq_len is not None:
            self.new_seq_len = event.new_seq_len
        if event.bonus is not None:
            self.last_token = event.bonus
        elif event.out_tokens:
            self.last_token = event.out_tokens[-1]
        return GOOD


def _has_others(draft: Event, plan: Event, layout: Event, target: Event, accept: Event, commit: Event) -> bool:
    """Whether a record of a round has what another one of them is to have, or what no plain round has."""
    return (
        draft.verify_len is not None
        or draft.draft_parents is not None
        or bool(draft.n)
        or bool(accept.cap_trim_len)
        or plan.draft_tokens is not None
        or plan.correct_len is not None
        or plan.positions is not None
        or plan.seq_len is not None
        or plan.target_tokens is not None
        or layout.draft_tokens is not None
        or layout.correct_len is not None
        or layout.verify_len is not None
        or layout.target_tokens is not None
        or target.draft_tokens is not None
        or target.correct_len is not None
        or target.verify_len is not None
        or target.positions is not None
        or target.seq_len is not None
        or accept.out_tokens is not None
        or accept.target_tokens is not None
        or commit.correct_len is not None
        or commit.bonus is not None
    )


def _accepts(
    event: Event, drafts: list[int] | None, tokens: list[int] | None, verify_len: int | None, greedy: str | None
) -> int:
    """What was accepted."""
    correct, path = event.correct_len, event.accept_path
    if correct is None:
        return GOOD if path is None else UNUSUAL
    if (verify_len is not None and correct >= verify_len) or (drafts is not None and correct > len(drafts)):
        return SUSPECT
    if path is not None and (len(path) != correct + 1 or not rises_from(0, path)):
        return UNUSUAL
    if tokens is None or drafts is None or (event.branch or greedy) != "greedy":
        return GOOD
    if len(tokens) <= correct or event.cap_trim_len:
        return UNUSUAL
    limit = len(drafts) if verify_len is None else min(len(drafts), verify_len - 1)
    if drafts[:correct] != tokens[:correct] or (correct < limit and drafts[correct] == tokens[correct]):
        return SUSPECT
    return GOOD if event.bonus is None or event.bonus == tokens[correct] else SUSPECT
