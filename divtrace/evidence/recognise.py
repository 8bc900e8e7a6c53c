"""What a file is, judged by its first bytes; names decide nothing, except that a dump's name tells its rank."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Literal

Kind = Literal["dump-pickle", "dump-json", "ras-json", "inspector", "text", "foreign-pickle", "other"]

_DUMP_KEY = re.compile(
    rb"pg_config|pg_status|comm_lib_version|nccl_version|[a-z]{2,8}_comm_state|collective_seq_id|process_group\b"
)
_PICKLED_DUMP = re.compile(
    rb"(?:\x95.{8})?[}(q\x94\x00]{1,6}[X\x8c].{1,4}?"
    rb"(?:version|entries|pg_config|pg_status|comm_lib_version|nccl_version|[a-z]{2,8}_comm_state)",
    re.DOTALL,
)
_JSON_DUMP = re.compile(
    rb'\s*\{\s*"(?:version|entries|pg_config|pg_status|comm_lib_version|nccl_version|[a-z]{2,8}_comm_state)"\s*:'
)
_RAS_KEY = re.compile(
    rb'"(?:communicators|nccl_version|ras_format_version|communicators_count|cuda_runtime_version)"\s*:'
)
_INSPECTOR = re.compile(rb'\s*\{\s*"(?:header|metadata|coll_perf|p2p_perf)"\s*:\s*\{')
_OWN = re.compile(
    rb"divtrace \d|## divtrace: |<\?xml[^>]{0,80}>\s*<testsuites name=\"divtrace\""
    rb"|\s*\{\s*\"(?:schema|format)\":\s*\"divtrace\."
    rb"|\s*\{(?=[^\n]{0,4096}\"format\":\s*\"divtrace\.trace/)"
    rb"|\s*\{(?=[^\n]{0,4096}\"seq\":)(?=[^\n]{0,4096}\"stage\":\s*\"(?:init|schedule|prefill|draft|verify|accept|commit"
    rb"|collective|host)\")"
)
"""What divtrace and its recorder write: reports quote the texts that logs are recognised by."""
_CONTROL = bytes(set(range(32)) - {7, 8, 9, 10, 12, 13, 27})


def recognise(first: bytes) -> Kind:
    """The kind of a file by its first bytes (after decompression).

    `text` may still turn out to hold nothing; `foreign-pickle` is a pickle that is no dump by its first key.
    """
    if first[:1] == b"\x80" and first[1:2] in b"\x02\x03\x04\x05" and len(first) > 2:
        return "dump-pickle" if _PICKLED_DUMP.match(first, 2) else "foreign-pickle"
    text = first.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in text or len(text.translate(None, _CONTROL)) < len(text) * 0.97:
        return "other"
    if _OWN.match(text):
        return "other"
    if text.lstrip()[:1] == b"{":
        if _INSPECTOR.match(text) and (b'"coll_perf"' in text or b'"inspector_output_format_version"' in text):
            return "inspector"
        if b'"communicators"' in text and _RAS_KEY.search(text):
            return "ras-json"
        if _JSON_DUMP.match(text) and _DUMP_KEY.search(text):
            return "dump-json"
    return "text" if text.strip() else "other"


_SUFFIXES = re.compile(r"(?:\.(?:json|pkl|pickle|bin|gz|zst|txt|log|err|out))+$", re.IGNORECASE)
_RANK = re.compile(r"(?<![A-Za-z])rank[_\-. =]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?:^|[_\-.])(\d{1,7})$")


def rank_in_name(path: str, *, dump: bool) -> int | None:
    """The rank that a file name states: `rank<N>`, and for dumps also a number at its end (`trace_5`).

    The last of several wins, so that host names in the middle (`nccl_trace_rank_container-node02_5`) do no harm.
    """
    stem = _SUFFIXES.sub("", PurePath(path).name)
    named = _RANK.findall(stem)
    if named:
        return int(named[-1])
    if dump and (last := _LAST_NUMBER.search(stem)):
        return int(last[1])
    return None


def looks_like_dump_name(path: str) -> bool:
    """Whether a pickle's name claims to be a dump, so that refusing it is worth a word."""
    return re.search(r"trace|dump|rank", PurePath(path).name, re.IGNORECASE) is not None


def ranks_by_varying_number(paths: Iterable[str]) -> dict[str, int]:
    """Ranks for dumps whose names carry several numbers: the last number that differs between all names.

    Empty unless the names share one pattern apart from their numbers and exactly one such number tells them apart.
    """
    names = {path: PurePath(path).name for path in paths}
    patterns = {re.sub(r"\d+", "#", name) for name in names.values()}
    if len(patterns) != 1 or len(names) < 2:
        return {}
    numbers = {path: [int(n) for n in re.findall(r"\d{1,9}", name)] for path, name in names.items()}
    width = {len(row) for row in numbers.values()}
    if len(width) != 1:
        return {}
    distinct = [at for at in range(width.pop()) if len({row[at] for row in numbers.values()}) == len(names)]
    return {path: row[distinct[0]] for path, row in numbers.items()} if len(distinct) == 1 else {}
