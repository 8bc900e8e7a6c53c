"""ProcessGroupNCCL's watchdog in its five generations (torch 2.1 to 2.13), RCCL and torch_npu's WorkHCCL alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Communicator, Finding, Operation
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where
from divtrace.evidence.naming import canonical_operation

_TAG = (
    r"\[(?:PG (?:ID (?P<id>\d{1,9}) PG GUID (?P<guid>[^\s(\]]*)\s?(?:\((?P<desc>[^)]{0,200})\))?"
    r"|(?P<uid>[0-9a-f]{1,64})(?: \((?P<uiddesc>[^)]{0,200})\))?) )?Rank (?P<group>\d{1,7})\]\s+"
)
_WORK = re.compile(
    # The first words may stand on a line of their own, which terminal wrapping cut off.
    rf"(?:(?:{_TAG})?Watchdog caught collective operation timeout: )?"
    r"Work(?P<lib>[A-Z]{2,8})\(SeqNum=(?P<seq>\d{1,18}), "
    r"?OpType=(?P<op>\w{1,60})(?:, ?NumelIn=(?P<nin>\d{1,18}), ?NumelOut=(?P<nout>\d{1,18}))?, ?"
    r"Timeout\(ms\)=(?P<timeout>\d{1,18})\) ran for (?P<ran>\d{1,18}) milliseconds before timing out"
)
_AT_WORK = re.compile(
    rf"{_TAG}(?:Timeout at [NHR]CCL work: (?P<a>\d{{1,18}}),"
    r"|Exception \(either an error or timeout\) detected by watchdog at work: (?P<b>\d{1,18}),"
    r"|\s?failure detected by watchdog at work sequence id: (?P<c>\d{1,18}) PG status:)"
    r" last enqueued (?:[NHR]CCL )?work: (?P<enqueued>-?\d{1,18}), "
    r"last completed (?:[NHR]CCL )?work: (?P<completed>-?\d{1,18})"
)
_SIGNAL = re.compile(
    rf"(?:{_TAG})?Received a dump signal due to a collective timeout from "
    r"(?:this local rank|\s*rank (?P<from>\d{1,7})) "
    r"and we will try our best to dump the debug info\. "
    r"Last enqueued [NHR]CCL work: (?P<enqueued>-?\d{1,18}), last completed [NHR]CCL work: (?P<completed>-?\d{1,18})"
)
_ANY_TAG = re.compile(_TAG)
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d{1,9}) ?(?:seconds|sec) without making progress")

LITERALS = (
    "Watchdog caught ",
    "WorkNCCL(",
    "WorkHCCL(",
    "detected by watchdog at work",
    "Timeout at NCCL work",
    "Received a dump signal due to",
    "watchdog got stuck for",
)


def _comm(groups: dict[str, str | None], backend: str) -> Communicator | None:
    name = groups["guid"] if groups["guid"] is not None else groups["uid"]
    desc = groups["desc"] or groups["uiddesc"] or ""
    return Communicator(name or "", desc, backend) if name or desc else None


def _group_rank(groups: dict[str, str | None]) -> int | None:
    return int(groups["group"]) if groups["group"] is not None else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """Operations that the watchdog reports; None if the line looks like one and is not understood."""
    text = line.text
    if "Watchdog caught" in text or "WorkNCCL(" in text or "WorkHCCL(" in text:
        found = more.match(_WORK)
        if found is None:
            return None
        if line.bare and found["group"] is None:
            # The words in front of WorkNCCL( may have begun on the line before.
            found = more.match_from_before(_WORK) or found
        groups = found.groupdict()
        backend = (groups["lib"] or "").lower()
        return (
            Operation(
                source="log",
                format="hccl-watchdog" if backend == "hccl" else "nccl-watchdog",
                place=where.place(line),
                rank=line.rank,
                group_rank=_group_rank(groups),
                coordinates=line.coordinates,
                comm=_comm(groups, backend),
                number=int(found["seq"]),
                op=canonical_operation(found["op"]),
                numel_in=_number(groups["nin"]),
                numel_out=_number(groups["nout"]),
                state="timeout",
                process=line.process,
                timeout_ms=int(found["timeout"]),
                ran_ms=int(found["ran"]),
                time=line.time,
                text=found[0],
            ),
        )
    if "detected by watchdog" in text or "Timeout at NCCL work" in text:
        found = more.match(_AT_WORK)
        if found is None:
            return None
        groups = found.groupdict()
        return (_counts(line, found, where, _number(groups["a"] or groups["b"] or groups["c"]), "timeout"),)
    if "Received a dump signal" in text:
        found = more.match(_SIGNAL)
        return None if found is None else (_counts(line, found, where, None, None),)
    found = more.match(_STUCK)
    if found is None:
        return None
    tag = _ANY_TAG.search(text)
    groups = tag.groupdict() if tag is not None else dict.fromkeys(("id", "guid", "desc", "uid", "uiddesc", "group"))
    return (
        where.fact(
            line,
            "watchdog",
            "nccl-watchdog",
            found[0],
            group_rank=_group_rank(groups),
            comm=_comm(groups, "nccl"),
            details={"seconds": int(found["seconds"])},
        ),
    )


def _counts(line: Line, found: re.Match[str], where: Where, number: int | None, state: str | None) -> Operation:
    groups = found.groupdict()
    return Operation(
        source="log",
        format="nccl-watchdog",
        place=where.place(line),
        rank=line.rank,
        group_rank=_group_rank(groups),
        coordinates=line.coordinates,
        comm=_comm(groups, "nccl"),
        number=number,
        state="timeout" if state else None,
        process=line.process,
        last_enqueued=int(found["enqueued"]),
        last_completed=int(found["completed"]),
        time=line.time,
        text=found[0],
    )
