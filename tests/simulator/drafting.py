"""Drafts, target tokens and acceptance of one request: pure functions of the context."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.scenario import Algorithm
from simulator.tokens import Model, mix

TREES = ((0, 0, 1, 1, 2), (0, 0, 0, 1, 4), (0, 1, 1, 2, 0), (0, 1, 2, 3, 4))
"""Shapes of draft trees: the parent node of each of five candidates."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Candidates of one round; `parents` is None for a chain."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...] | None = None

    def parent(self, node: int) -> int:
        return node - 1 if self.parents is None else self.parents[node - 1]

    def children(self, node: int) -> list[int]:
        return [child for child in range(1, len(self.tokens) + 1) if self.parent(child) == node]

    def depth(self, node: int) -> int:
        return 0 if node == 0 else 1 + self.depth(self.parent(node))


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The outcome of one round for one request."""

    path: tuple[int, ...]
    bonus: int
    trimmed: int = 0

    @property
    def correct_len(self) -> int:
        return len(self.path) - 1


def propose(model: Model, algorithm: Algorithm, context: int, width: int) -> Draft:
    """The draft model's candidates behind the root that ends `context`."""
    if algorithm.shape == "tree":
        return _propose_tree(model, context)
    if algorithm.shape == "empty-at-times" and mix(context, 19) % 10 < 3:
        return Draft(())
    tokens: list[int] = []
    for _ in range(width):
        tokens.append(model.guess(context))
        context = mix(context, tokens[-1])
    return Draft(tuple(tokens))


def _propose_tree(model: Model, context: int) -> Draft:
    parents = TREES[mix(context, 23) % len(TREES)]
    contexts = [context]
    tokens: list[int] = []
    for node, parent in enumerate(parents):
        token = model.guess(contexts[parent], branch=parents[:node].count(parent))
        tokens.append(token)
        contexts.append(mix(contexts[parent], token))
    return Draft(tuple(tokens), parents)


def verify(model: Model, draft: Draft, context: int, rows: int) -> list[int]:
    """The target's token after each of the first `rows` verified rows; row 0 is the root."""
    contexts = [context]
    for node in range(1, rows):
        contexts.append(mix(contexts[draft.parent(node)], draft.tokens[node - 1]))
    return [model.target(each) for each in contexts]


def accept_greedy(draft: Draft, targets: list[int], most: int | None = None) -> Acceptance:
    """Follows the target through the draft; `most` caps the number of accepted drafts."""
    path = [0]
    while True:
        node = path[-1]
        wanted = targets[node] if node < len(targets) else None
        following = [child for child in draft.children(node) if draft.tokens[child - 1] == wanted]
        if not following or following[0] >= len(targets):
            break
        path.append(following[0])
    kept = path if most is None else path[: most + 1]
    return Acceptance(tuple(kept), targets[kept[-1]], len(path) - len(kept))


def accept_sampling(model: Model, draft: Draft, context: int, rows: int, percent: int = 60) -> Acceptance:
    """Accepts drafts by coins that are the same on every rank with this context."""
    path = [0]
    while True:
        chosen = [c for c in draft.children(path[-1]) if c < rows and model.coin(context, c, percent)]
        if not chosen:
            break
        path.append(chosen[0])
        context = mix(context, draft.tokens[chosen[0] - 1])
    return Acceptance(tuple(path), model.target(mix(context, 29)))
