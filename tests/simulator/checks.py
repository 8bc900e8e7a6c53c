"""Checks a run against SPEC sections 5 and 7 by the shortest means, to know that a run without faults is one.

Written apart from divtrace, on complete traces only: no gaps, no missing fields, no late starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from simulator.recorder import Record
from simulator.run import Run

IDENTITY = {"seq", "ts"} | {"kv_slots", "pool_free", "decided_on", "margin"}
GROUP_ONLY = {"kv_positions", "num_tokens", "padded_tokens", "batch_size", "shape", "dtype", "graph"}
Key = tuple[Any, ...]


def key_of(record: Record) -> Key:
    return (
        record.get("step") if record.get("round") is None else None,
        record.get("req"),
        record.get("attempt", 0),
        record.get("round"),
        record["stage"],
        record.get("site"),
        record.get("phase", "used"),
        record.get("n", 0),
    )


def disagreements(run: Run) -> Iterator[str]:
    """What ranks of one replica record unlike each other although they must not."""
    topology = run.scenario.topology
    for index in range(topology.data):
        ranks = topology.replica_ranks(index)
        events = {rank: _comparable(run.records[rank]) for rank in ranks}
        for rank in ranks:
            for other in (r for r in ranks if r != rank):
                for key in events[rank].keys() & events[other].keys():
                    yield from _differences(run, key, events, rank, other)
                yield from (
                    f"rank {other} lacks {key}"
                    for key in events[rank].keys() - events[other].keys()
                    if any(key[4:7] == theirs[4:7] for theirs in events[other])
                )


def _comparable(records: list[Record]) -> dict[Key, Record]:
    return {key_of(r): r for r in records if r["stage"] not in ("host", "collective") and r.get("phase") != "local"}


def _differences(run: Run, key: Key, events: dict[int, dict[Key, Record]], rank: int, other: int) -> Iterator[str]:
    mine, theirs = events[rank][key], events[other][key]
    for name in (mine.keys() & theirs.keys()) - IDENTITY - {"extra", "comm_ranks", "src"}:
        if name in GROUP_ONLY and other not in run.scenario.topology.attn_tp(rank):
            continue
        if mine[name] != theirs[name]:
            yield f"{key} {name}: rank {rank} {mine[name]}, rank {other} {theirs[name]}"
    for name in mine.get("extra", {}):
        if name.split(".")[0] in ("control", "layout", "shape") and mine["extra"][name] != theirs["extra"][name]:
            yield f"{key} extra.{name}: rank {rank} {mine['extra'][name]}, rank {other} {theirs['extra'][name]}"


def mismatched_operations(run: Run) -> Iterator[str]:
    """Operations of one number on one communicator that do not fit, or that a member lacks."""
    operations: dict[Key, dict[int, Record]] = {}
    for rank, record in run.events():
        if record["stage"] == "collective" and "comm_seq" in record:
            key = (record["comm"], tuple(record["comm_ranks"]), record["comm_seq"])
            operations.setdefault(key, {})[rank] = record
    for key, issued in operations.items():
        if set(issued) != set(key[1]):
            yield f"{key} issued by {sorted(issued)}"
        if len({(r["site"], r["numel"], r.get("src"), r["op"].replace("recv", "send")) for r in issued.values()}) > 1:
            yield f"{key} does not fit"


def broken_invariants(run: Run) -> Iterator[str]:
    """Invariants of SPEC section 7 that a rank's own records break."""
    for rank in run.ranks:
        for text in _broken_on_rank(run.records[rank]):
            yield f"rank {rank}: {text}"


def _broken_on_rank(records: list[Record]) -> Iterator[str]:
    rounds: dict[Key, dict[str, Any]] = {}
    owners: dict[int, tuple[Key, int]] = {}
    places: dict[tuple[Key, int], int] = {}
    for record in records:
        request = (record.get("req"), record.get("attempt", 0))
        if record.get("decision") in ("retract", "abort") or record.get("finished"):
            _forget(owners, places, request, 0)
        elif record["stage"] == "commit":
            _forget(owners, places, request, record["new_seq_len"])
        elif record.get("site") == "layout":
            yield from _alias(owners, places, request, record)
        if "round" not in record or record.get("phase") in ("local", "synced"):
            continue
        facts = rounds.setdefault((*request, record["round"]), {"forwards": []})
        if record["stage"] == "draft" and "n" in record:
            facts["draft_tokens"] = facts["draft_tokens"] + record["draft_tokens"]
            continue
        facts.update(record)
        facts[f"{record['stage']}/{record['site']}"] = record
    for (req, attempt, number), facts in rounds.items():
        before = rounds.get((req, attempt, number - 1), {})
        if number > 0 and not before.get("finished"):
            yield from (f"{req} round {number}: {text}" for text in _broken_in_round(facts, before))


