"""Process groups as dumps and logs name them, brought to one form."""

from __future__ import annotations

import re

_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "allgather_base": "all_gather",
    "all_gather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_coalesced",
    "allgather_coalesced": "all_gather_coalesced",
    "reducescatter": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_coalesced",
    "reducescatter_tensor_coalesced": "reduce_scatter_coalesced",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_allv": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoall_v": "all_to_all",
    "broadcast_oop": "broadcast",
    "reduce_oop": "reduce",
    "recvanysource": "recv",
    "unknown": "unknown",
}


def canonical_operation(name: str) -> str:
    """One name for one kind of operation, whichever source wrote it (`ALLGATHER_BASE`, `_all_gather_base`)."""
    lowered = name.strip().lower().lstrip("_")
    return _OPERATIONS.get(lowered, lowered)


SIZE_FREE = frozenset({"all_to_all", "barrier", "coalesced", "send", "recv", "monitored_barrier", "unknown"})
"""Operations whose ranks may differ in size, or which have none."""
OUTPUT_SIZED = frozenset({"scatter", "reduce_scatter", "reduce_scatter_coalesced"})
"""Operations of which every rank has an output of one size, while the input may stand on the root only."""
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter", "send", "recv"})
"""Operations that some of their ranks may finish before the others arrive."""

_DEVICE = re.compile(r":(?:device|cpu)$")


def group_name(desc: str) -> str:
    """The group that an SGLang description such as `attention_tp:device` names; any other description as it is."""
    return _DEVICE.sub("", desc)
