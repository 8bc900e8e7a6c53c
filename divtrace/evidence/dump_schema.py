"""The schema of Flight Recorder dumps, 2.3 to 2.10, as pickle and as JSON, of any backend."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import msgspec

from divtrace.evidence.unpickle import RefusedPickleError, load_plain

MAXIMUM_TENSORS = 4096
MAXIMUM_DIMENSIONS = 16
SHAPES_PER_BYTE = 4
"""Shape entries that may be walked per byte of the file: shared references could make them quadratic."""

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Sizes = tuple[tuple[int, ...], ...]


class Entry(msgspec.Struct, gc=False, kw_only=True):
    """What is asked of one recorded operation. Fields that older schemas or other backends lack have a default."""

    record_id: Integer
    profiling_name: str
    process_group: tuple[str, str] = ("", "")
    pg_id: Integer | None = None
    collective_seq_id: Integer | None = None
    input_sizes: Sizes = ()
    output_sizes: Sizes = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = ""
    time_created_ns: Integer | None = None
    retired: bool = False
    is_p2p: bool = False
    thread_id: str | int | None = None


class Group(msgspec.Struct, gc=False):
    """One process group of `pg_config`; `ranks` is the text of a list of global ranks."""

    name: str = ""
    desc: str = ""
    ranks: str | list[int] = ""


class Status(msgspec.Struct, gc=False):
    """Counters of one process group; JSON dumps write them as text. -1 means none."""

    last_enqueued_collective: int | str = -1
    last_started_collective: int | str = -1
    last_completed_collective: int | str = -1


_Row = TypeVar("_Row", Group, Status)


class RawDump(msgspec.Struct, gc=False):
    """One dump, with the entries that could be understood."""

    version: str
    groups: dict[str, Group]
    status: dict[str, Status]
    entries: list[Entry]
    bad_entries: int
    first_problem: str


def parse_dump(data: bytes, *, pickled: bool) -> RawDump:
    """One dump from its bytes.

    A malformed entry costs that entry; a JSON dump without `entries` has none.

    Raises:
        RefusedPickleError: a pickle is cut or holds anything but plain data.
        ValueError: the bytes are no dump.
    """
    top: Any
    if pickled:
        top = load_plain(data)
        fields: dict[str, Any] = top if isinstance(top, dict) else {}
        entries = fields.get("entries", [])
    else:
        try:
            top = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"is cut or no JSON: {error}") from None
        fields = {name: _json(raw) for name, raw in top.items() if name != "entries"}
        entries = top.get("entries", msgspec.Raw(b"[]"))
    if not isinstance(top, dict) or not ({"entries", "pg_config", "pg_status"} & set(top)):
        raise ValueError("is no flight-recorder dump: neither entries nor pg_config nor pg_status")
    understood, bad, problem = _entries(entries, len(data))
    return RawDump(
        version=str(fields.get("version", ""))[:20],
        groups=_mapping(fields.get("pg_config"), Group),
        status=_mapping(fields.get("pg_status"), Status),
        entries=understood,
        bad_entries=bad,
        first_problem=problem,
    )


def _json(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _mapping(value: Any, kind: type[_Row]) -> dict[str, _Row]:
    found: dict[str, _Row] = {}
    if isinstance(value, dict):
        for name, item in value.items():
            try:
                found[str(name)[:200]] = msgspec.convert(item, kind)
            except (msgspec.ValidationError, RecursionError):
                continue
    return found


def _entries(value: Any, size: int) -> tuple[list[Entry], int, str]:
    if isinstance(value, msgspec.Raw):
        try:
            return msgspec.json.decode(value, type=list[Entry]), 0, ""
        except (msgspec.MsgspecError, UnicodeDecodeError):
            value = _json(value)
    if not isinstance(value, list):
        return [], 0, ""
    _check_shapes(value, size * SHAPES_PER_BYTE)
    try:
        return msgspec.convert(value, list[Entry]), 0, ""
    except (msgspec.ValidationError, RecursionError):
        pass
    understood: list[Entry] = []
    bad = 0
    problem = ""
    for position, item in enumerate(value, 1):
        try:
            understood.append(msgspec.convert(item, Entry))
        except (msgspec.ValidationError, RecursionError) as error:
            bad += 1
            problem = problem or f"entry {position}: {error}"
    return understood, bad, problem


_SHARED = ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")


def _check_shapes(entries: list[Any], budget: int) -> None:
    """Bound what the conversion will copy, before it copies: shapes may be shared a million times."""
    columns: list[Any]
    try:
        columns = list(zip(*map(itemgetter(*_SHARED), entries), strict=True))
        widths = [list(map(len, column)) for column in columns]
    except (TypeError, KeyError):
        # Entries of older schemas, or something that is no entry.
        columns = [
            [found for entry in entries if type(entry) is dict and type(found := entry.get(name)) is list]
            for name in _SHARED
        ]
        widths = [list(map(len, column)) for column in columns]
    for name, column, lengths in zip(_SHARED, columns, widths, strict=False):
        budget -= sum(lengths)
        if max(lengths, default=0) > MAXIMUM_TENSORS or budget < 0:
            raise RefusedPickleError("has more tensors than any operation")
        if name.endswith("sizes"):
            try:
                dimensions = max(map(len, chain.from_iterable(column)), default=0)
            except TypeError:
                dimensions = max((len(s) for s in chain.from_iterable(column) if type(s) in (list, tuple)), default=0)
            if dimensions > MAXIMUM_DIMENSIONS:
                raise RefusedPickleError("has a tensor of more dimensions than any")
