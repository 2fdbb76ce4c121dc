"""Positions of the boxes and arcs of the page's map, and of the dots of its overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..draw.focus import graph_of
from ..draw.layered.arrange import arrange
from ..draw.stacks import arrange_stacked
from ..draw.svg import ARROW, curve
from ..errors import ArgumentError
from ..model.discrete import DiscreteModel
from .positions import placed_boxes, straight_arc

MAX_NODES = 400  # boxes of a map
MAX_OVERVIEW = 5000  # dots
# pixels; page/map.js has the same numbers
WIDTH, TITLE, ROW, BOTTOM = 168, 26, 20, 6
MAX_ROWS = 8  # states of a box; the last row counts those that are left out
MAX_WIDTH = 1900  # of a layer


def box_size(n_states: int) -> tuple[int, int]:
    """Width and height of the box of a variable."""
    return WIDTH, TITLE + ROW * min(n_states, MAX_ROWS) + BOTTOM


def map_layout(model: DiscreteModel, nodes: Sequence[int] | None = None) -> dict[str, Any]:
    """Place the boxes of some variables in layers, arcs downwards.

    A whole network whose file gives the position of each variable has these positions, at the smallest scale at which
    no boxes overlap.
    """
    # nodes: sequence of int: Numbers of the variables. Default: all.
    # returns ``nodes``, their numbers, ascending; ``boxes``, [x, y, width, height] of each; ``arcs``, [parent, child,
    #     path data of the line, path data of its head] by numbers of variables; ``spines``, [parent, path data] of the
    #     lines between a parent and columns of its children, and ``heads``, path data of their arrow heads; ``hidden``,
    #     [parents, children] of each node that are not among the nodes; ``width``, ``height``. Integers in pixels.
    # raises ArgumentError: If the model has no such variable, or there are more than 400.
    ids = sorted(set(range(len(model)) if nodes is None else nodes))
    if ids and not 0 <= ids[0] <= ids[-1] < len(model):
        raise ArgumentError(f"nodes must be numbers of variables, 0 to {len(model) - 1}")
    if len(ids) > MAX_NODES:
        raise ArgumentError(f"a map has at most {MAX_NODES} variables, not {len(ids):,}")
    graph = graph_of(model)
    number = {v: i for i, v in enumerate(ids)}
    inside = [(number[a], number[b]) for a, b in graph.arcs if a in number and b in number]
    sizes = [box_size(len(model.states(v))) for v in ids]
    hidden = [[sum(u not in number for u in side[v]) for side in (graph.parents, graph.children)] for v in ids]
    placed = placed_boxes(model, sizes) if len(ids) == len(model) else None
    if placed is not None:
        return {
            "nodes": ids,
            "boxes": [list(box) for box in placed],
            "arcs": [[a, b, *straight_arc(placed[a], placed[b], graph.is_directed)] for a, b in inside],
            "spines": [], "heads": "", "hidden": hidden,
            "width": max((x + w for x, _, w, _ in placed), default=0),
            "height": max((y + h for _, y, _, h in placed), default=0),
        }  # fmt: skip
    drawn = arrange_stacked(sizes, inside, MAX_WIDTH)
    arcs, spines = [], []
    columns = iter(drawn.spines)
    for (parent, child), line in zip(drawn.arcs, drawn.made.lines, strict=True):
        x, y = line[-1]
        if child < 0:
            spines.append([ids[parent], curve(line) + next(columns)])
        else:
            head = f"M{x} {y}l-4-{ARROW}h8z" if graph.is_directed else ""
            arcs.append([ids[parent], ids[child], curve(line, ARROW - 1 if head else 0), head])
    return {
        "nodes": ids,
        "boxes": [list(box) for box in drawn.made.boxes],
        "arcs": arcs,
        "spines": spines,
        "heads": "".join(drawn.heads) if graph.is_directed else "",
        "hidden": hidden,
        "width": drawn.made.width,
        "height": drawn.made.height,
    }


def overview(model: DiscreteModel) -> dict[str, Any]:
    """Place a dot for each variable."""
    # returns ``x`` and ``y``, per mille of the width and the height, in the order of the variables; empty if there are
    #     more than 5,000.
    n = len(model)
    if n > MAX_OVERVIEW:
        return {"x": [], "y": []}
    whole = arrange([(8, 8)] * n, graph_of(model).arcs)
    across, down = max(whole.width, 1), max(whole.height, 1)
    return {
        "x": [1000 * (x + 4) // across for x, _, _, _ in whole.boxes],
        "y": [1000 * (y + 4) // down for _, y, _, _ in whole.boxes],
    }
