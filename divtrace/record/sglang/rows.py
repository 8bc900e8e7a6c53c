"""The events of a round from the values of its tensors, row by row."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def layout_events(
    keys: list[dict[str, Any]],
    inputs: list[dict[str, Any]],
    width: int,
    chain: bool,
    ids: list[list[int]],
    positions: list[list[int]],
    *more: list[list[int]],
) -> list[dict[str, Any]]:
    """Layout and input of every verified request; its draft tree, if it is one."""
    events = []
    for row, key in enumerate(keys):
        layout = {**key, "row": row, "seq_len": positions[row][0], "positions": positions[row]}
        verified = {**inputs[row], "draft_root": ids[row][0], "draft_tokens": ids[row][1:], "num_draft_tokens": width}
        if not chain:
            # Nodes of a tree share positions, so slots and positions do not pair up.
            children, siblings = more
            verified["draft_parents"] = tree_parents(children[row], siblings[row])
        elif more:
            layout.update(kv_positions=positions[row], kv_slots=more[0][row])
        events += [layout, verified]
    return events


def draft_events(
    keys: list[dict[str, Any]],
    tokens: list[list[int]],
    children: list[list[int]] | None = None,
    siblings: list[list[int]] | None = None,
) -> list[dict[str, Any]]:
    """The drafts of every request, with their tree."""
    events = []
    for row, key in enumerate(keys):
        event = {**key, "draft_root": tokens[row][0], "draft_tokens": tokens[row][1:]}
        if children is not None and siblings is not None:
            event["draft_parents"] = tree_parents(children[row], siblings[row])
        events.append(event)
    return events


def tree_parents(first_child: list[int], next_sibling: list[int]) -> list[int]:
    """The parent of every node but the root, from first-child and next-sibling links (-1: none).

    Raises:
        ValueError: the links are no tree over all nodes.
    """
    parents = [-1] * len(first_child)
    for node, child in enumerate(first_child):
        while child != -1:
            if not 0 < child < len(parents) or parents[child] != -1:
                raise ValueError(f"node {child} of a draft tree has two parents or does not exist")
            parents[child] = node
            child = next_sibling[child]
    if -1 in parents[1:]:
        raise ValueError("a node of a draft tree has no parent")
    return parents[1:]


def accept_events(
    keys: list[dict[str, Any]],
    targets: list[dict[str, Any]],
    width: int,
    predict: list[int],
    accept_lens: list[int],
    accept_index: list[list[int]],
    target_tokens: list[list[int]] | None = None,
) -> list[dict[str, Any]]:
    """The target's tokens where they are known, then what was accepted."""
    events: list[dict[str, Any]] = []
    if target_tokens is not None:
        events += [{**key, "target_tokens": target_tokens[row]} for row, key in enumerate(targets)]
    for row, key in enumerate(keys):
        nodes = accept_index[row][: accept_lens[row]]
        events.append(
            {
                **key,
                "accept_path": [node - row * width for node in nodes],
                "correct_len": accept_lens[row] - 1,
                "bonus": predict[nodes[-1]],
            }
        )
    return events


def commit_events(
    keys: list[dict[str, Any]],
    before: list[int],
    accepted: list[int],
    after: list[int],
    tokens: list[list[int]] | None = None,
) -> list[dict[str, Any]]:
    """What a round committed, with its tokens where they stand in a row."""
    events = []
    for row, key in enumerate(keys):
        event = {**key, "seq_len": before[row], "commit_len": accepted[row], "new_seq_len": after[row]}
        if tokens is not None:
            event["out_tokens"] = tokens[row][: accepted[row]]
        events.append(event)
    return events


def published_events(keys: list[dict[str, Any]], lengths: list[int]) -> list[dict[str, Any]]:
    """The lengths that the next forward starts from."""
    return [{**key, "new_seq_len": length} for key, length in zip(keys, lengths, strict=True)]


def dspark_events(
    keys: list[list[dict[str, Any]]],
    ids: list[list[int]],
    prefix: list[int],
    correct: list[int],
    trimmed: list[int],
    bonus: list[int],
    committed: list[int],
    verify_lens: list[int] | None = None,
) -> list[dict[str, Any]]:
    """Draft, plan, accept and commit of every request of a DSpark round."""
    events = []
    for row, (draft, plan, accept, commit) in enumerate(keys):
        width = len(ids[row])
        plan.update(num_draft_tokens=width, verify_len=width if verify_lens is None else verify_lens[row])
        plan["seq_len"] = prefix[row]
        events += [
            {**draft, "draft_root": ids[row][0], "draft_tokens": ids[row][1:]},
            plan,
            {**accept, "correct_len": correct[row], "bonus": bonus[row], "cap_trim_len": trimmed[row]},
            {**commit, "seq_len": prefix[row], "commit_len": committed[row]},
        ]
    return events


def dflash_events(
    keys: list[list[dict[str, Any]]],
    ids: list[list[int]],
    prefix: list[int],
    accepted: list[int],
    bonus: list[int],
    committed: list[int],
    out_tokens: list[list[int]],
) -> list[dict[str, Any]]:
    """Draft, accept and commit of every request of a DFlash round."""
    events = []
    for row, (draft, accept, commit) in enumerate(keys):
        tokens = out_tokens[row][: committed[row]]
        events += [
            {**draft, "draft_root": ids[row][0], "draft_tokens": ids[row][1:], "num_draft_tokens": len(ids[row])},
            {**accept, "correct_len": accepted[row], "bonus": bonus[row]},
            {**commit, "seq_len": prefix[row], "commit_len": committed[row], "out_tokens": tokens},
        ]
    return events
