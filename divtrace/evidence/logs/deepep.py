"""DeepEP: legacy kernels (host and device texts), elastic kernels, and vLLM's fault mask.

Ranks are ranks of the expert-parallel group; the low-latency kernels name the silent peer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Communicator, Fact, FactKind, Finding
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where

LITERALS = ("DeepEP error:", "DeepEP timeout", "DeepEP dispatch ", "DeepEP combine ", "DeepEP notify timeout",
            "DeepEP NVLink barrier timeout", "Fault detected in EP all2all")  # fmt: skip

NVLINK_PEERS = 8
"""Ranks of one RDMA node: the global rank of the legacy kernels is RDMA × 8 + nvl."""

_N = r"\d{1,9}"
_HOST = re.compile(r"DeepEP error: (?:CPU recv timeout|timeout \((?P<what>[\w ]{1,60})\))")
_CHECK = re.compile(
    rf"DeepEP timeout check failed: rank = (?P<rank>{_N}), thread = (?P<peer>{_N}), value = (?P<value>{_N})"
)
_CHANNEL = re.compile(
    rf"DeepEP timeout for (?P<what>(?:dispatch|combine) (?:senders|receivers)), rank (?P<rank>{_N}), "
    rf"responsible_channel = (?P<channel>{_N})"
    rf"(?:, (?:tokens remained: (?P<remained>-?{_N})|expect = (?P<expect>-?{_N})))?"
)
_LOW_LATENCY = re.compile(
    rf"DeepEP timeout for (?P<what>dispatch receive|combine receive|barrier), rank (?P<rank>{_N})"
    rf"(?:, local_expert_idx (?P<expert>{_N}))?, (?:src_rank|dst_rank) (?P<peer>{_N})"
)
_NVL = re.compile(
    rf"DeepEP (?P<what>(?:dispatch|combine)[\w ()]{{1,60}}) timeout(?: \([\w ]{{1,40}}\))?, "
    rf"channel: (?P<channel>{_N}), "
    rf"RDMA: (?P<rdma>{_N}), nvl: (?P<nvl>{_N})(?:, src RDMA(?: lane)?: (?P<srdma>{_N}))?"
    rf"(?:, (?:src|dst) (?:nvl|NVL): (?P<snvl>{_N}))?"
)
_ELASTIC = re.compile(
    rf"DeepEP (?P<what>notify|NVLink barrier|(?:dispatch|combine) \([\w\- ]{{1,60}}\)) timeout, "
    rf"(?:rank: (?P<rank>{_N})|tag: \S{{1,40}}, nvl: (?P<nvl>{_N})|scale-out: (?P<out>{_N})/(?P<outs>{_N}), "
    rf"scale-up: (?P<up>{_N})/(?P<ups>{_N}))(?:, thread: (?P<peer>{_N}))?"
)
_FAULT = re.compile(
    r"Fault detected in EP all2all communication: one or more ranks timed out during dispatch/combine\. "
    r"Mask: \[(?P<mask>[\w, ]{0,20000})\]"
)

_GROUP = Communicator("", "moe_ep", "deepep")


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """Who waits, and for whom where the kernel knows."""
    text = line.text
    if "Fault detected" in text:
        found = more.match(_FAULT)
        if found is None:
            return None
        mask = [part.strip().lower() in ("1", "true") for part in found["mask"].split(",")]
        return (_fact("missing", line, where, found, group_ranks=tuple(i for i, bad in enumerate(mask) if bad)),)
    if "DeepEP error:" in text:
        found = more.match(_HOST)
        # The name is also an exception's prefix for assertions that are no timeouts.
        if found is None:
            return None if "timeout" in text else ()
        return (_fact("timeout", line, where, found),)
    if "timeout" not in text:
        return ()
    found = more.match(_LOW_LATENCY)
    if found is not None:
        return (_fact("waiting", line, where, found, int(found["rank"]), (int(found["peer"]),), what=found["what"]),)
    found = more.match(_CHECK)
    if found is not None:
        return (
            _fact("waiting", line, where, found, int(found["rank"]), (int(found["peer"]),), value=int(found["value"])),
        )
    found = more.match(_CHANNEL)
    if found is not None:
        channel = int(found["channel"])
        return (_fact("timeout", line, where, found, int(found["rank"]), what=found["what"], channel=channel),)
    found = more.match(_NVL)
    if found is not None:
        own = int(found["rdma"]) * NVLINK_PEERS + int(found["nvl"])
        peer = (
            (int(found["srdma"]) * NVLINK_PEERS + int(found["snvl"]),)
            if found["srdma"] and found["snvl"] and "receiver" in found["what"]
            else ()
        )
        return (_fact("waiting" if peer else "timeout", line, where, found, own, peer, channel=int(found["channel"])),)
    found = more.match(_ELASTIC)
    if found is None:
        return None
    rank = int(found["rank"]) if found["rank"] else None
    if found["out"]:
        rank = int(found["out"]) * int(found["ups"]) + int(found["up"])
    return (_fact("timeout", line, where, found, rank, what=found["what"]),)


def _fact(
    kind: FactKind,
    line: Line,
    where: Where,
    found: re.Match[str],
    group_rank: int | None = None,
    group_ranks: tuple[int, ...] = (),
    **details: object,
) -> Fact:
    return where.fact(
        line,
        kind,
        "deepep",
        found[0],
        group_rank=group_rank,
        group_ranks=group_ranks,
        comm=_GROUP,
        details=details,
    )
