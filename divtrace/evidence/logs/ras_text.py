"""NCCL RAS reports as text (`ncclras`): communicators whose ranks differ, or of which ranks are missing or dead.

A single snapshot in which counts differ is normal in a running job: only two equal snapshots show that it is frozen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Communicator, Fact, Finding
from divtrace.evidence.logs.desync import ranks_of
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where

LITERALS = (") MISMATCH", ") INCOMPLETE", ") DEAD", "launched up to operation", "Processes         GPUs")
_LIMIT = 2000

_HEAD = re.compile(r"#(?P<group>\d{1,6}-\d{1,6}) \((?P<hash>[0-9a-f]{4,32})\) (?P<what>MISMATCH|INCOMPLETE|DEAD)")
_WHICH = re.compile(
    r"Communicator ranks have different (?P<what>[\w ]{1,60}?) (?:operation )?counts"
    r"|different (?P<status>[\w ]{1,60}) status"
)
_COUNT = re.compile(r"(?P<ranks>\d{1,9}) ranks? ha(?:s|ve) launched up to operation (?P<number>\d{1,18})")
_ONE = re.compile(r"Rank (?P<rank>\d{1,7}) has launched up to operation (?P<number>\d{1,18})")
_MEMBER = re.compile(r"^\s*Rank (?P<rank>\d{1,7}) -- GPU")
_MISSING = re.compile(r"The missing ranks?: (?P<ranks>\d[\d, \-]{0,20000})")
_MISSING_COUNT = re.compile(r"Missing communicator data from (?P<count>\d{1,9}) (?:job )?(?:rank|process)")
_PART = re.compile(r"^\s+\S")
_JOB = re.compile(r"^\s*(?:\d{1,9}\s+){2,4}(?P<gpus>\d{1,9})\s*$")
_JOB_LINES = 3
"""Lines behind the first heading of the job's table up to its only row."""


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """One fact per communicator that the report warns about."""
    head = _HEAD.search(line.text)
    if head is None and "Processes         GPUs" in line.text:
        for distance, follower in enumerate(more, 1):
            row = _JOB.match(follower.text)
            if row is not None:
                gpus = int(row["gpus"])
                return (
                    Fact(
                        kind="snapshot",
                        format="nccl-ras-job",
                        place=where.place(line),
                        text=f"a job of {gpus} GPUs",
                        details={"gpus": gpus},
                    ),
                )
            if distance >= _JOB_LINES:
                break
        return None
    if head is None:
        if "launched up to operation" in line.text:
            return None
        return ()
    which = ""
    counts: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    missing: tuple[int, ...] = ()
    number: int | None = None
    text = [head[0]]
    for distance, follower in enumerate(more, 1):
        if distance > _LIMIT or not _PART.match(follower.text) or _HEAD.search(follower.text):
            break
        more.consumed = distance
        content = follower.text
        if found := _WHICH.search(content):
            which = (found["what"] or found["status"] or "").strip()
        elif found := _ONE.search(content):
            number = int(found["number"])
            counts.setdefault(number, []).append(int(found["rank"]))
            sizes[number] = sizes.get(number, 0) + 1
        elif found := _COUNT.search(content):
            number = int(found["number"])
            sizes[number] = int(found["ranks"])
            counts.setdefault(number, [])
        elif (found := _MEMBER.match(content)) and number is not None:
            counts[number].append(int(found["rank"]))
        elif found := _MISSING.search(content):
            missing = ranks_of(found["ranks"])
        if len(text) < 8:
            text.append(content.strip())
    if head["what"] == "MISMATCH" and not sizes:
        return None
    return (
        Fact(
            kind="missing" if missing else "snapshot",
            format="nccl-ras",
            place=where.place(line),
            group_ranks=missing,
            comm=Communicator(head["hash"], "", "nccl"),
            text="; ".join(text),
            details={
                "what": head["what"],
                "counts_of": which or "collective",
                "counts": {
                    which or "collective": (
                        sum(sizes.values()) + len(missing),
                        {count: (tuple(ranks), sizes[count]) for count, ranks in sorted(counts.items())},
                    )
                }
                if counts
                else {},
                "launched": {str(count): ranks for count, ranks in sorted(counts.items())},
                "ranks_at": {str(count): size for count, size in sorted(sizes.items())},
            },
        ),
    )
