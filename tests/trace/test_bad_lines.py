"""A line that is no record costs that line: it is counted, named with file and line, and leaves a gap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trace_files import damaged, event, only, seqs, text, write, write_bytes

from divtrace.events import Event
from divtrace.trace.load import load
from divtrace.trace.model import Damage

BAD_LINES = {
    "garbage": (b"hello world", "not JSON: invalid character (byte 0)"),
    "cut": (text(event(1))[:-5], "the line is cut off"),
    "two records": (text(event(1)) + text(event(9)), "not JSON: trailing characters"),
    "empty object": (b"{}", "`stage` is missing"),
    "array": (b"[1,2]", "not a JSON object but array"),
    "scalar": (b"17", "not a JSON object but int"),
    "null": (b"null", "not a JSON object but null"),
    "invalid UTF-8 in a value": (b'{"seq":1,"stage":"accept","req":"\xff"}', "not valid UTF-8 at byte 34"),
    "invalid UTF-8 in a key": (b'{"seq":1,"stage":"accept","\xff":1}', "not valid UTF-8 at byte 28"),
    "invalid UTF-8 in an unknown field": (b'{"seq":1,"stage":"accept","later":"\xff"}', "not valid UTF-8 at byte 36"),
    "half of a surrogate pair": (b'{"seq":1,"stage":"accept","req":"\\ud800"}', ""),
    "NaN": (b'{"seq":1,"stage":"accept","margin":NaN}', "NaN is no JSON number"),
    "Infinity": (b'{"seq":1,"stage":"accept","margin":-Infinity}', "Infinity is no JSON number"),
    "float beyond doubles": (b'{"seq":1,"stage":"accept","margin":1e999}', "Number out of range - at `$.margin`"),
    "NUL bytes": (b"\0" * 40, "NUL bytes, as a crash of the writing machine leaves them"),
    "record and NUL bytes": (text(event(1)) + b"\0\0\0", "NUL bytes, as a crash of the writing machine leaves them"),
    "raw control character": (b'{"seq":1,"stage":"accept","req":"a\x01b"}', "not JSON: invalid character (byte 34)"),
    "nested too deeply": (b'{"seq":1,"stage":"accept","later":' + b"[" * 200_000, "the line is nested too deeply"),
    "text for an integer": (text(event(1, correct_len="2")), "wrong type: `correct_len` is str, not int"),
    "float for an integer": (text(event(1, correct_len=2.0)), "wrong type: `correct_len` is float, not int"),
    "bool for an integer": (text(event(1, correct_len=True)), "wrong type: `correct_len` is bool, not int"),
    "integer for a bool": (text(event(1, gate=1)), "wrong type: `gate` is int, not bool"),
    "integer for a text": (text(event(1, req=7)), "wrong type: `req` is int, not str"),
    "text for a list": (text(event(1, draft_tokens="1,2")), "wrong type: `draft_tokens` is str, not array"),
    "null in a list": (b'{"seq":1,"stage":"draft","draft_tokens":[1,null]}', "wrong type: `draft_tokens[1]` is null"),
    "list for extra": (text(event(1, extra=[1])), "wrong type: `extra` is array, not object"),
    "object in extra": (text(event(1, extra={"info.x": {}})), "`extra` has an object under 'info.x'; only"),
    "object in a list in extra": (text(event(1, extra={"info.x": [[{}]]})), "`extra` has an object under 'info.x'"),
    "unknown stage": (text(event(1, stage="sample")), "unknown `stage`: 'sample'"),
    "null stage": (b'{"seq":1,"stage":null}', "wrong type: `stage` is null, not str"),
    "unknown phase": (text(event(1, phase="before")), "unknown `phase`: 'before'"),
    "unknown kind": (text(event(1, kind="span")), "unknown `kind`: 'span'"),
    "too large": (text(event(1, bonus=2**64)), "`bonus` has an integer outside -2^63 to 2^64-1"),
    "too small": (text(event(1, bonus=-(2**63) - 1)), "`bonus` has an integer outside -2^63 to 2^64-1"),
    "far too large": (text(event(1, bonus=10**400)), "`bonus` has an integer outside -2^63 to 2^64-1"),
    "too large in a list": (text(event(1, draft_tokens=[1, 2**64])), "`draft_tokens` has an integer outside"),
    "too large in extra": (text(event(1, extra={"control.x": 2**64})), "`extra` has an integer outside"),
    "too large in a list in extra": (text(event(1, extra={"info.x": [[-(2**64)]]})), "`extra` has an integer outside"),
    "too large beside an unknown field": (text(event(1, bonus=2**64, later=1)), "`bonus` has an integer outside"),
    "too large to decide on": (text(event(1, decided_on=2**64)), "`decided_on` has an integer outside"),
    "damaged meta": (b'{"kind":"meta","rank":"zero"}', "wrong type: `rank` is str, not int"),
    "meta with an integer too large": (b'{"kind":"meta","parallel":{"x":18446744073709551616}}', "`parallel` has"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_line(tmp_path: Path, name: str) -> None:
    line, what = BAD_LINES[name]

    trace, damage = damaged(tmp_path, event(0), line, event(2))

    assert seqs(trace) == [0, 2]
    assert [(one.file, one.line) for one in damage] == [("rank0.jsonl", 2)]
    assert damage[0].what.startswith(what)
    assert (trace.gaps, trace.lost) == ([1], 1)


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_line_without_seq_leaves_a_gap_too(tmp_path: Path, name: str) -> None:
    trace, _ = damaged(tmp_path, event(None), BAD_LINES[name][0], event(None))

    assert (trace.gaps, trace.lost, trace.has_seq) == ([1], 0, False)


def test_all_bad_lines_in_one_file_keep_their_numbers(tmp_path: Path) -> None:
    lines = [line for line, _ in BAD_LINES.values()]
    mixed = [line for bad in lines for line in (text(event(None)), bad, b"")]

    trace, damage = damaged(tmp_path, *mixed)

    assert [one.line for one in damage] == list(range(2, 3 * len(lines), 3))
    assert [record.line for record in trace.records] == list(range(1, 3 * len(lines), 3))


def test_integers_at_the_ends_of_the_range_are_exact(tmp_path: Path) -> None:
    ends = [2**64 - 1, -(2**63), 2**53 + 1]

    trace, damage = damaged(tmp_path, event(0, draft_tokens=ends, bonus=2**64 - 1, extra={"control.x": ends}))

    assert damage == []
    only_event = trace.records[0].event
    assert only_event.draft_tokens == ends
    assert only_event.bonus == 2**64 - 1
    assert only_event.extra == {"control.x": ends}


def test_long_digits_in_a_text_are_no_integer(tmp_path: Path) -> None:
    _, damage = damaged(tmp_path, event(0, req="9" * 40))

    assert damage == []


def test_cut_last_line(tmp_path: Path) -> None:
    write_bytes(tmp_path, "rank0.jsonl", text(event(0)) + b"\n" + text(event(1))[:20])

    traces = load([tmp_path])

    assert traces.damage == [Damage("rank0.jsonl", 2, "the line is cut off")]
    assert traces.bad_lines == 1
    assert only(traces).gaps == []


def test_last_line_without_line_break_counts(tmp_path: Path) -> None:
    write_bytes(tmp_path, "rank0.jsonl", text(event(0)) + b"\n" + text(event(1)))

    traces = load([tmp_path])

    assert (traces.damage, seqs(only(traces))) == ([], [0, 1])


def test_nul_tail_is_one_bad_line(tmp_path: Path) -> None:
    write_bytes(tmp_path, "rank0.jsonl", text(event(0)) + b"\n" + text(event(1))[:9] + b"\0" * 300_000)

    traces = load([tmp_path])

    assert [(one.file, one.line) for one in traces.damage] == [("rank0.jsonl", 2)]
    assert "NUL" in traces.damage[0].what
    assert traces.bad_lines == 1


def test_byte_order_mark_crlf_and_blank_lines(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbf" + text(meta_line := {"kind": "meta", "rank": 3}),
        b"",
        text(event(0)),
        b" \t",
        text(event(1)),
    ]
    write_bytes(tmp_path, "a.jsonl", b"\r\n".join(lines) + b"\r\n\r\n")

    traces = load([tmp_path])

    assert traces.damage == []
    trace = only(traces)
    assert trace.id == (0, meta_line["rank"])
    assert [record.line for record in trace.records] == [3, 5]


def test_byte_order_mark_before_an_event(tmp_path: Path) -> None:
    trace, damage = damaged(tmp_path, b"\xef\xbb\xbf" + text(event(0)), b"\xef\xbb\xbf" + text(event(1)))

    assert (seqs(trace), damage) == ([0, 1], [])


def test_unknown_fields_are_dropped_and_counted_by_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rank0.jsonl",
        event(0, later=1, zeta={"deep": [None]}),
        event(1),
        event(2, later="x", nothing=0) | {"unset": None},
        event(3, later=1, correct_len="bad"),
    )

    traces = load([tmp_path])

    assert traces.unknown_fields == {"later": 2, "nothing": 1, "zeta": 1}
    assert list(traces.unknown_fields) == ["later", "nothing", "zeta"]
    assert seqs(only(traces)) == [0, 1, 2]
    assert [one.line for one in traces.damage] == [4]
    assert traces.bad_lines == 1


def test_meta_keys_of_later_versions_are_no_unknown_fields(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", {"kind": "meta", "rank": 0, "later": {"x": 1}}, event(0))

    assert load([tmp_path]).unknown_fields == {}


def test_null_is_not_recorded(tmp_path: Path) -> None:
    nothing = {"req": None, "round": None, "draft_tokens": None, "extra": None, "kind": None, "phase": None}

    trace, damage = damaged(tmp_path, event(0) | nothing | {"rank": None}, event(1, extra={"control.x": 1}))

    assert damage == []
    first = trace.records[0].event
    assert (first.req, first.round, first.draft_tokens, first.extra, first.phase) == (None,) * 5


def test_null_under_a_key_of_extra_is_not_recorded(tmp_path: Path) -> None:
    line = json.dumps(event(0) | {"extra": {"control.x": None, "control.y": 0}}).encode()

    trace, _ = damaged(tmp_path, line)

    assert trace.records[0].event.extra == {"control.y": 0}


def test_of_a_key_written_twice_the_last_value_holds(tmp_path: Path) -> None:
    trace, damage = damaged(tmp_path, b'{"seq":0,"stage":"accept","bonus":1,"bonus":2}')

    assert (trace.records[0].event.bonus, damage) == (2, [])


def test_a_reason_is_short_whatever_the_trace_holds(tmp_path: Path) -> None:
    _, damage = damaged(tmp_path, event(0), event(1, stage="x" * 10_000), event(2, extra={"k" * 10_000: {}}))

    assert [one.line for one in damage] == [2, 3]
    assert all(len(one.what) <= 200 for one in damage)


def test_unknown_fields_in_every_line_are_counted_alike(tmp_path: Path) -> None:
    odd = {"class": [1], "__class__": {"a": 1}, "a b\n": "x", "Req": 2**70, "unknown_0": False, "later": None}
    lines = [event(seq) | odd for seq in range(2_000)]
    lines[1_000] |= {"another": 1, "class": None}
    lines[1_500] |= {"correct_len": "bad"}
    write(tmp_path, "rank0.jsonl", *lines)

    traces = load([tmp_path])

    trace = only(traces)
    assert len(trace.records) == 1_999
    assert traces.unknown_fields == {
        "Req": 1_999,
        "__class__": 1_999,
        "a b\n": 1_999,
        "another": 1,
        "class": 1_998,
        "unknown_0": 1_999,
    }
    assert [one.line for one in traces.damage] == [1_501]
    assert {type(record.event) for record in trace.records} == {Event}


def test_a_new_unknown_field_in_every_line(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", *(event(seq) | {f"later-{seq}": seq} for seq in range(300)))

    traces = load([tmp_path])

    assert traces.unknown_fields == {f"later-{seq}": 1 for seq in range(300)}
    assert seqs(only(traces)) == list(range(300))


def test_invalid_text_in_a_known_unknown_field_is_a_bad_line(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | bytes] = [
        event(0, later=1),
        b'{"seq":1,"stage":"accept","later":"\xff"}',
        event(2, later="\u00fc"),
    ]

    trace, damage = damaged(tmp_path, *lines)

    assert (seqs(trace), [one.line for one in damage]) == ([0, 2], [2])
