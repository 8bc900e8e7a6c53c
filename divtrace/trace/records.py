"""One record: what makes it good, and in plain words what makes it bad."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from divtrace.events import FIELDS, INTEGER_MAX, INTEGER_MIN, Event, Meta

EVENT_FIELDS = frozenset(Event.__struct_fields__)

_INTEGERS = tuple(field.name for types in (("int", "number"), ("[int]",)) for field in FIELDS if field.type in types)

_AS_DIGIT = bytes.maketrans(b"-123456789", b"0000000000")
_LONG = b"0" * 20

_LONGEST_REASON = 200
# Compiled when they are used first: most processes meet no bad record.
_NO_NUMBER = rb"[:,\[]\s*-?(NaN|Infinity)\b"
_WRONG_TYPE = r"(?s)Expected `(?P<want>[^`]*)`, got `(?P<got>[^`]*)`(?: - at `\$\.?(?P<path>.*)`)?$"
_NOT_IN_LIST = r"(?s)Invalid enum value (?P<got>.*) - at `\$\.(?P<path>.*)`$"
_MISSING = r"Object missing required field `(?P<path>\w+)`"

_decode_event = msgspec.json.Decoder(Event).decode
_decode_meta = msgspec.json.Decoder(Meta).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class BadRecordError(Exception):
    """This line or row is no record; `str()` says why, in one sentence."""


def check_integers(record: Event | Meta) -> None:
    """Hold the integers of a record against the range of the format, -2^63 to 2^64-1.

    Raises:
        BadRecordError: one is outside.
    """
    if isinstance(record, Meta):
        names: Iterable[str] = record.__struct_fields__
    else:
        names = (*_INTEGERS, "extra")
    for name in names:
        value = getattr(record, name)
        if value is not None and not _in_range(value):
            raise BadRecordError(f"`{name}` has an integer outside -2^63 to 2^64-1")


def _in_range(value: Any) -> bool:
    if isinstance(value, int):
        return INTEGER_MIN <= value <= INTEGER_MAX
    if isinstance(value, list):
        return all(map(_in_range, value))
    if isinstance(value, dict):
        return all(map(_in_range, value.values()))
    return True


def tidy_extra(event: Event) -> None:
    """Drop the keys of `extra` that are null, that is not recorded.

    Raises:
        BadRecordError: a value is neither a scalar nor a list of such.
    """
    extra = event.extra
    if extra is None:
        return
    for key, value in extra.items():
        if isinstance(value, dict) or (isinstance(value, list) and _has_object(value)):
            raise BadRecordError(f"`extra` has an object under {_quoted(key)}; only scalars and lists are allowed")
    if None in extra.values():
        event.extra = {key: value for key, value in extra.items() if value is not None}


def _has_object(values: list[Any]) -> bool:
    return any(isinstance(value, dict) or (isinstance(value, list) and _has_object(value)) for value in values)


def has_long_integer(text: bytes) -> bool:
    """Whether a number in `text` may be outside the range of the format: it has 20 digits, or a sign and 19."""
    return _LONG in text.translate(_AS_DIGIT)


def decode_line(line: bytes) -> tuple[Event | Meta | None, dict[str, bool]]:
    """Decode one line with all care: the record, or None for a blank line, and its unknown fields.

    An unknown field is True if it had a value and False if it was null.

    Raises:
        BadRecordError: the line is no record.
    """
    line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip(b" \t\r\n"):
        return None, {}
    unknown: dict[str, bool] = {}
    record: Event | Meta
    try:
        try:
            record = _decode_event(line)
        except msgspec.ValidationError as error:
            record, unknown = _decode_misfit(line, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecordError(_why(line, error)) from error
    if has_long_integer(line):
        check_integers(record)
    if isinstance(record, Event):
        tidy_extra(record)
    return record, unknown


def _decode_misfit(line: bytes, error: msgspec.ValidationError) -> tuple[Event | Meta, dict[str, bool]]:
    """Decode a line that is JSON but not just an event: a meta, or an event with unknown fields, which are named."""
    fields = _decode_fields(line)
    if _is_meta(fields):
        return _decode_meta(line), {}
    known = {name: value for name, value in fields.items() if name in EVENT_FIELDS}
    if len(known) == len(fields):
        raise error
    line.decode()  # what is dropped must be sound text too, else the line is garbage
    event = _decode_event(msgspec.json.encode(known))
    return event, {name: bytes(value) != b"null" for name, value in fields.items() if name not in known}


def _is_meta(fields: dict[str, msgspec.Raw]) -> bool:
    kind = fields.get("kind")
    return kind is not None and msgspec.json.decode(kind) == "meta"


def _why(line: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the line is nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        return why_invalid(error)
    if line.endswith(b"\0"):
        return "NUL bytes, as a crash of the writing machine leaves them"
    try:
        line.decode()
    except UnicodeDecodeError as invalid:
        return f"not valid UTF-8 at byte {invalid.start + 1}"
    if found := re.search(_NO_NUMBER, line):
        return f"{found[1].decode()} is no JSON number"
    text = str(error)
    if "truncated" in text:
        return "the line is cut off"
    return f"not JSON: {text.removeprefix('JSON is malformed: ')}"


def why_invalid(error: msgspec.ValidationError) -> str:
    """Why a record does not fit the format, from the words of msgspec."""
    text = str(error)
    if found := re.match(_WRONG_TYPE, text):
        if found["path"] is None:
            return f"not a JSON object but {_named(found['got'])}"
        what = f"wrong type: `{found['path']}` is {_named(found['got'])}, not {_named(found['want'])}"
    elif found := re.match(_NOT_IN_LIST, text):
        what = f"unknown `{found['path']}`: {found['got']}"
    elif found := re.match(_MISSING, text):
        what = f"`{found['path']}` is missing"
    else:
        what = text
    return what if len(what) <= _LONGEST_REASON else what[: _LONGEST_REASON - 3] + "..."


def _named(types: str) -> str:
    return types.removesuffix(" | null").replace(" | ", " or ")


def _quoted(key: str) -> str:
    return repr(key if len(key) <= 80 else key[:77] + "...")
