"""The map of a network whose file gives the position of each variable."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, inf

from ..draw.focus import graph_of
from ..draw.svg import ARROW
from ..formats.common.writing import whole_numbers
from ..model.discrete import DiscreteModel
from ..model.network import BayesianNetwork

GAP = 20  # pixels between boxes
MAX_SIDE = 6000  # pixels of a map

Box = tuple[int, int, int, int]  # x, y, width, height


def positions(model: DiscreteModel) -> list[list[int] | None]:
    """Positions that the file gives, y downwards; None for variables without one."""
    if not isinstance(model, BayesianNetwork):
        return [None] * len(model)
    attributes = model.attributes.get("node", {})
    found = [whole_numbers(attributes.get(v, {}).get("position"), 2) for v in model.variables]
    places = [[*p] if p else None for p in found]
    graph = graph_of(model)
    # y grows upwards in some formats and programs, and downwards in others: most arcs point down
    down = 0
    for a, b in graph.arcs:
        first, second = places[a], places[b]
        if first is not None and second is not None:
            down += (second[1] > first[1]) - (second[1] < first[1])
    return places if down >= 0 else [None if p is None else [p[0], -p[1]] for p in places]


def placed_boxes(model: DiscreteModel, sizes: Sequence[tuple[int, int]]) -> list[Box] | None:
    """Boxes at the positions of the file; None where a position is missing or boxes overlap at any sensible scale."""
    places = [p for p in positions(model) if p is not None]
    if len(places) < len(model) or not places:
        return None
    left, top = min(x for x, _ in places), min(y for _, y in places)
    scale = 0.0
    for i, (x, y) in enumerate(places):
        for j in range(i):
            across, down = abs(x - places[j][0]), abs(y - places[j][1])
            width, height = ((sizes[i][k] + sizes[j][k]) // 2 + GAP for k in (0, 1))
            # boxes are apart if they are so in one direction
            scale = max(scale, min(width / across if across else inf, height / down if down else inf))
    if scale == inf:
        return None
    scale = scale or 1.0
    centres = [(round((x - left) * scale), round((y - top) * scale)) for x, y in places]
    if max(max(x, y) for x, y in centres) > MAX_SIDE:
        return None
    least = min(y - h // 2 for (_, y), (_, h) in zip(centres, sizes, strict=True))
    return [(x, y - h // 2 - least, w, h) for (x, y), (w, h) in zip(centres, sizes, strict=True)]


def straight_arc(parent: Box, child: Box, has_head: bool) -> tuple[str, str]:
    """Path data of a straight line between the borders of two boxes, and of its head."""
    start, end = _border(parent, child), _border(child, parent)
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max(hypot(dx, dy), 1.0)
    ux, uy = dx / length, dy / length
    if not has_head:
        return f"M{start[0]} {start[1]}L{end[0]} {end[1]}", ""
    back_x, back_y = end[0] - ARROW * ux, end[1] - ARROW * uy
    corners = [(back_x - 4 * uy, back_y + 4 * ux), (back_x + 4 * uy, back_y - 4 * ux)]
    head = "".join(f"L{x:.1f} {y:.1f}" for x, y in corners)
    return f"M{start[0]} {start[1]}L{back_x:.1f} {back_y:.1f}", f"M{end[0]} {end[1]}{head}z"


def _border(box: Box, other: Box) -> tuple[int, int]:
    """Where the line between the centres of two boxes leaves the first one."""
    x, y, w, h = box
    cx, cy = x + w / 2, y + h / 2
    dx, dy = other[0] + other[2] / 2 - cx, other[1] + other[3] / 2 - cy
    t = min(w / 2 / abs(dx) if dx else 1.0, h / 2 / abs(dy) if dy else 1.0)
    return round(cx + t * dx), round(cy + t * dy)
