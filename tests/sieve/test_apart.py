"""The rule that the sieve gives an event at which ranks differ is the one that the walk names it by."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from divtrace.align.groups import align
from divtrace.align.view import RankView
from divtrace.events import FIELD, Event
from divtrace.sieve.apart import RULES, Naming
from divtrace.sieve.columnar.differences import Differences
from divtrace.sieve.columnar.naming import NamedRows
from divtrace.sieve.columnar.rounds import Rounds, Unplain
from divtrace.sieve.columnar.stretch import Part, Stretch
from divtrace.topology import ReplicaGroup
from divtrace.trace.model import RankTrace, Record
from divtrace.walk.compare import Comparison
from divtrace.walk.rounds import rounds_of

NUMBERS = st.sampled_from([None, 0, 1, 2, 3])
LISTS = st.sampled_from([None, [], [1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 5, 3], [7, 2, 3]])
TEXTS = st.sampled_from([None, "a", "b"])
FIELDS: dict[tuple[str, str], dict[str, st.SearchStrategy[Any]]] = {
    ("draft", "draft"): {"draft_root": NUMBERS, "draft_tokens": LISTS, "num_draft_tokens": NUMBERS},
    ("verify", "plan"): {"verify_len": NUMBERS, "verify_budget": NUMBERS},
    ("verify", "layout"): {
        "seq_len": NUMBERS,
        "positions": LISTS,
        "num_tokens": NUMBERS,
        "padded_tokens": NUMBERS,
        "kv_positions": LISTS,
        "graph": TEXTS,
    },
    ("verify", "target"): {"branch": TEXTS, "target_tokens": LISTS},
    ("accept", "accept"): {"branch": TEXTS, "accept_path": LISTS, "correct_len": NUMBERS, "bonus": NUMBERS},
    ("commit", "commit"): {
        "commit_len": NUMBERS,
        "new_seq_len": NUMBERS,
        "out_tokens": LISTS,
        "correct_len": NUMBERS,
        "finished": TEXTS,
    },
}
REPLICAS = {
    2: ReplicaGroup((0, 1), ((0, 1),)),
    3: ReplicaGroup((0, 1, 2), ((0, 1, 2),)),
    4: ReplicaGroup((0, 1, 2, 3), ((0, 1), (2, 3))),
}


@st.composite
def rounds(draw: st.DrawFn, plain: bool = False) -> tuple[int, list[list[Event]]]:
    """A number of ranks, and the events of one round on each of them; most values are equal on all.

    Plain ones hold every value in the record where it belongs.
    """
    ranks = draw(st.sampled_from(sorted(REPLICAS)))
    by_rank: list[list[Event]] = [[] for _ in range(ranks)]
    for (stage, site), fields in FIELDS.items():
        names = sorted(name for name in fields if not plain or (stage, name) != ("commit", "correct_len"))
        common = {name: draw(fields[name]) for name in names}
        changed = draw(st.lists(st.sampled_from(names), max_size=2))
        for events in by_rank:
            own = common | {name: draw(fields[name]) for name in changed}
            key = {"stage": stage, "site": site, "req": "A", "round": 3, "step": 9, "seq": len(events)}
            events.append(msgspec.convert(key | own, Event))
    return ranks, by_rank


@given(rounds())
@settings(max_examples=300, deadline=None)
def test_the_rule_is_that_of_the_first_difference(drawn: tuple[int, list[list[Event]]]) -> None:
    ranks, by_rank = drawn
    views = {rank: RankView(trace(rank, events)) for rank, events in enumerate(by_rank)}
    groups = align(views)
    of_round = rounds_of(groups, views)["A", 0, 3]
    comparison, naming = Comparison(REPLICAS[ranks]), Naming(REPLICAS[ranks], range(ranks))

    rows = list(zip(*by_rank, strict=True))
    for group, row in zip(groups, rows, strict=True):
        found, _ = comparison.differences(group, of_round)
        assert naming.rule(row, rows) == (found[0].rule if found else None), row


@given(st.lists(rounds(plain=True), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_columns_name_rows_alike(drawn: list[tuple[int, list[list[Event]]]]) -> None:
    ranks = drawn[0][0]
    of_ranks = [by_rank for count, by_rank in drawn if count == ranks]
    by_rank = [[event for one in of_ranks for event in one[rank]] for rank in range(ranks)]
    keys = pa.array([number for number, one in enumerate(of_ranks, 1) for _ in one[0]], pa.int64())
    parts = [Part(rank, Columns(events), 0, len(events)) for rank, events in enumerate(by_rank)]  # type: ignore[arg-type]
    everything = pa.repeat(pa.scalar(True), len(keys))
    try:
        seen = [Rounds(Stretch([part]), everything, keys) for part in parts]
        named = NamedRows(
            Stretch(parts), Differences(Stretch(parts), Comparison(REPLICAS[ranks])), seen, keys, everything
        )
    except Unplain:
        reject()

    naming = Naming(REPLICAS[ranks], range(ranks))
    found = dict(zip(named.rows.to_pylist(), named.fields.to_pylist(), strict=True))
    alike = set(named.alike.to_pylist())
    careful = set(named.careful.to_pylist())
    rows = list(zip(*by_rank, strict=True))
    for index, (row, key) in enumerate(zip(rows, keys.to_pylist(), strict=True)):
        if key in careful:
            assert index not in found
            assert index not in alike
            continue
        rule = naming.rule(row, [one for one, other in zip(rows, keys.to_pylist(), strict=True) if other == key])
        assert (RULES[found[index]] if index in found else None) == rule
        assert rule is None or index not in alike


class Columns:
    """Events as the columns of a chunk of a Parquet file."""

    order = None

    def __init__(self, events: list[Event]) -> None:
        """Keep the events."""
        self._events = events

    def column(self, name: str) -> pa.Array | None:
        """One field of all events; None if no event records it."""
        values = [getattr(event, name) for event in self._events]
        if all(value is None for value in values):
            return None
        kind = FIELD[name].type
        if kind == "str":
            return pa.array(values, pa.string()).dictionary_encode()
        return pa.array(values, pa.large_list(pa.int64()) if kind == "[int]" else pa.int64())


def trace(rank: int, events: list[Event]) -> RankTrace:
    records = [Record(event, pos, "trace", pos + 1, False) for pos, event in enumerate(events)]
    return RankTrace(
        id=(0, rank),
        metas=[],
        records=records,
        gaps=[],
        lost=0,
        starts_at_zero=True,
        has_seq=True,
        dropped=0,
        files=("trace",),
    )
