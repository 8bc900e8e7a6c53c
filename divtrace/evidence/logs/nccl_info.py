"""NCCL's own log (`NCCL_DEBUG=INFO`, subsystem COLL): one line per operation that was issued, none when it is done.

The counter is hexadecimal. A communicator is a pointer, which means something inside its process only; the line of its
initialisation names the id that all its ranks share, the rank inside it and its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from divtrace.evidence.facts import Communicator, Finding, Operation
from divtrace.evidence.logs.line import Following, Line
from divtrace.evidence.logs.reader import Where
from divtrace.evidence.naming import canonical_operation

LITERALS = (": opCount ", "- Init COMPLETE")

FORMAT = "nccl-info"
_PROCESS = r"(?P<process>[\w.\-]{1,120}:\d{1,9}):\d{1,9} \[\d{1,3}\] NCCL INFO "
_ISSUED = re.compile(
    _PROCESS + r"(?P<op>[A-Za-z]{2,30}): opCount (?P<number>[0-9a-fA-F]{1,16}) .{0,200}?"
    r"count (?P<count>\d{1,18}) datatype (?P<type>\d{1,3}) op \d{1,3} root (?P<root>\d{1,7}) "
    r"comm (?P<comm>0x[0-9a-fA-F]{1,16}) \[nranks=(?P<size>\d{1,7})\]"
)
_CREATED = re.compile(
    _PROCESS + r".{0,80}?comm (?P<comm>0x[0-9a-fA-F]{1,16}) rank (?P<rank>\d{1,7}) nranks (?P<size>\d{1,7}) .{0,200}?"
    r"(?:commId (?P<id>0x[0-9a-fA-F]{1,16}) )?- Init COMPLETE"
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_TYPES = ("Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16")
"""ncclDataType_t from 0, by torch's names."""


def own_name(process: str, pointer: str) -> str:
    """How a communicator is named before its initialisation has told which it is."""
    return f"{process} {pointer}"


def read(line: Line, more: Following, where: Where) -> Iterable[Finding] | None:
    """An operation that was issued, or a communicator that was set up."""
    if "- Init COMPLETE" in line.text:
        found = more.match(_CREATED)
        if found is None:
            return None if "NCCL INFO" in line.text else ()
        return (
            where.fact(
                line,
                "communicator",
                FORMAT,
                found[0],
                group_rank=int(found["rank"]),
                comm=Communicator(own_name(found["process"], found["comm"]), "", "nccl"),
                details={"id": found["id"], "size": int(found["size"])},
            ),
        )
    found = more.match(_ISSUED)
    if found is None:
        return None if "NCCL INFO" in line.text else ()
    op = canonical_operation(_CAMEL.sub("_", found["op"]))
    count, size, kind = int(found["count"]), int(found["size"]), int(found["type"])
    return (
        Operation(
            source="log",
            format=FORMAT,
            place=where.place(line),
            rank=line.rank,
            coordinates=line.coordinates,
            comm=Communicator(own_name(found["process"], found["comm"]), "", "nccl"),
            number=int(found["number"], 16),
            op=op,
            # NCCL counts what one rank sends (all_gather) or receives (reduce_scatter).
            numel_in=count * size if op == "reduce_scatter" else count,
            numel_out=count * size if op == "all_gather" else count,
            dtype=_TYPES[kind] if kind < len(_TYPES) else None,
            state="enqueued",
            process=line.process,
            text=found[0],
        ),
    )
