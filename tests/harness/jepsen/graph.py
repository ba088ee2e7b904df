# SPDX-License-Identifier: Apache-2.0
"""Strongly connected components in linear time, and a shortest cycle inside one; nodes are numbers."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator

Edge = tuple[int, int]


def components(edges: Iterable[Edge]) -> list[set[int]]:
    """Those of more than one node (Kosaraju's algorithm, without recursion)."""
    forward: dict[int, list[int]] = defaultdict(list)
    backward: dict[int, list[int]] = defaultdict(list)
    for start, end in edges:
        forward[start].append(end)
        backward[end].append(start)
    found = []
    assigned: set[int] = set()
    for root in reversed(_by_finish(forward)):
        if root in assigned:
            continue
        component, waiting = {root}, [root]
        assigned.add(root)
        while waiting:
            for node in backward.get(waiting.pop(), ()):
                if node not in assigned:
                    assigned.add(node)
                    component.add(node)
                    waiting.append(node)
        if len(component) > 1:
            found.append(component)
    return found


def _by_finish(forward: dict[int, list[int]]) -> list[int]:
    """Nodes in the order in which a depth-first search leaves them."""
    finished: list[int] = []
    entered: set[int] = set()
    for root in list(forward):
        if root in entered:
            continue
        entered.add(root)
        stack: list[tuple[int, Iterator[int]]] = [(root, iter(forward[root]))]
        while stack:
            node, rest = stack[-1]
            for successor in rest:
                if successor not in entered:
                    entered.add(successor)
                    stack.append((successor, iter(forward.get(successor, ()))))
                    break
            else:
                finished.append(node)
                stack.pop()
    return finished


def shortest_cycle(edges: Iterable[Edge], first: Edge, component: Collection[int]) -> list[int]:
    """The nodes of a shortest cycle that begins with an edge of a component."""
    forward: dict[int, list[int]] = defaultdict(list)
    for start, end in edges:
        if start in component and end in component:
            forward[start].append(end)
    goal, start = first
    came_from = {start: start}
    waiting = deque([start])
    while goal not in came_from:
        node = waiting.popleft()
        for successor in forward[node]:
            if successor not in came_from:
                came_from[successor] = node
                waiting.append(successor)
    path = [goal]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return [goal, *reversed(path[1:])]
