"""path-derivation: the accepted path is a path of the draft tree, and greedy follows the target's tokens along it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from divtrace.invariants.accept_derivation import is_greedy
from divtrace.invariants.base import Break, Context
from divtrace.walk.rounds import RoundView

_RULE = "path-derivation"


def check(current: RoundView, previous: RoundView | None, context: Context) -> Iterator[Break]:  # noqa: ARG001
    """`accept_path` starts at the root, each node is a child of the one before, its length is `correct_len + 1`.

    Greedy: the draft token of `accept_path[k]` is `target_tokens[accept_path[k-1]]`; the bonus follows the last node.
    Where this breaks on a rank that received the accept by broadcast, its own drafts differ from the source's.
    """
    path, correct = current.pick("accept_path"), current.pick("correct_len")
    if path is None:
        return
    nodes = list(path.value)
    values = {"accept_path": nodes}
    if correct is not None and current.whole(path.record, correct.record):
        values["correct_len"] = correct.value
        if len(nodes) < correct.value + 1:
            yield Break(_RULE, path.record, values)
            return
        nodes = nodes[: max(correct.value + 1, 0)]
    if nodes and nodes[0] != 0:
        yield Break(_RULE, path.record, values)
        return
    draft = current.draft()
    if draft is None or not current.whole(path.record, *draft.records):
        return
    parents = draft.parents if draft.parents is not None else list(range(len(draft.tokens)))
    if not _is_path(nodes, parents):
        yield Break(_RULE, path.record, values | {"draft_parents": draft.parents})
    elif draft.parents is not None and is_greedy(current):
        yield from _greedy(current, nodes, draft.tokens)


def _is_path(nodes: Sequence[int], parents: Sequence[int]) -> bool:
    return all(0 < node <= len(parents) and parents[node - 1] == before for before, node in pairwise(nodes))


def _greedy(current: RoundView, nodes: Sequence[int], drafts: Sequence[int]) -> Iterator[Break]:
    targets, path, bonus = current.pick("target_tokens"), current.pick("accept_path"), current.pick("bonus")
    if targets is None or path is None or not current.whole(targets.record, path.record):
        return
    tokens = targets.value
    values = {"accept_path": list(nodes), "draft_tokens": list(drafts), "target_tokens": tokens}
    for before, node in pairwise(nodes):
        if node <= len(drafts) and before < len(tokens) and drafts[node - 1] != tokens[before]:
            yield Break(_RULE, path.record, values | {"expected": tokens[before]})
            return
    if bonus is None or not nodes or nodes[-1] >= len(tokens) or bonus.value == tokens[nodes[-1]]:
        return
    if current.whole(bonus.record, path.record, targets.record):
        yield Break(_RULE, bonus.record, values | {"bonus": bonus.value, "expected": tokens[nodes[-1]]})
