"""The desync report of `TORCH_NCCL_DESYNC_DEBUG=1` (torch `TraceUtils.h`): several lines, ranks inside the group."""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Finding, Operation
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where
from divtrace.evidence.naming import canonical_operation

LITERALS = ("Timeout at collective:", "desync are:")
_LIMIT = 400
_RANKS = r"\[(?P<ranks>\d[\d, \-]{0,20000})\]"

_TITLE = re.compile(r"^(?:\[[^\]]{1,200}\] )?Rank \d{1,7}\s*$")
_HEAD = re.compile(r"- \[(?P<rank>\d{1,7})\] Timeout at collective: (?P<op>\w{1,60}), #(?P<number>\d{1,18})")
_NOT_JOINED = re.compile(
    rf"{_RANKS} finished collective #(?P<done>\d{{1,18}}), but didn't join collective #(?P<number>\d{{1,18}})"
)
_NOT_FINISHED = re.compile(rf"{_RANKS} joined but didn't finish collective #(?P<number>\d{{1,18}})")
_NEVER = re.compile(rf"{_RANKS} are the lagging ranks that caused this timeout\. They never joined any collectives")
_STATE = re.compile(r"#(?P<number>\d{1,18}) (?:finished|started) ranks:")
_IN_STATE = re.compile(rf"{_RANKS} (?P<state>finished|started) (?P<op>\w{{1,60}})")
_PART = re.compile(r"^\s*(?:-|#|\[\d|$)|To our best knowledge|latest states|finished ranks|started ranks")


def ranks_of(text: str, limit: int = 1 << 20) -> tuple[int, ...]:
    """The ranks in `0, 3-5`, in order of size; a range that is too long or runs backwards gives none."""
    found: set[int] = set()
    for part in re.split(r"[,\s]+", text.strip()):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            return ()
        low, high = int(first), int(last) if dash else int(first)
        if high < low or high - low > limit:
            return ()
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """The report from its first line on."""
    if "Timeout at collective:" not in line.text:
        # The first line was read, or is missing: without it nothing tells whose report this is.
        return None
    head = more.match(_HEAD)
    if head is None:
        return None
    above = more.before if line.bare else None
    if above is not None and _TITLE.match(above.text):
        # The report is one message of many lines, of which only the first has a prefix.
        line.adopt(above)
    found: list[Finding] = [
        Operation(
            source="log",
            format="nccl-desync",
            place=where.place(line),
            rank=line.rank,
            group_rank=int(head["rank"]),
            number=int(head["number"]),
            op=canonical_operation(head["op"]),
            state="timeout",
            time=line.time,
            text=head[0],
        )
    ]
    states: dict[str, list[str]] = {}
    number = ""
    for distance, follower in enumerate(more, 1):
        text = follower.text
        if distance > _LIMIT or not _PART.search(text) or _HEAD.search(text):
            break
        more.consumed = distance
        for pattern, kind in ((_NOT_JOINED, "missing"), (_NOT_FINISHED, "waiting"), (_NEVER, "missing")):
            match = pattern.search(text)
            if match is not None and (ranks := ranks_of(match["ranks"])):
                fields = match.groupdict()
                found.append(
                    where.fact(
                        line,
                        "missing" if kind == "missing" else "note",
                        "nccl-desync",
                        match[0],
                        place=where.place(follower),
                        group_rank=int(head["rank"]),
                        group_ranks=ranks,
                        number=int(fields["number"]) if fields.get("number") else None,
                    )
                )
        state = _STATE.search(text)
        if state is not None:
            number = state["number"]
        inside = _IN_STATE.search(text)
        if inside is not None and number:
            states.setdefault(f"#{number} {inside['state']} {inside['op']}", []).append(inside["ranks"])
    if states:
        found.append(
            where.fact(
                line,
                "snapshot",
                "nccl-desync",
                "latest states: " + "; ".join(f"{what} [{', '.join(ranks)}]" for what, ranks in states.items()),
                group_rank=int(head["rank"]),
                details={what: ", ".join(ranks) for what, ranks in states.items()},
            )
        )
    return found
