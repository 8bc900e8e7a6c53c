"""gloo: timeouts, aborts, the monitored barrier, and the mismatches of `TORCH_DISTRIBUTED_DEBUG=DETAIL`.

Texts and file:line of torch 2.13 (reproduced in real runs) and of older versions in the wild. Ranks in them are ranks
inside the process group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Finding
from divtrace.evidence.logs.desync import ranks_of
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where
from divtrace.evidence.naming import canonical_operation

LITERALS = (
    "Timed out waiting ",
    "enforce fail at ",
    "Connection closed by peer [",
    "Read error [",
    "monitoredBarrier",
    "CollectiveFingerPrint(",
    "mismatch between collectives",
    "running inconsistent collective",
)

_TIMEOUT = re.compile(
    r"\[[^\]\[]{0,400}unbound_buffer\.cc:\d+\] "
    r"Timed out waiting "
    r"(?P<ms>\d{1,12})ms for (?P<way>recv|send) operation to complete"
)
_PLAIN_TIMEOUT = re.compile(r"gloo\S{0,400}\] Timed out waiting (?P<ms>\d{1,12})ms for (?P<way>recv|send) operation")
_ENFORCE = re.compile(
    r"enforce fail at [^\]]{0,400}pair\.cc:\d+\] op\.preamble\.length <= op\.nbytes\. "
    r"(?P<got>\d{1,18}) vs (?P<room>\d{1,18})"
)
_LOST = re.compile(
    r"pair\.cc:\d+\] (?P<how>Read error|Write error|Connection closed by peer) "
    r"\[(?P<peer>[^\]]{1,80})\]:(?P<port>\d{1,9})(?:: (?P<why>[^.\n]{1,120}))?"
)
_FAILED = re.compile(
    r"(?:\[Rank (?P<own>\d{1,7})\]: )?Ranks? (?P<ranks>\d[\d, ]{0,20000}?) "
    r"failed to pass monitoredBarrier in (?P<ms>\d{1,12}) ms"
)
_REACHED = re.compile(
    r"Rank (?P<own>\d{1,7}) successfully reached monitoredBarrier, but received errors while waiting for send/recv "
    r"from rank (?P<peer>\d{1,7})"
)
_PRINT = (
    r"CollectiveFingerPrint\((?:SequenceNumber=(?P<{0}seq>\d{{1,18}}), ?)?OpType=(?P<{0}op>\w{{1,60}})"
    r"(?:, ?TensorShape=\[(?P<{0}shape>[\d, ]{{0,400}})\])?(?:, ?TensorDtypes=(?P<{0}type>[\w ]{{1,80}}?))?[,)]"
)
_MISMATCH = re.compile(
    r"Rank (?P<own>\d{1,7}) is running (?:inconsistent )?collective: " + _PRINT.format("own_") + r".{0,4000}?"
    r"but Rank (?P<peer>\d{1,7}) is running (?:inconsistent )?collective: " + _PRINT.format("peer_"),
    re.DOTALL,
)


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """What a gloo line tells of its rank and of its peers."""
    text = line.text
    if "monitoredBarrier" in text:
        return _barrier(line, more, where)
    if "CollectiveFingerPrint(" in text or "mismatch between collectives" in text or "inconsistent collective" in text:
        return _fingerprint(line, more, where)
    if "enforce fail at" in text:
        found = more.match(_ENFORCE)
        if found is None:
            # Every library of the family raises EnforceNotMet; only a wrong size is a fact about collectives.
            return None if "op.preamble" in text else ()
        return (
            where.fact(
                line,
                "mismatch",
                "gloo",
                found[0],
                details={"received_bytes": int(found["got"]), "expected_bytes": int(found["room"])},
            ),
        )
    if "Timed out waiting " in text:
        found = more.match(_TIMEOUT) or more.match(_PLAIN_TIMEOUT)
        if found is None:
            return None if "unbound_buffer" in text or "gloo" in text else ()
        details = {"timeout_ms": int(found["ms"]), "direction": found["way"]}
        return (where.fact(line, "timeout", "gloo", found[0], details=details),)
    found = more.match(_LOST)
    if found is None:
        return None if "pair.cc" in text else ()
    details = {"peer": found["peer"], "why": found["why"] or "connection closed"}
    return (where.fact(line, "lost-peer", "gloo", found[0], details=details),)


def _barrier(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    found = more.match(_FAILED)
    if found is not None:
        ranks = ranks_of(found["ranks"])
        if not ranks:
            return None
        return (
            where.fact(
                line,
                "missing",
                "gloo-barrier",
                found[0],
                group_rank=int(found["own"]) if found["own"] else None,
                group_ranks=ranks,
                details={"timeout_ms": int(found["ms"])},
            ),
        )
    found = more.match(_REACHED)
    if found is None:
        # Stack traces name the function as well.
        return None if "failed to pass" in line.text or "reached" in line.text else ()
    return (
        where.fact(
            line,
            "waiting",
            "gloo-barrier",
            found[0],
            group_rank=int(found["own"]),
            group_ranks=(int(found["peer"]),),
        ),
    )


def _fingerprint(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    found = more.match(_MISMATCH)
    if found is None:
        return None
    groups = found.groupdict()

    def side(which: str) -> dict[str, object]:
        shape, kind = groups[f"{which}_shape"], groups[f"{which}_type"]
        return {
            "op": canonical_operation(groups[f"{which}_op"] or ""),
            "shape": [int(width) for width in shape.split(",") if width.strip().isdecimal()]
            if shape is not None
            else None,
            "dtype": kind.strip() if kind else None,
        }

    before = groups["own_seq"]
    return (
        where.fact(
            line,
            "mismatch",
            "gloo-detail",
            found[0],
            group_rank=int(found["own"]),
            group_ranks=(int(found["peer"]),),
            # Printed before the operation is issued: the number is that of the one before it (torch
            # ProcessGroupWrapper.cpp; real runs with and without DETAIL), and 0 if there is none.
            number=int(before) + 1 if before else None,
            details={"own": side("own"), "peer": side("peer")},
        ),
    )
