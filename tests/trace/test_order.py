"""The order of a rank's records, its gaps, and records that share a seq; nothing depends on files or their names."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import Line, event, jsonl, meta, only, places, seqs, text, write, write_bytes

from divtrace.trace.load import load
from divtrace.trace.model import Damage, Traces, canonical


def test_seq_puts_rotated_files_in_order(tmp_path: Path) -> None:
    write(tmp_path, "z-rank0.jsonl", event(0), event(3))
    write(tmp_path, "a-rank0.jsonl", event(2), event(1))

    trace = only(load([tmp_path]))

    assert seqs(trace) == [0, 1, 2, 3]
    assert [record.pos for record in trace.records] == [0, 1, 2, 3]
    assert (trace.gaps, trace.lost, trace.starts_at_zero, trace.has_seq) == ([], 0, True, True)
    assert trace.files == ("a-rank0.jsonl", "z-rank0.jsonl")


def test_gaps_and_lost_events(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(5), event(6), event(9), event(10), event(2**64 - 1, ts=1))

    trace = only(load([tmp_path]))

    assert (trace.gaps, trace.lost, trace.starts_at_zero) == ([2, 4], 2 + 2**64 - 12, False)


def test_identical_records_are_one(tmp_path: Path) -> None:
    write(tmp_path, "a-rank0.jsonl", event(0), event(1), event(1))
    write(tmp_path, "b.jsonl", meta(rank=0), event(1, rank=0, world=0, kind="event") | {"req": "A"}, event(2))

    traces = load([tmp_path])

    trace = only(traces)
    assert (seqs(trace), traces.duplicates, traces.bad_lines, trace.gaps) == ([0, 1, 2], 2, 0, [])
    assert places(trace)[1] == ("a-rank0.jsonl", 2)


def test_of_two_different_records_the_earlier_stays(tmp_path: Path) -> None:
    write(tmp_path, "a-rank0.jsonl", event(0), event(1, ts=20), event(2))
    write(tmp_path, "b-rank0.jsonl", event(1, ts=10, correct_len=7))

    traces = load([tmp_path])

    trace = only(traces)
    assert [record.event.correct_len for record in trace.records] == [0, 7, 2]
    assert traces.damage == [
        Damage("a-rank0.jsonl", 2, "another event has the same seq 1 and stays, in b-rank0.jsonl:1")
    ]
    assert (traces.bad_lines, traces.duplicates) == (1, 0)
    assert (trace.gaps, trace.lost) == ([1, 2], 0)


def test_at_the_same_time_the_smaller_text_stays(tmp_path: Path) -> None:
    write(tmp_path, "a-rank0.jsonl", event(0, site="x"), event(1, site="b"), event(1, site="a"), event(1, site="b"))

    traces = load([tmp_path])

    assert [record.event.site for record in only(traces).records] == ["x", "a"]
    assert [(one.file, one.line) for one in traces.damage] == [("a-rank0.jsonl", 2), ("a-rank0.jsonl", 4)]


def test_a_record_with_a_time_stays_before_one_without(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0, ts=5), event(0) | {"ts": None})

    traces = load([tmp_path])

    assert [record.event.ts for record in only(traces).records] == [5]
    assert [one.line for one in traces.damage] == [2]


def test_true_is_not_one(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0, extra={"control.x": True}), event(0, extra={"control.x": 1}))

    traces = load([tmp_path])

    assert (traces.duplicates, traces.bad_lines) == (0, 1)


def test_without_seq_lines_keep_their_order_and_files_stand_by_time(tmp_path: Path) -> None:
    write(tmp_path, "a-rank0.jsonl", event(None, ts=30, bonus=3), event(None, ts=5, bonus=4))
    write(tmp_path, "b-rank0.jsonl", event(None, ts=10, bonus=1), event(None, ts=40, bonus=2))

    trace = only(load([tmp_path]))

    assert [record.event.bonus for record in trace.records] == [1, 2, 3, 4]
    assert (trace.has_seq, trace.starts_at_zero, trace.gaps) == (False, False, [])


def test_without_seq_files_without_a_time_stand_last_and_by_their_text(tmp_path: Path) -> None:
    write(tmp_path, "a-rank0.jsonl", event(None, bonus=4) | {"ts": None})
    write(tmp_path, "b-rank0.jsonl", event(None, bonus=3) | {"ts": None})
    write(tmp_path, "c-rank0.jsonl", event(None, ts=9, bonus=2), event(None, ts=1, bonus=1))
    write(tmp_path, "d-rank0.jsonl", event(None, ts=9, bonus=2), event(None, ts=1, bonus=0))

    assert [record.event.bonus for record in only(load([tmp_path])).records] == [2, 0, 2, 1, 3, 4]


def test_a_meta_keeps_its_place_when_the_record_beside_it_is_a_duplicate(tmp_path: Path) -> None:
    write(tmp_path, "a-rank0.jsonl", meta(host="early"), event(0), event(1), event(2))
    write(tmp_path, "b-rank0.jsonl", event(2), meta(host="late"))

    assert [one.host for one in only(load([tmp_path])).metas] == ["early", "late"]


def test_one_record_without_seq_leaves_the_whole_rank_in_line_order(tmp_path: Path) -> None:
    write(tmp_path, "rank0.jsonl", event(0), event(3), event(None), event(1), event(3), b"garbage", event(2))

    traces = load([tmp_path])

    trace = only(traces)
    assert seqs(trace) == [0, 3, None, 1, 2]
    assert (trace.has_seq, trace.gaps, trace.lost, traces.duplicates) == (False, [1, 4], 2, 1)


def test_without_seq_a_file_that_ends_badly_leaves_a_gap_before_the_next(tmp_path: Path) -> None:
    write(tmp_path, "a-rank0.jsonl", event(None, ts=1), b"garbage")
    write(tmp_path, "b-rank0.jsonl", event(None, ts=2), event(None, ts=3), b"garbage")

    assert only(load([tmp_path])).gaps == [1]


def test_the_canonical_text_has_sorted_keys_and_no_identity() -> None:
    from msgspec.json import decode

    from divtrace.events import Event

    one = decode(b'{"stage":"host","rank":3,"kind":"event","world":0,"extra":{"b":1,"a":2},"bonus":null}', type=Event)

    assert canonical(one) == b'{"extra":{"a":2,"b":1},"stage":"host"}'


def without_places(traces: Traces) -> dict[str, Any]:
    """Everything that must not depend on how the records lie in files."""
    return {
        "ranks": {
            rank: (
                [(record.pos, canonical(record.event)) for record in trace.records],
                [canonical(one) for one in trace.metas],
                (trace.gaps, trace.lost, trace.starts_at_zero, trace.has_seq, trace.dropped),
            )
            for rank, trace in traces.ranks.items()
        },
        "bad": sorted(one.what.partition(", in ")[0] for one in traces.damage),
        "counts": (traces.bad_lines, traces.duplicates, traces.unknown_fields, traces.notes, traces.runs),
    }


def rank_lines(rank: int) -> st.SearchStrategy[list[Line]]:
    def build(found: list[tuple[int, int, int]]) -> list[Line]:
        return [
            event(seq, rank=rank, ts=1_000 + ts, correct_len=value, later=seq if value else None)
            for seq, ts, value in found
        ]

    return st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=16).map(
        build
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_files_lines_and_names_do_not_matter(data: st.DataObject) -> None:
    head = meta(run="r", algorithm="EAGLE", dropped=0)
    ranks = {rank: data.draw(rank_lines(rank)) for rank in (0, 1)}
    with TemporaryDirectory() as plain, TemporaryDirectory() as mixed:
        for rank, lines in ranks.items():
            write(Path(plain), f"rank{rank}.jsonl", head | {"rank": rank}, *lines)
            shuffled = data.draw(st.permutations(lines))
            owner = data.draw(st.lists(st.integers(0, 2), min_size=len(lines), max_size=len(lines)))
            for part in range(3):
                mine = [line for line, part_of in zip(shuffled, owner, strict=True) if part_of == part]
                name = data.draw(st.sampled_from(["a", "b", "c/d"])) + f"-{rank}-{part}.jsonl"
                metas = [head | {"rank": rank}] if part == 0 or data.draw(st.booleans()) else []
                at = data.draw(st.integers(0, len(mine)))
                write(Path(mixed), name, *mine[:at], *metas, *mine[at:])

        first, second = without_places(load([plain])), without_places(load([mixed]))

    for description in (first, second):
        description["bad"] = [what for what in description["bad"] if not what.startswith(("no usable", "the file is"))]
        for rank, (records, metas, numbers) in description["ranks"].items():
            description["ranks"][rank] = (records, set(metas), numbers)
    assert first == second


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_bytes_cost_lines_and_nothing_else(data: st.DataObject) -> None:
    good = [text(event(seq)) for seq in range(6)]
    noise = data.draw(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=6))
    # The first bytes of a file tell what it is, so a record comes first.
    lines = good[:1] + data.draw(st.permutations(good[1:] + noise))
    with TemporaryDirectory() as folder:
        write(Path(folder), "rank0.jsonl", *lines)

        traces = load([folder])

    assert seqs(only(traces)) == [0, 1, 2, 3, 4, 5]
    assert [one.line for one in traces.damage] == [
        at
        for at, line in enumerate(lines, 1)
        if line not in good and line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r")
    ]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flipped_or_lost_bytes_never_raise(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        name = data.draw(st.sampled_from(["rank1.jsonl", "rank1.jsonl.gz", "rank1.jsonl.zst"]))
        write(Path(folder), "rank0.jsonl", event(0))
        path = write_bytes(Path(folder), name, jsonl(event(seq) for seq in range(20)))
        broken = bytearray(path.read_bytes())
        for at in data.draw(st.lists(st.integers(0, len(broken) - 1), max_size=3)):
            broken[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(broken[: data.draw(st.integers(0, len(broken)))])

        traces = load([folder])

    assert seqs(traces.ranks[0, 0]) == [0]
    assert all(one.file == name for one in traces.damage)
