"""Which files of an input are evidence: those that are no traces by name, and named files that are none by content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from divtrace.trace.compression import StreamDamage, open_stream
from divtrace.trace.discover import Discovery, is_remote, is_trace_name


@dataclass(frozen=True, slots=True)
class Candidates:
    """The traces of an input, and what may be evidence."""

    files: dict[str, Path]
    """By name; the doubtful ones are among them."""
    doubtful: frozenset[str]
    """Files that were named on the command line or bear a trace's name: traces unless they turn out to be evidence."""


_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""First bytes of gzip and of zstd."""
_INSPECTOR = (b'{"header"', b'{"metadata"', b'{"coll_perf"', b'{"p2p_perf"', b'{ "header"')


def candidates(found: Discovery) -> Candidates:
    """Sort the files of an input; of traces in folders at most the first bytes are read."""
    doubtful = {}
    for source in found.sources:
        # A pipe can be read only once, and evidence is read from files of this machine.
        if source.size is None or is_remote(source.path):
            continue
        if not is_trace_name(source.name) or _begins_like_inspector(source.path):
            doubtful[source.name] = Path(source.path)
    return Candidates({**found.others, **doubtful}, frozenset(doubtful))


def without(found: Discovery, evidence: set[str]) -> Discovery:
    """The input without the files that turned out to be evidence: they are neither traces nor ignored."""
    sources = [source for source in found.sources if source.name not in evidence]
    return msgspec.structs.replace(
        found, sources=sources, ignored_files=found.ignored_files - len(evidence & found.others.keys())
    )


def _begins_like_inspector(path: str) -> bool:
    """NCCL's Inspector writes JSON Lines too, under names that may be those of traces, compressed or not."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path may hold surrogates
            first = file.read(16)
            if first.startswith(_COMPRESSED):
                file.seek(0)
                first = open_stream(file, None).peek(16)
            return first.startswith(_INSPECTOR)
    except (OSError, StreamDamage):
        return False
