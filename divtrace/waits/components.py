"""Strongly connected components, without recursion and in time linear in the edges."""

from __future__ import annotations

from collections.abc import Sequence


def components(successors: Sequence[Sequence[int]]) -> list[int]:
    """The component number of every node of a graph whose nodes are 0 … n-1 (Tarjan's algorithm).

    Components are numbered so that an edge never leads to a component with a higher number: a component without
    outgoing edges is found before everything that reaches it.
    """
    size = len(successors)
    index = [-1] * size
    low = [0] * size
    component = [-1] * size
    open_nodes: list[int] = []
    counter = 0
    found = 0
    for root in range(size):
        if index[root] != -1:
            continue
        work = [(root, 0)]
        while work:
            node, position = work.pop()
            if position == 0:
                index[node] = low[node] = counter
                counter += 1
                open_nodes.append(node)
            following = successors[node]
            advanced = False
            while position < len(following):
                target = following[position]
                position += 1
                if index[target] == -1:
                    work.append((node, position))
                    work.append((target, 0))
                    advanced = True
                    break
                if component[target] == -1:
                    low[node] = min(low[node], index[target])
            if advanced:
                continue
            if low[node] == index[node]:
                while True:
                    member = open_nodes.pop()
                    component[member] = found
                    if member == node:
                        break
                found += 1
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return component
