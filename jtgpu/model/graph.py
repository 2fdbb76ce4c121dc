"""Directed graphs as lists of parents and children: cycles, descendants, d-separation, components.

Vertices are numbers 0..V-1. ``parents[v]`` and ``children[v]`` are the neighbours of vertex v.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

Adjacency = Sequence[Sequence[int]]


def find_cycle(parents: Adjacency, children: Adjacency) -> list[int]:
    """The vertices of a directed cycle, the first one repeated at the end; an empty list if there is none."""
    n_waiting = [len(p) for p in parents]
    ready = [v for v, n in enumerate(n_waiting) if n == 0]  # Kahn's algorithm
    done = 0
    while ready:
        v = ready.pop()
        done += 1
        for c in children[v]:
            n_waiting[c] -= 1
            if n_waiting[c] == 0:
                ready.append(c)
    if done == len(parents):
        return []
    v = next(i for i, n in enumerate(n_waiting) if n > 0)
    walk: dict[int, None] = {}
    while v not in walk:  # against the arcs, among the vertices that are left
        walk[v] = None
        v = next(p for p in parents[v] if n_waiting[p] > 0)
    path = list(walk)
    return [*path[path.index(v) :], v][::-1]


def descendants(successors: Adjacency, sources: Iterable[int]) -> set[int]:
    """The sources and every vertex that a directed path from one of them reaches.

    With lists of parents in place of children: the sources and their ancestors.
    """
    found = set(sources)
    stack = list(found)
    while stack:
        for v in successors[stack.pop()]:
            if v not in found:
                found.add(v)
                stack.append(v)
    return found


def reachable(parents: Adjacency, children: Adjacency, sources: Iterable[int], observed: AbstractSet[int]) -> set[int]:
    """Unobserved vertices that are d-connected to a source given the observed vertices, the sources included.

    Koller and Friedman, Probabilistic Graphical Models, 2009, algorithm 3.1.
    """
    above_observed = descendants(parents, observed)
    # a vertex, and whether a path enters it from a child (True) or from a parent (False)
    stack = [(v, True) for v in sources]
    visited = set(stack)
    while stack:
        v, from_child = stack.pop()
        following: list[tuple[int, bool]] = []
        if v not in observed:
            following += [(c, False) for c in children[v]]
        if (from_child and v not in observed) or (not from_child and v in above_observed):
            following += [(p, True) for p in parents[v]]
        for step in following:
            if step not in visited:
                visited.add(step)
                stack.append(step)
    return {v for v, _ in visited if v not in observed}
