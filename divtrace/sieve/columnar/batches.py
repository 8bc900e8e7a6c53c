"""Row groups of batches, launches and collectives that need not be decoded: every rank stored the same in them."""

from __future__ import annotations

from collections.abc import Sequence

from divtrace.sieve.columnar.file import ParquetTrace

_OWN = frozenset({"rank", "world", "seq", "ts", "pool_index", "pool_free"})
"""What tells ranks apart, and what is never compared."""


def stored_alike(traces: Sequence[ParquetTrace], groups: Sequence[int]) -> frozenset[int]:
    """Those of some row groups of converted files that name no request, and whose bytes are the same on every rank.

    Of a batch a request has a finding only where some ranks hold it in theirs and some do not.
    """
    lead, *others = traces
    if any(trace.provenance is None or trace.group_rows != lead.group_rows for trace in traces):
        return frozenset()
    return frozenset(group for group in groups if not _names_requests(lead, group) and _are_alike(lead, others, group))


def _names_requests(trace: ParquetTrace, group: int) -> bool:
    return "req" in trace.fields and trace.has_values([group], "req")


def _are_alike(lead: ParquetTrace, others: Sequence[ParquetTrace], group: int) -> bool:
    for other in others:
        for name in sorted((lead.fields.keys() | other.fields.keys()) - _OWN):
            is_recorded = any(name in trace.fields and trace.has_values([group], name) for trace in (lead, other))
            if is_recorded and not other.same_bytes([group], lead, [group], name):
                return False
    return True
