"""HCCL's own error texts: EI0002 (notify wait), EI0006 (socket), EI9999 (any inner error), EE1002 (stream)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Communicator, Fact, FactKind, Finding
from divtrace.evidence.logs.line import JOINED_LINES, Following, Line
from divtrace.evidence.logs.reader import Where
from divtrace.evidence.naming import canonical_operation

LITERALS = ("EI0002", "EI0006", "EI9999", "hccl fftsplus task timeout", "EE1002: ")

_STAMP = r"(?:\[PID: (?P<pid>\d{1,9})\] )?(?P<time>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d(?:\.\d{1,6}){0,2})? ?"
_NOTIFY = re.compile(
    r"EI0002: " + _STAMP + r"The wait execution of the Notify register times out\..{0,400}?"
    r"from remote rank: ?\[(?P<remote>\w{1,20})\]",
    re.DOTALL,
)
_TAG = re.compile(r"tag\[(?P<op>[A-Za-z]{1,40})_(?P<tag>[^\]]{0,300})\]")
_GROUP = re.compile(r"group:\[(?P<group>[\w.\-]{1,120})\]")
_RANK_SIZE = re.compile(r"rankSize\[(?P<size>\d{1,7})\]")
_RANK_IDS = re.compile(r"rankId\[(?P<ids>\d[\d ,]{0,200})\]")
_SOCKET = re.compile(r"EI0006: " + _STAMP + r"Getting socket times out\.(?: Reason: (?P<why>[^\n]{1,200}))?")
_DEVICE = re.compile(
    r"The error from device\((?:chipId:(?P<chip>\d{1,4}), ?dieId:\d{1,4})\).{0,200}?hccl fftsplus task timeout occurred"
    r".{0,300}?stream_id:(?P<stream>\d{1,9}).{0,200}?task_id:(?P<task>\d{1,9})"
    r"(?:.{0,100}?stuck notify num:(?P<stuck>\d{1,9}))?(?:.{0,100}?timeout[:=](?P<timeout>\d{1,9}))?",
    re.DOTALL,
)
_HEADING = re.compile(r"\bE[A-Z]\d{4}: |Solution: |TraceBack ")
_INNER = re.compile(r"EI9999: " + _STAMP + r" *(?P<what>[A-Za-z_[(][^\n]{0,400})")
_EXPIRED = re.compile(r"time[d\-]? ?out|out of time", re.IGNORECASE)
_STREAM = re.compile(r"EE1002: " + _STAMP + r"Stream synchronize timeout")


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """What an HCCL error tells: who waits, for whom if it knows, in which group."""
    text = line.text
    if "EI0002" in text:
        found = more.match(_NOTIFY)
        if found is None:
            return None if "EI0002:" in text else ()
        whole = found.string
        if "rankId[" not in whole:
            # The pattern ends early in the line; the rest of it may be wrapped.
            for distance, follower in more.continued(JOINED_LINES):
                if _HEADING.search(follower.text):
                    break
                more.consumed = max(more.consumed, distance)
                whole += follower.text
                if "rankId[" in whole:
                    break
        tag, group = _TAG.search(whole), _GROUP.search(whole)
        size, ids = _RANK_SIZE.search(whole), _RANK_IDS.search(whole)
        remote = found["remote"]
        # rankId names the waiting rank; where two stand there, the second is the remote one.
        own = re.findall(r"\d+", ids["ids"])[0] if ids else None
        return (
            where.fact(
                line,
                "waiting" if remote.isdecimal() else "timeout",
                "hccl-ei0002",
                found[0],
                group_rank=int(own) if own is not None else None,
                group_ranks=(int(remote),) if remote.isdecimal() else (),
                comm=Communicator(group["group"], "", "hccl") if group is not None else None,
                time=found["time"] or line.time,
                details={
                    "op": canonical_operation(tag["op"]) if tag else None,
                    "tag": tag[0][4:-1] if tag else None,
                    "rank_size": int(size["size"]) if size else None,
                },
            ),
        )
    if "EI0006" in text:
        found = more.match(_SOCKET)
        if found is None:
            return None if "EI0006:" in text else ()
        return (_stamped(line, where, "timeout", "hccl-ei0006", found, {"why": found["why"]}),)
    if "EE1002" in text:
        found = more.match(_STREAM)
        return None if found is None else (_stamped(line, where, "timeout", "hccl-ee1002", found, {}),)
    found = more.match(_DEVICE) if "fftsplus" in text else more.match_wrapped(_DEVICE)
    if found is None:
        return _inner(line, where) if "EI9999" in text else None
    stamp = _INNER.search(text)
    return (
        where.fact(
            line,
            "timeout",
            "hccl-device",
            found[0],
            time=(stamp["time"] if stamp is not None else None) or line.time,
            details={"chip": int(found["chip"]), "stream": int(found["stream"]), "task": int(found["task"])},
        ),
    )


def _inner(line: Line, where: Where) -> Iterable[Finding] | None:
    """EI9999 stands for any error inside HCCL: a timeout if its text says so, else something to look at."""
    found = _INNER.search(line.text)
    if found is None:
        return None if "EI9999:" in line.text else ()
    if found["what"].strip() in ("Inner Error!", "Inner Error, Please contact support engineer!"):
        # The heading; what happened stands on the lines behind it, under the same code or the device's.
        return ()
    kind: FactKind = "timeout" if _EXPIRED.search(found["what"]) else "note"
    return (_stamped(line, where, kind, "hccl-ei9999", found, {"what": found["what"]}),)


def _stamped(
    line: Line, where: Where, kind: FactKind, name: str, found: re.Match[str], details: dict[str, object]
) -> Fact:
    """A fact with the time that HCCL itself prints."""
    return where.fact(line, kind, name, found[0], time=found["time"] or line.time, details=details)