def _forget(owners: dict[int, tuple[Key, int]], places: dict[tuple[Key, int], int], request: Key, length: int) -> None:
    for place in [p for p in places if p[0] == request and p[1] >= length]:
        owners.pop(places.pop(place), None)


def _alias(
    owners: dict[int, tuple[Key, int]], places: dict[tuple[Key, int], int], request: Key, record: Record
) -> Iterator[str]:
    positions, slots = record.get("kv_positions", []), record.get("kv_slots", [])
    if len(positions) != len(slots):
        yield f"{request}: {len(positions)} positions, {len(slots)} slots"
    shared = record["seq_len"] if record["stage"] == "prefill" else 0
    for position, slot in zip(positions, slots, strict=True):
        if position < shared:
            continue
        if slot in owners and owners[slot] != (request, position):
            yield f"slot {slot} holds {owners[slot]} and {(request, position)}"
        owners.pop(places.get((request, position), -1), None)
        owners[slot], places[(request, position)] = (request, position), slot


def _broken_in_round(facts: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
    layout = facts.get("verify/layout")
    commit = facts.get("commit/commit")
    drafts, parents, targets = facts.get("draft_tokens"), facts.get("draft_parents"), facts.get("target_tokens")
    if "correct_len" in facts and drafts is not None:
        if facts["correct_len"] > len(drafts):
            yield "plan-bound"
        if not 1 <= facts.get("verify_len", 1) <= facts.get("num_draft_tokens", 99):
            yield "plan-bound"
        if facts["correct_len"] > facts.get("verify_len", 99) - 1:
            yield "plan-bound"
        path = facts.get("accept_path", list(range(facts["correct_len"] + 1)))
        yield from _broken_path(facts, path, drafts, parents, targets)
        if commit and commit["out_tokens"] != [drafts[node - 1] for node in path[1:]] + [facts["bonus"]]:
            yield "out-token-derivation"
    for record in (layout, commit):
        if record and "new_seq_len" in before and record["seq_len"] != before["new_seq_len"]:
            yield "sequence-continuity"
    if layout:
        depths = [0]
        for node in range(1, len(layout["positions"])):
            depths.append(depths[parents[node - 1]] + 1 if parents else node)
        if layout["positions"] != [layout["seq_len"] + depth for depth in depths]:
            yield "position-arithmetic"
    if commit:
        if commit["commit_len"] != facts.get("correct_len", commit["commit_len"] - 1) + 1:
            yield "commit-arithmetic"
        if commit["new_seq_len"] != commit["seq_len"] + commit["commit_len"]:
            yield "commit-arithmetic"
        if len(commit["out_tokens"]) != commit["commit_len"]:
            yield "out-token-derivation"
    last = before.get("out_tokens", [before.get("bonus")])[-1]
    if last is not None and facts.get("draft_root", last) != last:
        yield "anchor-continuity"


def _broken_path(
    facts: dict[str, Any], path: list[int], drafts: list[int], parents: list[int] | None, targets: list[int] | None
) -> Iterator[str]:
    parent_of = parents if parents is not None else list(range(len(drafts)))
    for above, node in pairwise(path):
        if parent_of[node - 1] != above:
            yield "path-derivation"
        if targets and drafts[node - 1] != targets[above]:
            yield "accept-derivation"
    if targets and facts["bonus"] != targets[path[-1]]:
        yield "bonus"
    deciding = path[-1]
    stopped_short = (
        targets and parents is None and "cap_trim_len" not in facts and deciding < min(len(drafts), len(targets) - 1)
    )
    if targets and stopped_short and drafts[deciding] == targets[deciding]:
        yield "accept-derivation: one more draft matches"


def problems(run: Run) -> list[str]:
    """Everything that is wrong with a run that should be clean."""
    stuck = [f"rank {rank} waits in {operation.site}" for rank, operation in run.stuck.items()]
    return [*stuck, *disagreements(run), *mismatched_operations(run), *broken_invariants(run)]
