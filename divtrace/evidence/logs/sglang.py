"""SGLang: scheduler watchdog and the batch it prints, rank-divergence, kv_canary, DSpark plan and graph-key lines.

Texts of 0.5.23 (`srt/utils/watchdog.py`, `scheduler_components/invariant_checker.py`) and of earlier versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Finding
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where

LITERALS = (
    "atchdog timeout (self.watchdog_timeout",
    "batch_size()=",
    "Found rank divergence for",
    "kv_canary violation",
    "[DSPARK-CPS]",
    "Decode graph replay:",
    "Scheduler hit an exception",
    "Scheduler debug info:",
)
_STATEMENTS = 6
"""Lines behind `Scheduler debug info:` that may hold the batch: one statement each, without a prefix of their own."""

_WATCHDOG = re.compile(
    r"(?:Scheduler w|W)atchdog timeout \(self\.watchdog_timeout=(?P<seconds>\d{1,9}(?:\.\d{1,9})?)"
    r"(?:, self\.soft=(?P<soft>True|False))?\)"
)
_SIZE = re.compile(r"(?:scheduler\.cur_batch_for_debug|self\.cur_batch)\.batch_size\(\)=(?P<size>\d{1,7})")
_SHORT_SIZE = re.compile(r"(?<![\w.])batch_size\(\)=(?P<size>\d{1,7})(?:, first_req=(?P<first>[\w\-.…]{1,120}))?")
_REQUESTS = re.compile(r"\.reqs=\[")
_REQUEST = re.compile(r"Req\(rid='?(?P<rid>[^\s,')]{1,200})'?")
_OUTPUT = re.compile(r"output_ids=(?:array\('q', )?\[(?P<ids>[\d,\s]{0,4000000})\]")
_DIVERGENCE = re.compile(
    r"Found rank divergence for (?P<count>\d{1,9}) events\(s\)! "
    r"local hash: (?P<hash>(?:0x)?[0-9a-f]{1,64}), events = \[(?P<events>.{0,4000})"
)
_CANARY = re.compile(
    r"kv_canary violation: launch_tag=(?P<tag>\S{1,120}) fail_reason=(?P<reason>\S{1,200})"
    r"(?P<rest>(?: \w+=\S{1,120}){0,12})"
)
_PLAN = re.compile(
    r"\[DSPARK-CPS\] num_reqs=(?P<requests>\d{1,7}) budget=(?P<budget>-?\d{1,9}) gamma=(?P<gamma>\d{1,6}) "
    r"verify_len_range=\[(?P<low>-?\d{1,9}), ?(?P<high>-?\d{1,9})\]"
)
_PLAN_ROW = re.compile(
    r"\[DSPARK-CPS\]\s+req=(?P<req>\d{1,9}) prefix=(?P<prefix>\d{1,9}) verify_len=(?P<verify_len>\d{1,9})"
)
_GRAPH = re.compile(
    r"Decode graph replay: worker=(?P<worker>\S{1,80}) key_size=(?P<size>\d{1,9}) "
    r"\((?P<unit>\w{1,40})\) mode=(?P<mode>\S{1,80}) raw_bs=(?P<batch>\d{1,9})"
)


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """What SGLang prints about its own rank."""
    text = line.text
    if "batch_size()=" in text:
        return _batch(line, line, more, where)
    if "Scheduler debug info:" in text:
        for distance, follower in enumerate(more, 1):
            if distance > _STATEMENTS or follower.coordinates is not None:
                break
            if "batch_size()=" in follower.text:
                more.consumed = max(more.consumed, distance)
                return _batch(line, follower, more, where)
        return ()
    if "atchdog timeout" in text:
        found = more.match(_WATCHDOG)
        if found is None:
            return None
        details = {"seconds": float(found["seconds"]), "soft": found["soft"] == "True"}
        return (where.fact(line, "watchdog", "sglang-watchdog", found[0], details=details),)
    if "Found rank divergence" in text:
        found = more.match(_DIVERGENCE)
        if found is None:
            return None
        details = {"count": int(found["count"]), "hash": found["hash"], "events": found["events"].rstrip("]")}
        return (where.fact(line, "divergence-reported", "sglang-consensus", found[0], details=details),)
    if "kv_canary" in text:
        found = more.match(_CANARY)
        if found is None:
            return None
        details = {"launch_tag": found["tag"], "fail_reason": found["reason"]}
        details |= dict(pair.split("=", 1) for pair in found["rest"].split())
        return (where.fact(line, "divergence-reported", "sglang-kv-canary", found[0], details=details),)
    if "[DSPARK-CPS]" in text:
        found = more.match(_PLAN) or more.match(_PLAN_ROW)
        if found is None:
            return None
        values = {name: int(value) for name, value in found.groupdict().items()}
        return (where.fact(line, "note", "sglang-dspark", found[0], details=dict(values)),)
    if "Decode graph replay:" in text:
        found = more.match(_GRAPH)
        if found is None:
            return None
        return (where.fact(line, "note", "sglang-graph-key", found[0], details=dict(found.groupdict())),)
    if "Scheduler hit an exception" in text:
        # The traceback behind it is read by its own family; this line alone tells that the rank raised.
        return ()
    return None


def _batch(line: Line, stated: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """The batch of the rank that wrote `line`, whose size stands on `stated`."""
    found = _SIZE.search(stated.text) or _SHORT_SIZE.search(stated.text)
    if found is None:
        return None
    fields = found.groupdict()
    details: dict[str, object] = {"batch_size": int(found["size"])}
    if fields.get("first"):
        details["first_rid"] = fields["first"]
    reader = _REQUESTS.search(stated.text)
    source = stated.text[reader.end() :] if reader else ""
    if not source:
        for distance, follower in enumerate(more, 1):
            if distance > _STATEMENTS + 2 or follower.coordinates is not None:
                break
            reader = _REQUESTS.search(follower.text)
            if reader is not None:
                source = follower.text[reader.end() :]
                more.consumed = max(more.consumed, distance)
                break
    rids = _REQUEST.findall(source)
    if rids:
        details["rids"] = rids
        # A list cut by the reader's limit on lines is no list of the batch.
        details["complete"] = len(rids) == int(found["size"])
        outputs = _OUTPUT.findall(source)
        if len(outputs) == len(rids):
            details["output_lengths"] = [ids.count(",") + bool(ids.strip()) for ids in outputs]
    return (where.fact(line, "batch", "sglang-batch", found[0], details=details),)
