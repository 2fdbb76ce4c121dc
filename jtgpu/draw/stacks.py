"""Many leaves of one parent are drawn as columns, below each other, so that a hub does not make a picture wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from .layered.arrange import Arrangement, arrange
from .svg import ARROW

MIN_LEAVES, MAX_STACK = 6, 8  # leaves of a parent that are stacked; boxes of a column
SPINE, TOP, GAP = 18, 12, 15  # pixels: left of the boxes, above them, between them

Size = tuple[int, int]


class StackedDrawing(NamedTuple):
    """Boxes of all nodes, and lines of the arcs that are no part of a column."""

    made: Arrangement  # boxes of all nodes; lines of `arcs`
    arcs: list[tuple[int, int]]  # (parent, child), the child -1 for a column
    spines: list[str]  # path data of the lines within columns
    heads: list[str]  # path data of their arrow heads


def arrange_stacked(
    sizes: Sequence[Size], arcs: Sequence[tuple[int, int]], max_width: int, apart: frozenset[int] = frozenset()
) -> StackedDrawing:
    """Arrange a graph; leaves with the same single parent become columns where there are many."""
    # sizes: sequence of (int, int)
    # arcs: sequence of (int, int)
    # max_width: See `jtgpu.draw.layered.arrange.arrange`
    # apart: frozenset of int: Nodes that are no part of a column
    stacks = [*_stacks(len(sizes), arcs, apart)]
    stacked = {v for _, members in stacks for v in members}
    nodes = [v for v in range(len(sizes)) if v not in stacked]
    number = {v: i for i, v in enumerate(nodes)}
    kept = [(parent, child) for parent, child in arcs if child not in stacked]
    inner_sizes = [sizes[v] for v in nodes]
    inner_arcs = [(number[parent], number[child]) for parent, child in kept]
    for parent, members in stacks:
        inner_arcs.append((number[parent], len(inner_sizes)))
        inner_sizes.append(_size([sizes[v] for v in members]))
        kept.append((parent, -1))
    inner = arrange(inner_sizes, inner_arcs, max_width)
    boxes = [(0, 0, 0, 0)] * len(sizes)
    for v, box in zip(nodes, inner.boxes, strict=False):
        boxes[v] = box
    spines, heads = [], []
    for (_, members), (x, y, w, _) in zip(stacks, inner.boxes[len(nodes) :], strict=True):
        left, at = x + SPINE // 3, y + TOP
        data = ""
        for v in members:
            width, height = sizes[v]
            boxes[v] = (x + SPINE, at, width, height)
            middle = at + height // 2
            data += f"M{left} {middle}H{x + SPINE - ARROW}"
            heads.append(f"M{x + SPINE} {middle}l-{ARROW}-4v8z")
            at += height + GAP
        middle = boxes[members[-1]][1] + boxes[members[-1]][3] // 2
        spines.append(f"M{x + w // 2} {y}V{y + TOP // 3}H{left}V{middle}{data}")
    made = Arrangement(tuple(boxes), inner.lines, inner.width, inner.height)
    return StackedDrawing(made, kept, spines, heads)


def _stacks(n: int, arcs: Sequence[tuple[int, int]], apart: frozenset[int]) -> Iterator[tuple[int, list[int]]]:
    """Parents with the leaves of one column each; columns of a parent differ by at most one box."""
    parents: list[list[int]] = [[] for _ in range(n)]
    is_leaf = [v not in apart for v in range(n)]
    for parent, child in arcs:
        parents[child].append(parent)
        is_leaf[parent] = False
    leaves: dict[int, list[int]] = {}
    for v in range(n):
        if is_leaf[v] and len(parents[v]) == 1:
            leaves.setdefault(parents[v][0], []).append(v)
    for parent, members in leaves.items():
        if len(members) >= MIN_LEAVES:
            k = -(-len(members) // MAX_STACK)
            bounds = [i * len(members) // k for i in range(k + 1)]
            for first, last in pairwise(bounds):
                yield parent, members[first:last]


def _size(sizes: Sequence[Size]) -> Size:
    width = SPINE + max(w for w, _ in sizes)
    return width + width % 2, TOP + sum(h for _, h in sizes) + GAP * (len(sizes) - 1)
