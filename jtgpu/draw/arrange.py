"""Positions of the boxes and lines of a graph: the components one by one, then packed.

Dense drawings: boxes in full rows, so that their names can be read where a layered drawing would be too large.

Arcs point downwards and may pass behind boxes. Everything is an integer and depends on the arguments alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from .layers import Layers, assign_layers, insert_dummies, reduce_crossings

# Layers that are too wide become several: node i of k layers' worth goes to layer i mod k, like bricks in a wall.

LayerRows = list[list[int]]


def stagger(
    graph: Layers, rows: LayerRows, arcs: Sequence[tuple[int, int]], width: Sequence[int], max_width: int
) -> tuple[Layers, LayerRows]:
    """Distribute the nodes of wide layers over several, without new crossings."""
    # rows: list of lists of int: Nodes of each layer, from left to right
    # arcs: sequence of (int, int)
    # width: sequence of int: Space that each node or dummy takes in its layer
    # max_width: Width that a layer should have at most
    # returns Layers, list of lists of int: The graph with the new layers, and its nodes from left to right.
    parts = [max(1, -(-sum(width[v] for v in row) // max_width)) for row in rows]
    if max(parts) == 1:
        return graph, rows
    first = [0, *accumulate(parts)]
    n = graph.n_nodes
    old, place, layer = [0] * len(width), [0] * len(width), [0] * n
    for at, row in enumerate(rows):
        for i, v in enumerate(row):
            old[v], place[v] = at, i
        for i, v in enumerate(v for v in row if v < n):
            layer[v] = first[at] + i % parts[at]
    made = insert_dummies(n, arcs, layer)
    origin = [at for at, k in enumerate(parts) for _ in range(k)]
    # a node keeps its place; a dummy has that of the arc's node or dummy in the old layer, then that of its neighbour
    key = [(place[v], -1) for v in range(n)] + [(0, 0)] * (len(made.above) - n)
    for (parent, child), before, chain in zip(arcs, graph.chains, made.chains, strict=True):
        path = [place[parent], *(place[d] for d in before), place[child]]
        for at, dummy in enumerate(chain, layer[parent] + 1):
            i = origin[at] - old[parent]
            neighbour = i - 1 if i else 1
            key[dummy] = (path[i], path[neighbour])
    return made, [sorted(row, key=key.__getitem__) for row in made.rows]


# Horizontal coordinates after Brandes and Koepf, "Fast and Simple Horizontal Coordinate Assignment" (2002).
#
# Four alignments (to the upper or lower neighbours, to the left or right) give each node a coordinate; the result is
# the mean of the two in the middle. Each alignment keeps the distances between neighbours of a layer, and so does the
# result. Blocks are compacted by longest paths, which the erratum of 2020 does not affect.

Rows = Sequence[Sequence[int]]


def horizontal_coordinates(graph: Layers, rows: Rows, half: Sequence[int]) -> list[int]:
    """Compute the centre of each node."""
    # rows: sequence of sequences of int: Nodes of each layer, from left to right
    # half: sequence of int: Half the space that each node takes, distances included: neighbours are at least ``half[u]
    #     + half[v]`` apart
    conflicts = _conflicts(graph, rows)
    placed: list[list[int]] = []
    for neighbours, vertical in ((graph.above, 1), (graph.below, -1)):
        for horizontal in (1, -1):
            turned = [row[::horizontal] for row in rows[::vertical]]
            root = _align(turned, neighbours, conflicts)
            placed.append([horizontal * x for x in _compact(turned, root, half)])
    return _balance(placed, half)


def _conflicts(graph: Layers, rows: Rows) -> set[tuple[int, int]]:
    """Arcs (upper, lower) that cross the chain of a long arc, which stays straight instead."""
    n = graph.n_nodes
    marked = set()
    place = [0] * len(graph.above)
    for row in rows:
        for i, v in enumerate(row):
            place[v] = i
    for upper, lower in pairwise(rows):
        left, done = -1, 0
        for i, v in enumerate(lower):
            inner = v >= n and graph.above[v][0] >= n
            if not inner and i < len(lower) - 1:
                continue
            right = place[graph.above[v][0]] if inner else len(upper)
            for w in lower[done : i + 1]:
                for u in graph.above[w]:
                    if (place[u] < left or place[u] > right) and not (u >= n and w >= n):
                        marked.add((u, w))
            left, done = right, i + 1
    return marked


def _align(rows: Rows, neighbours: Sequence[Sequence[int]], conflicts: set[tuple[int, int]]) -> list[int]:
    """Join nodes with the medians of their neighbours in the layer before: the first node of each node's block."""
    n = len(neighbours)
    root, is_free, place = [*range(n)], [True] * n, [0] * n
    for row in rows:
        last = -1
        for v in row:
            ends = sorted([(place[u], u) for u in neighbours[v]])
            if not ends:
                continue
            for i in dict.fromkeys(((len(ends) - 1) // 2, len(ends) // 2)):
                at, u = ends[i]
                if at > last and is_free[u] and (u, v) not in conflicts and (v, u) not in conflicts:
                    root[v], is_free[u], last = root[u], False, at
                    break
        for i, v in enumerate(row):
            place[v] = i
    return root


def _compact(rows: Rows, root: Sequence[int], half: Sequence[int]) -> list[int]:
    """Coordinates of the nodes: blocks as far left as the distances allow, then right up to the next block."""
    after: list[list[tuple[int, int]]] = [[] for _ in root]  # blocks to the right, with the distance to them
    missing = [0] * len(root)
    for row in rows:
        for u, v in pairwise(row):
            after[root[u]].append((root[v], half[u] + half[v]))
            missing[root[v]] += 1
    order = [v for v, r in enumerate(root) if v == r and not missing[v]]
    x = [0] * len(root)
    for v in order:  # grows while it is read
        at = x[v]
        for w, distance in after[v]:
            if x[w] < at + distance:
                x[w] = at + distance
            missing[w] -= 1
            if not missing[w]:
                order.append(w)
    for v in reversed(order):
        if after[v]:
            x[v] = max(x[v], min([x[w] - distance for w, distance in after[v]]))
    return [x[r] for r in root]


def _balance(placed: list[list[int]], half: Sequence[int]) -> list[int]:
    """Move the four results to the extent of the narrowest one, and take the mean of the middle two of each node."""
    lows = [min([x - h for x, h in zip(xs, half, strict=True)]) for xs in placed]
    highs = [max([x + h for x, h in zip(xs, half, strict=True)]) for xs in placed]
    narrow = min(range(4), key=lambda i: highs[i] - lows[i])
    moved = []
    for i, xs in enumerate(placed):
        # results aligned to the left share the left end, the others the right end
        shift = lows[narrow] - lows[i] if i % 2 == 0 else highs[narrow] - highs[i]
        moved.append([x + shift for x in xs])
    middle = [sorted(four)[1:3] for four in zip(*moved, strict=True)]
    return [(a + b) // 2 for a, b in middle]


DUMMY_GAP = 12  # pixels between lines that pass a layer
SLOPE = 8  # pixels to the side, for which the gap grows by one
COMPONENT_GAP = 36

Point = tuple[int, int]


class Spacing(NamedTuple):
    """Distances in a drawing."""

    node: int = 24  # pixels between neighbours of a layer
    layer: int = 36  # pixels between layers
    most_layer: int = 120  # where arcs run far to the side
    ratio: float = 1.6  # of width to height that packed components aim at


SPACING = Spacing()


class Arrangement(NamedTuple):
    """Boxes and lines in pixels, the origin at the top left."""

    boxes: tuple[tuple[int, int, int, int], ...]  # tuple of (x, y, width, height): The box of each node
    # tuple of tuples of (x, y): For each arc, points from the bottom of its parent down to the top of its child; y
    #     ascends
    lines: tuple[tuple[Point, ...], ...]
    width: int
    height: int


def arrange(
    sizes: Sequence[tuple[int, int]], arcs: Sequence[tuple[int, int]], max_width: int | None = None,
    spacing: Spacing = SPACING,
) -> Arrangement:
    """Draw a directed acyclic graph in layers, arcs downwards.

    The result consists of integers and depends on the arguments alone. Boxes do not overlap, and no line passes a box.
    """
    # sizes: sequence of (int, int): Width and height of the box of each node, in pixels; odd widths are rounded up
    # arcs: sequence of (int, int): Parent and child of each arc, which must not form a cycle
    # max_width: Width at which the nodes of a layer are distributed over several, which makes arcs longer. The drawing
    #     may still be somewhat wider.
    sizes = [(width + width % 2, height) for width, height in sizes]
    components = _components(len(sizes), arcs)
    component = {v: i for i, nodes in enumerate(components) for v in nodes}
    arcs_inside: list[list[int]] = [[] for _ in components]
    for a, (parent, _) in enumerate(arcs):
        arcs_inside[component[parent]].append(a)
    parts = []
    for nodes, inside in zip(components, arcs_inside, strict=True):
        number = {v: i for i, v in enumerate(nodes)}
        edges = [(number[arcs[a][0]], number[arcs[a][1]]) for a in inside]
        drawn = _arrange_connected([sizes[v] for v in nodes], edges, max_width, spacing)
        parts.append((nodes, inside, drawn))
    corners, width, height = _pack([(part.width, part.height) for _, _, part in parts], spacing.ratio)
    boxes = [(0, 0, 0, 0)] * len(sizes)
    lines: list[tuple[Point, ...]] = [()] * len(arcs)
    for (nodes, inside, part), (dx, dy) in zip(parts, corners, strict=True):
        for v, (x, y, w, h) in zip(nodes, part.boxes, strict=True):
            boxes[v] = (x + dx, y + dy, w, h)
        for a, line in zip(inside, part.lines, strict=True):
            lines[a] = tuple((x + dx, y + dy) for x, y in line)
    return Arrangement(tuple(boxes), tuple(lines), width, height)


def _components(n: int, arcs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Connected components, each ascending, by their first node."""
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for parent, child in arcs:
        neighbours[parent].append(child)
        neighbours[child].append(parent)
    seen = [False] * n
    parts = []
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        nodes = [start]
        for v in nodes:  # grows while it is read
            for w in neighbours[v]:
                if not seen[w]:
                    seen[w] = True
                    nodes.append(w)
        parts.append(sorted(nodes))
    return parts


def _arrange_connected(
    sizes: Sequence[tuple[int, int]], arcs: Sequence[tuple[int, int]], max_width: int | None, spacing: Spacing
) -> Arrangement:
    n = len(sizes)
    graph = insert_dummies(n, arcs, assign_layers(n, arcs))
    rows = reduce_crossings(graph)
    if max_width is not None:
        width = [w + spacing.node for w, _ in sizes] + [DUMMY_GAP] * (len(graph.above) - n)
        graph, rows = stagger(graph, rows, arcs, width, max_width)
    half = [w // 2 + spacing.node // 2 for w, _ in sizes] + [DUMMY_GAP // 2] * (len(graph.above) - n)
    centre = horizontal_coordinates(graph, rows, half)
    left = min([x - h for x, h in zip(centre, half, strict=True)]) + spacing.node // 2
    centre = [x - left for x in centre]
    tops, bottoms = _vertical(graph, rows, sizes, centre, spacing)
    layer = [0] * len(graph.above)
    for i, row in enumerate(rows):
        for v in row:
            layer[v] = i
    boxes = []
    for v, (w, h) in enumerate(sizes):
        spare = bottoms[layer[v]] - tops[layer[v]] - h
        boxes.append((centre[v] - w // 2, tops[layer[v]] + spare // 2, w, h))
    lines = []
    for (parent, child), chain in zip(arcs, graph.chains, strict=True):
        line = [(centre[parent], boxes[parent][1] + boxes[parent][3]), (centre[parent], bottoms[layer[parent]])]
        for dummy in chain:
            line += [(centre[dummy], tops[layer[dummy]]), (centre[dummy], bottoms[layer[dummy]])]
        line += [(centre[child], tops[layer[child]]), (centre[child], boxes[child][1])]
        lines.append(_without_straight_points(line))
    right = max([x + (sizes[v][0] // 2 if v < n else 0) for v, x in enumerate(centre)])
    return Arrangement(tuple(boxes), tuple(lines), right, bottoms[-1])


def _vertical(
    graph: Layers, rows: Sequence[Sequence[int]], sizes: Sequence[tuple[int, int]], centre: Sequence[int],
    spacing: Spacing,
) -> tuple[list[int], list[int]]:
    """Top and bottom of each layer."""
    tops, bottoms, y = [], [], 0
    for i, row in enumerate(rows):
        if i:
            far = max([abs(centre[v] - centre[u]) for v in row for u in graph.above[v]], default=0)
            y += min(spacing.layer + far // SLOPE, spacing.most_layer)
        tops.append(y)
        y += max([sizes[v][1] for v in row if v < graph.n_nodes], default=0)
        bottoms.append(y)
    return tops, bottoms


def _without_straight_points(line: Sequence[Point]) -> tuple[Point, ...]:
    """Leave out repeated points, and points between two others with the same x."""
    kept: list[Point] = []
    for point in line:
        if kept and kept[-1] == point:
            continue
        if len(kept) > 1 and kept[-2][0] == kept[-1][0] == point[0]:
            kept.pop()
        kept.append(point)
    return tuple(kept)


def _pack(sizes: Sequence[tuple[int, int]], ratio: float) -> tuple[list[Point], int, int]:
    """Place rectangles on shelves, the highest first; their corners, and the width and height of all."""
    area = sum((w + COMPONENT_GAP) * (h + COMPONENT_GAP) for w, h in sizes)
    limit = max([w for w, _ in sizes] + [math.isqrt(int(area * ratio))])
    corners: list[Point] = [(0, 0)] * len(sizes)
    x = y = shelf = width = 0
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i][1], i)):
        w, h = sizes[i]
        if x and x + w > limit:
            x, y, shelf = 0, y + shelf + COMPONENT_GAP, 0
        corners[i] = (x, y)
        x += w + COMPONENT_GAP
        shelf, width = max(shelf, h), max(width, x - COMPONENT_GAP)
    return corners, width, y + shelf


GAPS = (14, 30)  # pixels between boxes of a row, and between rows
AHEAD = 100  # layers from which a row may be filled
SWEEPS = 12

Size = tuple[int, int]


def arrange_dense(
    sizes: Sequence[Size], arcs: Sequence[tuple[int, int]], width: int, gaps: Size = GAPS
) -> Arrangement:
    """Place boxes in rows of a width, each below its parents and close to its neighbours."""
    # sizes: sequence of (int, int): Width and height of each box
    # arcs: sequence of (int, int): Parent and child of each arc, which must not form a cycle
    n = len(sizes)
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for parent, child in arcs:
        neighbours[parent].append(child)
        neighbours[child].append(parent)
    gap, row_gap = gaps
    rows = _rows(sizes, arcs, width, gap)
    centre = [0] * n
    for row in rows:
        _place(row, [*range(len(row))], sizes, centre, width, gap)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wanted = {v: sum(centre[u] for u in neighbours[v]) // len(neighbours[v]) for v in row if neighbours[v]}
            row.sort(key=lambda v: (wanted.get(v, centre[v]), v))
            _place(row, [wanted.get(v, centre[v]) for v in row], sizes, centre, width, gap)
    boxes = [(0, 0, 0, 0)] * n
    y = 0
    left = min((centre[v] - sizes[v][0] // 2 for v in range(n)), default=0)
    for row in rows:
        height = max(sizes[v][1] for v in row)
        for v in row:
            w, h = sizes[v]
            boxes[v] = (centre[v] - w // 2 - left, y + (height - h) // 2, w, h)
        y += height + row_gap
    lines = tuple(
        ((boxes[a][0] + boxes[a][2] // 2, boxes[a][1] + boxes[a][3]), (boxes[b][0] + boxes[b][2] // 2, boxes[b][1]))
        for a, b in arcs
    )
    return Arrangement(tuple(boxes), lines, max((x + w for x, _, w, _ in boxes), default=0), max(y - row_gap, 0))


def _rows(sizes: Sequence[Size], arcs: Sequence[tuple[int, int]], width: int, gap: int) -> list[list[int]]:
    """Nodes of each row: those of the first layers whose parents are in rows above, as many as fit."""
    n = len(sizes)
    layer = assign_layers(n, arcs)
    place = [0] * n
    for row in reduce_crossings(insert_dummies(n, arcs, layer)):
        for i, v in enumerate(row):
            if v < n:
                place[v] = i
    missing = [0] * n
    children: list[list[int]] = [[] for _ in range(n)]
    for parent, child in arcs:
        missing[child] += 1
        children[parent].append(child)
    # the longest paths first: where every box waited for its layer, the last rows would be short
    below = [0] * n
    for v in sorted(range(n), key=lambda v: -layer[v]):
        below[v] = max((below[child] + 1 for child in children[v]), default=0)
    layer = [max(below, default=0) - k for k in below]
    order = sorted(range(n), key=lambda v: (layer[v], place[v]))
    rows: list[list[int]] = []
    while order:
        most = layer[order[0]] + AHEAD
        row, left = [], width
        for v in order:
            if layer[v] > most:
                break
            if not missing[v] and (sizes[v][0] <= left or not row):
                row.append(v)
                left -= sizes[v][0] + gap
        for v in row:
            for child in children[v]:
                missing[child] -= 1
        placed = set(row)
        order = [v for v in order if v not in placed]
        rows.append(sorted(row, key=lambda v: (place[v], v)))
    return rows


def _place(
    row: Sequence[int], wanted: Sequence[int], sizes: Sequence[Size], centre: list[int], width: int, gap: int
) -> None:
    """Set the centres of a row: as close to the wanted ones as the distances allow, in this order."""
    starts, total = [], 0
    for v in row:
        starts.append(total + sizes[v][0] // 2)
        total += sizes[v][0] + gap
    most = max(width - (total - gap), 0)
    # pool adjacent violators: blocks of boxes that touch, by their common shift
    blocks: list[tuple[int, int]] = []  # sum of shifts, number of boxes
    for at, start in zip(wanted, starts, strict=True):
        shift, n = at - start, 1
        while blocks and blocks[-1][0] * n >= shift * blocks[-1][1]:
            before, k = blocks.pop()
            shift, n = shift + before, n + k
        blocks.append((shift, n))
    shifts = [min(max(shift // n, 0), most) for shift, n in blocks for _ in range(n)]
    for v, start, shift in zip(row, starts, shifts, strict=True):
        centre[v] = start + shift
