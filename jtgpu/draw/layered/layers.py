"""Layers: a number for each node such that every arc points to a higher one, and dummy nodes where an arc passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Arcs = Sequence[tuple[int, int]]  # (parent, child)


class Layers(NamedTuple):
    """A graph whose arcs connect neighbouring layers only.

    Nodes from ``n_nodes`` on are dummies: points at which a long arc crosses a layer.
    """

    n_nodes: int
    rows: list[list[int]]  # nodes of each layer
    above: list[list[int]]  # neighbours of each node in the layer above
    below: list[list[int]]  # neighbours of each node in the layer below
    chains: list[list[int]]  # dummies of each arc, from the top


def assign_layers(n: int, arcs: Arcs) -> list[int]:
    """Number the layer of each node: the longest path from a source, then shorter where that shortens arcs.

    A node with more children than parents moves down to its uppermost child: sources do, which a longest path puts on
    top.
    """
    parents: list[list[int]] = [[] for _ in range(n)]
    children: list[list[int]] = [[] for _ in range(n)]
    for parent, child in arcs:
        parents[child].append(parent)
        children[parent].append(child)
    missing = [len(p) for p in parents]
    order = [v for v in range(n) if not missing[v]]
    layer = [0] * n
    for v in order:  # grows while it is read
        for child in children[v]:
            layer[child] = max(layer[child], layer[v] + 1)
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    for v in reversed(order):
        if len(children[v]) > len(parents[v]):
            layer[v] = min(layer[child] for child in children[v]) - 1
    return layer


def insert_dummies(n: int, arcs: Arcs, layer: Sequence[int]) -> Layers:
    """Replace every arc that passes layers by a chain of dummy nodes."""
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    above: list[list[int]] = [[] for _ in range(n)]
    below: list[list[int]] = [[] for _ in range(n)]
    for v in range(n):
        rows[layer[v]].append(v)
    chains = []
    for parent, child in arcs:
        chain: list[int] = []
        last = parent
        for at in range(layer[parent] + 1, layer[child]):
            dummy = len(above)
            rows[at].append(dummy)
            above.append([last])
            below.append([])
            below[last].append(dummy)
            chain.append(dummy)
            last = dummy
        above[child].append(last)
        below[last].append(child)
        chains.append(chain)
    return Layers(n, rows, above, below, chains)
