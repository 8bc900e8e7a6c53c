"""One request alone: is there surely nothing to be found about it? Reads as little of the traces as that takes.

The lines that hold the request are compared and checked as the sieve does. If all ranks recorded the same and no
invariant may break, and no other request holds one of its KV slots (`divtrace.sieve.neighbours`), the request has no
finding of its own. Anything else is left to the whole analysis.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from operator import attrgetter
from typing import Any, BinaryIO

import msgspec

from divtrace.events import Event, Kind, Meta, extra_kind
from divtrace.report.answers import FirstDivergence, RequestResult
from divtrace.report.model import Tool
from divtrace.sieve.cursor import NotSievableError
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.neighbours import apart_in_lines
from divtrace.sieve.requests import Requests
from divtrace.sieve.survey import RankFiles, Start, by_rank, survey
from divtrace.sieve.usual import decode_usual
from divtrace.topology import ReplicaGroup, Topology
from divtrace.trace.compression import open_stream
from divtrace.trace.discover import Discovery, Source
from divtrace.trace.index import look_up
from divtrace.trace.model import RankId
from divtrace.trace.records import BadRecordError, decode_line
from divtrace.version import __version__
from divtrace.walk.settings import GroupFlags, setting, world_topology

_BLOCK = 1 << 18
"""Bytes that are searched at a time."""
_SMALL_BLOCK = 1 << 16
"""Bytes that are taken apart at a time: the parts should stay in the cache."""
_COMPARED = (Kind.CONTROL, Kind.LAYOUT, Kind.SHAPE)
_NOT_COMPARED = (
    *("kind", "world", "rank", "seq", "ts", "kv_slots", "pool_index", "pool_free", "decided_on", "margin"),
    *("dummy", "error", "error_type", "note", "state", "extra"),
)
_compared = attrgetter(*(name for name in Event.__struct_fields__ if name not in _NOT_COMPARED))


class UnsureError(Exception):
    """The records of the request alone do not show that it has no finding."""


class _Files(msgspec.Struct, frozen=True):
    """The files of the input."""

    by_rank: Mapping[RankId, RankFiles]
    footers: Mapping[str, Any]
    """The metadata of Parquet files that were opened, by path."""
    without: Set[str] = frozenset()
    """Paths of those that surely hold nothing of the request."""


def _files(sources: Sequence[Source], run: str | None, req: str) -> _Files:
    """Look the files up in the index of a conversion, or open each.

    Raises:
        NotSievableError: as `survey`.
    """
    known = look_up(sources, req)
    if known is None:
        footers: dict[str, Any] = {}
        return _Files(survey(sources, run, footers), footers)
    starts = [
        Start(one.source, (one.file.world, one.file.rank), one.file.first_seq, one.file.metas, is_parquet=True)
        for one in known
    ]
    return _Files(by_rank(starts, run), {}, {one.source.path for one in known if not one.holds})


def without_finding(
    found: Discovery, req: str, run: str | None, flags: GroupFlags, *, attempt: int | None, replica: int | None
) -> FirstDivergence | None:
    """The answer for a request that surely has no finding; None if it may have one, or if nothing records it.

    Raises:
        TopologyError: sizes do not divide.
    """
    try:
        files = _files(found.sources, run, req)
        results = []
        first = 0
        for world in sorted({world for world, _ in files.by_rank}):
            here = {rank: one for (w, rank), one in files.by_rank.items() if w == world}
            groups = world_topology(sorted(here), {rank: tuple(one.metas) for rank, one in here.items()}, flags)
            for index, one in enumerate(groups.replicas, first):
                inside = {rank: here[rank] for rank in sorted(one.ranks) if rank in here}
                if replica in (None, index) and inside and _serves(world, inside, one, groups, req, files):
                    results.append(RequestResult(world=world, replica=index, finding=None, origin=None))
            first += len(groups.replicas)
    except (UnsureError, NotSievableError, BadRecordError, OSError):
        return None
    if not results:
        return None
    return FirstDivergence(tool=Tool(__version__), req=req, attempt=attempt, results=tuple(results))


def _serves(
    world: int,
    files: Mapping[int, RankFiles],
    replica: ReplicaGroup,
    groups: Topology,
    req: str,
    known: _Files,
) -> bool:
    """Whether a replica served the request.

    Raises:
        UnsureError: the request may have a finding there.
    """
    if all(source.path in known.without for one in files.values() for source in one.sources):
        return False
    metas = [meta for one in files.values() for meta in one.metas]
    if any(one.parquet for one in files.values()):
        from divtrace.sieve.columnar.single import check_columns

        return check_columns(world, files, replica, groups, setting(metas, "algorithm"), req, known.footers)
    events = {rank: list(_events(rank, world, one, req)) for rank, one in files.items()}
    if not any(events.values()):
        return False
    check_events(events, groups, setting(metas, "algorithm"), req)
    for rank, own in events.items():
        mine = (one for one in own if one.req == req)
        if not apart_in_lines(req, mine, partial(_rank_blocks, files[rank].sources)):
            raise UnsureError
    return True


def check_events(events: Mapping[int, Sequence[Event]], groups: Topology, algorithm: str | None, req: str) -> None:
    """Compare the records of one request, and of batches that hold it, and check its invariants.

    Raises:
        UnsureError: something differs, or may break.
    """
    ranks = sorted(events)
    facts = ReplicaFacts({})
    requests = Requests(facts, algorithm, ranks)
    columns = [events[rank] for rank in ranks]
    if len({len(column) for column in columns}) != 1:
        raise UnsureError
    good: set[tuple[object, ...]] = set()
    for row in zip(*columns, strict=True):
        event = row[0]
        slots = [one.kv_slots for one in row]
        compared, extra = _compared(event), compared_extra(event)
        if event.comm_ranks is not None or event.src is not None:
            key = (event.stage, None if event.comm_ranks is None else tuple(event.comm_ranks), event.src)
            if key not in good:
                _check_group(event, ranks, groups)
                good.add(key)
        for one in row[1:]:
            if _compared(one) != compared or compared_extra(one) != extra:
                raise UnsureError
        if event.req == req and event.stage not in ("collective", "host"):
            requests.agree(event, ranks, slots if any(one is not None for one in slots) else None)
    requests.close_all()
    if facts.suspects or facts.stepless or facts.irregular:
        raise UnsureError


def _check_group(event: Event, ranks: Sequence[int], groups: Topology) -> None:
    """Raise UnsureError if a sync did not go over the sync group of these ranks, all of which recorded it alike."""
    from divtrace.align.groups import Group
    from divtrace.align.view import key_of
    from divtrace.trace.model import Record
    from divtrace.walk.sync import wrong_group

    group = Group(key_of(event, 0), {rank: Record(event, 0, "", 0, False) for rank in ranks})
    if wrong_group(group, groups) is not None:
        raise UnsureError


def compared_extra(event: Event) -> dict[str, Any]:
    """The keys of `extra` that are compared; the values as JSON, in which a bool is no number."""
    if not event.extra:
        return {}
    found = {key: msgspec.json.encode(value) for key, value in event.extra.items()}
    return {key: found[key] for key in sorted(found) if extra_kind(key) in _COMPARED}


def _events(rank: int, world: int, files: RankFiles, req: str) -> Iterator[Event]:
    """The records of one rank that are of a request, or of a batch that holds it.

    Raises:
        UnsureError: a line that may be one of them is damaged, or not in order.
    """
    before = -1
    needle = msgspec.json.encode(req)
    for source in files.sources:
        for text, end in _blocks(source, _BLOCK):
            for record in _decoded(_lines(text, end, needle)):
                if isinstance(record, Meta) or record is None:
                    continue
                if record.req != req and (record.req is not None or req not in (record.batch or ())):
                    continue
                if record.seq is None or record.seq <= before:
                    raise UnsureError
                if record.rank not in (None, rank) or record.world not in (None, world):
                    raise UnsureError
                before = record.seq
                yield record


def _decoded(lines: list[bytes]) -> Iterator[Event | Meta | None]:
    """The records of lines, the usual ones at once.

    Raises:
        UnsureError: a line is damaged.
    """
    at = 0
    while at < len(lines):
        usual = decode_usual(lines[at:])
        yield from usual
        at += len(usual)
        if at < len(lines):
            try:
                record, _ = decode_line(lines[at])
            except BadRecordError as error:
                raise UnsureError from error
            yield record
            at += 1


def _lines(text: bytes, end: int, needle: bytes) -> list[bytes]:
    """The lines of a block that hold a text, or any escape, which may stand for a part of it."""
    if text.find(b"\\", 0, end) >= 0:
        return [line for line in text[:end].split(b"\n") if b"\\" in line or needle in line]
    lines = []
    at = text.find(needle, 0, end)
    while at >= 0:
        stop = text.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        lines.append(text[text.rfind(b"\n", 0, at) + 1 : stop])
        at = text.find(needle, stop, end)
    return lines


def _rank_blocks(sources: Sequence[Source]) -> Iterator[tuple[bytes, int]]:
    for source in sources:
        yield from _blocks(source, _SMALL_BLOCK)


def _blocks(source: Source, size: int) -> Iterator[tuple[bytes, int]]:
    """A file in blocks of about this size, if it is not compressed: bytes, and how many of them are whole lines."""
    with source.open() as file:
        stream = open_stream(file, source.size)
        if stream.plain and source.size is not None:
            file.seek(0)
            yield from _plain_blocks(file, size)
            return
        rest = b""
        for chunk in stream:
            text = rest + chunk
            end = text.rfind(b"\n") + 1
            yield text, end
            rest = text[end:]
        yield rest, len(rest)


def _plain_blocks(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """The line that a block breaks off in is read again, which is cheaper than putting blocks together."""
    while text := file.read(size):
        end = text.rfind(b"\n") + 1 if len(text) == size else len(text)
        if not end:
            size *= 2  # a longer line than that
        else:
            yield text, end
        file.seek(end - len(text), os.SEEK_CUR)
