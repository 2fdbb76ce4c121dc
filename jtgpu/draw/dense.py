"""Dense drawings: boxes in full rows, so that their names can be read where a layered drawing would be too large.

Arcs point downwards and may pass behind boxes. Everything is an integer and depends on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from .arrange import Arrangement
from .layers import assign_layers, insert_dummies, reduce_crossings

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
