"""The rule that the sieve gives an event at which ranks differ is the one that the walk names it by."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from divtrace.align.groups import align
from divtrace.align.view import RankView
from divtrace.events import Event
from divtrace.sieve.apart import Naming
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
def rounds(draw: st.DrawFn) -> tuple[int, list[list[Event]]]:
    """A number of ranks, and the events of one round on each of them; most values are equal on all."""
    ranks = draw(st.sampled_from(sorted(REPLICAS)))
    by_rank: list[list[Event]] = [[] for _ in range(ranks)]
    for (stage, site), fields in FIELDS.items():
        common = {name: draw(values) for name, values in fields.items()}
        changed = draw(st.lists(st.sampled_from(sorted(fields)), max_size=2))
        for events in by_rank:
            own = common | {name: draw(fields[name]) for name in changed}
            key = {"stage": stage, "site": site, "req": "A", "round": 3, "step": 9, "seq": len(events)}
            events.append(msgspec.convert(key | own, Event))
    return ranks, by_rank


@given(rounds())
@settings(max_examples=600, deadline=None)
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
