"""Positions of the boxes and arcs of the page's map, and of the dots of its overview."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import hypot, inf
from typing import Any, NamedTuple

from ..draw.arrange import Spacing, arrange
from ..draw.dense import arrange_dense
from ..draw.drawing import DrawnGraph, graph_of
from ..draw.network import StackedDrawing, arrange_stacked
from ..draw.svg import ARROW, clean, curve, text_width
from ..errors import ArgumentError
from ..formats.number_cursor import whole_numbers
from ..model.decisions import DecisionNetwork
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.markov import MarkovNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from .trees import AnyNetwork, numbers_of, states_of


class Outline(NamedTuple):
    """The parts of a network that the page draws: over time, those of a slice."""

    states: DiscreteModel  # the variables that have states, V of them
    graph: DrawnGraph  # arcs among these
    utilities: list[tuple[str, list[int]]]  # name, and parents by number
    numbers: list[tuple[str, list[int]]]  # the same; from V on, parents are other numbers
    places: list[list[int] | None]  # positions that the file gives: of the variables, then utilities, then numbers


def outline(net: AnyNetwork) -> Outline:
    """The outline of a network of any kind."""
    states, numbers = states_of(net), numbers_of(net)
    attributes = getattr(net, "attributes", {}).get("node", {})
    leaves = net.utilities if isinstance(net, DecisionNetwork) else numbers
    given = [whole_numbers(attributes.get(v, {}).get("position"), 2) for v in (*states, *leaves)]
    places: list[list[int] | None] = [[*p] if p else None for p in given]
    if isinstance(net, MarkovNetwork):
        return Outline(states, graph_of(net), [], [], places)
    index = {v: i for i, v in enumerate((*states, *numbers))}

    def parents(v: str) -> list[int]:
        above: Any = net.parents(v)  # type: ignore[union-attr]
        if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
            above = [p for p, lag in above if not lag]
        return [index[p] for p in above]

    utilities = [(u, parents(u)) for u in net.utilities] if isinstance(net, DecisionNetwork) else []
    graph = DrawnGraph.of(len(states), [(p, v) for v, name in enumerate(states) for p in parents(name)], True)
    return Outline(states, graph, utilities, [(v, parents(v)) for v in numbers], places)


def earlier_parents(net: AnyNetwork) -> dict[str, list[list[int]]]:
    """The parents in earlier slices of each variable of a network over time, [number, slices back]; see `Outline`."""
    if not isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        return {}
    index = {v: i for i, v in enumerate((*states_of(net), *numbers_of(net)))}
    return {v: [[index[p], lag] for p, lag in net.parents(v) if lag] for v in index}


# The map of a network whose file gives the position of each variable.

GAP = 20  # pixels between boxes
MAX_SIDE = 6000  # pixels of a map

AHEAD = 90  # pixels between a slice and the next one

Box = tuple[int, int, int, int]  # x, y, width, height
Sizes = Sequence[tuple[int, int]]
Arcs = Sequence[tuple[int, int]]


def positions(drawn: Outline) -> list[list[int] | None]:
    """Positions that the file gives, y downwards; None for variables without one."""
    places, down = drawn.places, 0
    # y grows upwards in some formats and programs, and downwards in others: most arcs point down
    for a, b in drawn.graph.arcs:
        first, second = places[a], places[b]
        if first is not None and second is not None:
            down += (second[1] > first[1]) - (second[1] < first[1])
    return places if down >= 0 else [None if p is None else [p[0], -p[1]] for p in places]


def placed_boxes(drawn: Outline, sizes: Sequence[tuple[int, int]], is_page: bool) -> list[Box] | None:
    """Boxes at the positions of the file; None where a position is missing or boxes overlap at any sensible scale."""
    # is_page: Positions are the page's own pixels, which are kept unless boxes overlap there
    places = [p for p in (drawn.places if is_page else positions(drawn)) if p is not None]
    if len(places) < len(drawn.places) or not places:
        return None
    left, top = min(x for x, _ in places), min(y for _, y in places)
    scale = 1.0 if is_page else 0.0
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


# The map.

READABLE = 0.65  # scale of a map, below which the next kind of drawing is tried
MOST_SCALE = 1.3
MAX_NODES = 400  # boxes of a map
MAX_OVERVIEW = 5000  # dots
CANVAS = (840, 760)  # pixels, where a request names none
# widths of layers that are tried, as multiples of that of a drawing without gaps
SPREAD = (0.8, 1.0, 1.25, 1.5, 2.2, 3.3, 5.0)


def map_layout(
    net: AnyNetwork, nodes: Sequence[int] | None = None, canvas: tuple[int, int] = CANVAS, is_page: bool = False
) -> dict[str, Any]:
    """Place the boxes of some variables in layers, arcs downwards, so that they are large on a canvas.

    A whole network whose file gives the position of each variable has these positions, at the smallest scale at which
    no boxes overlap. Boxes that would be too small to read become compact ones.
    """
    # nodes: sequence of int: Numbers of the variables. Default: all.
    # canvas: Width and height in pixels; only their ratio and the size of the type depend on it
    # is_page: Whether the positions are pixels that the page stored
    # returns ``nodes``, their numbers, ascending; ``boxes``, [x, y, width, height] of each; ``titles``, lines of text
    #     of each; ``style``, {line, row, rows, most_rows, bar, number}; ``arcs``, [parent, child, path data of the
    #     line, path data of its head] by numbers of variables; ``spines``, [parent, path data] of the lines between a
    #     parent and columns of its children, and ``heads``, path data of their arrow heads; ``hidden``, [parents,
    #     children] of each node that are not among the nodes; ``later``, [number, slices later, x, y, width, height,
    #     path data of the arcs from this slice, of their head] of variables that depend on this slice; ``utilities``,
    #     [name, x, y, width, height] of those that depend on a node, in arcs the numbers from V on; ``numbers``,
    #     [number, x, y, width, height] of the variables without states, in arcs V and the number; ``width``,
    #     ``height``. Integers in pixels.
    # raises ArgumentError: If the model has no such variable, or there are more than 400.
    drawn = outline(net)
    model, graph = drawn.states, drawn.graph
    n = len(model)
    ids = sorted(set(range(n) if nodes is None else nodes))
    if ids and not 0 <= ids[0] <= ids[-1] < n:
        raise ArgumentError(f"nodes must be numbers of variables, 0 to {n - 1}")
    if len(ids) > MAX_NODES:
        raise ArgumentError(f"a map has at most {MAX_NODES} variables, not {len(ids):,}")
    number = {v: i for i, v in enumerate(ids)}
    inside = [(number[a], number[b]) for a, b in graph.arcs if a in number and b in number]
    utilities, more = _leaves(drawn.utilities, number, n, whole=False)
    curves, others = _leaves(drawn.numbers, number, n, whole=len(ids) == n)
    inside += more + others
    numbers = [*ids, *(n + u for u, _ in utilities), *(n + g for g, _ in curves)]
    hidden = [[sum(u not in number for u in side[v]) for side in (graph.parents, graph.children)] for v in ids]
    names = [clean(model.variables[v]) for v in ids]
    best: dict[str, Any] = {}
    largest = 0.0
    for style, arrangement in (
        (FULL, _layered), (COMPACT, _layered), (FULL, _dense), (COMPACT, _dense), (SMALL, _tight),
    ):  # fmt: skip
        titles = [title_lines(name, style, names) for name in names]
        sizes = [box_size(style, lines, model.states(v)) for lines, v in zip(titles, ids, strict=True)]
        sizes += [diamond_size(name) for _, name in utilities] + [curve_size(name) for _, name in curves]
        placed = placed_boxes(drawn, sizes, is_page) if len(numbers) == len(drawn.places) else None
        if placed is not None:
            made = _placed(placed, inside, graph.is_directed)
        else:
            made = _drawn(_largest(sizes, inside, canvas, arrangement), numbers, graph.is_directed)
        later = [] if utilities else _later(net, made, numbers, sizes)
        scale = _scale(made["width"], made["height"], canvas)
        if best and scale <= largest:
            continue
        largest = scale
        others = made["boxes"][len(ids) :]
        diamonds = [[name, *box] for (_, name), box in zip(utilities, others, strict=False)]
        own = [[g, *box] for (g, _), box in zip(curves, others[len(utilities) :], strict=True)]
        best = {
            **made, "nodes": ids, "titles": titles, "hidden": hidden, "boxes": made["boxes"][: len(ids)],
            "utilities": diamonds, "numbers": own, "later": later,
            "style": {"line": LINE, "row": ROW, "rows": style.rows, "most_rows": style.most_rows, "bar": BAR,
                      "number": NUMBER, "pad": PAD},
        }  # fmt: skip
        if scale >= READABLE or (placed is not None and style is COMPACT):
            break
    return best


def _later(net: AnyNetwork, made: dict[str, Any], ids: Sequence[int], sizes: Sizes) -> list[list[Any]]:
    """Place the variables of later slices that depend on this one at its right; the drawing becomes wider."""
    # ids: of all boxes; numbers of variables without states follow the others
    later: list[list[Any]] = []
    left, bottom = made["width"] + AHEAD, 0
    number = {v: i for i, v in enumerate(ids)}
    above = [*earlier_parents(net).values()] or [[]] * (max(ids, default=-1) + 1)
    # by their place in this slice
    for v in sorted(ids, key=lambda v: made["boxes"][number[v]][1]):
        for lag in sorted({lag for p, lag in above[v] if p in number}):
            w, h = sizes[number[v]]
            box = (left, max(made["boxes"][number[v]][1], bottom), w, h)
            lines, heads = "", ""
            for p in [p for p, other in above[v] if other == lag and p in number]:
                x, y, pw, ph = made["boxes"][number[p]]
                at, to = y + ph // 2, box[1] + h // 2
                lines += f"M{x + pw} {at}C{x + pw + AHEAD // 2} {at} {left - AHEAD // 2} {to} {left - ARROW} {to}"
                heads = f"M{left} {to}l-{ARROW}-4v8z"
            later.append([v, lag, *box, lines, heads])
            bottom = box[1] + h + GAP
    if later:
        made["width"] = max(x + w for _, _, x, _, w, _, _, _ in later)
        made["height"] = max(made["height"], bottom - GAP)
    return later


def _leaves(
    leaves: Sequence[tuple[str, list[int]]], number: dict[int, int], n: int, whole: bool
) -> tuple[list[tuple[int, str]], list[tuple[int, int]]]:
    """The utilities or numbers that depend on variables of a map, or on others of these, and the arcs by places."""
    # whole: Whether all are shown; n: parents are other leaves from here on
    shown = {i for i, (_, above) in enumerate(leaves) if whole or any(p in number for p in above)}
    while more := {i for i, (_, above) in enumerate(leaves) if any(p - n in shown for p in above)} - shown:
        shown |= more
    place = number | {n + i: len(number) + k for k, i in enumerate(sorted(shown))}
    arcs = [(place[p], place[n + i]) for i in sorted(shown) for p in leaves[i][1] if p in place]
    return [(i, leaves[i][0]) for i in sorted(shown)], arcs


def _scale(width: int, height: int, canvas: tuple[int, int]) -> float:
    return min(canvas[0] / max(width, 1), canvas[1] / max(height, 1), MOST_SCALE)


def _layered(sizes: Sizes, arcs: Arcs, width: int, ratio: float) -> StackedDrawing:
    return arrange_stacked(sizes, arcs, width, spacing=Spacing(16, 24, 46, ratio))


def _dense(sizes: Sizes, arcs: Arcs, width: int, ratio: float) -> StackedDrawing:
    return StackedDrawing(arrange_dense(sizes, arcs, width), [*arcs], [], [])


def _tight(sizes: Sizes, arcs: Arcs, width: int, ratio: float) -> StackedDrawing:
    return StackedDrawing(arrange_dense(sizes, arcs, width, TIGHT), [*arcs], [], [])


def _largest(
    sizes: Sizes, arcs: Arcs, canvas: tuple[int, int], arrangement: Callable[[Sizes, Arcs, int, float], StackedDrawing]
) -> StackedDrawing:
    """The drawing that is largest on the canvas, of several that differ in the width of their layers."""
    ratio = canvas[0] / canvas[1]
    area = sum((w + 24) * (h + 36) for w, h in sizes)
    least = max((w for w, _ in sizes), default=0) + 24
    base = math.isqrt(math.ceil(area * ratio))
    best, largest = None, 0.0
    for factor in SPREAD:
        drawn = arrangement(sizes, arcs, max(least, int(base * factor)), ratio)
        scale = _scale(drawn.made.width, drawn.made.height, canvas)
        if best is None or scale > 1.02 * largest:
            best, largest = drawn, scale
    assert best is not None
    return best


def _placed(boxes: Sequence[Box], inside: Sequence[tuple[int, int]], has_heads: bool) -> dict[str, Any]:
    return {
        "boxes": [list(box) for box in boxes],
        "arcs": [[a, b, *straight_arc(boxes[a], boxes[b], has_heads)] for a, b in inside],
        "spines": [], "heads": "", "width": max((x + w for x, _, w, _ in boxes), default=0),
        "height": max((y + h for _, y, _, h in boxes), default=0),
    }  # fmt: skip


def _drawn(drawn: StackedDrawing, ids: Sequence[int], has_heads: bool) -> dict[str, Any]:
    arcs, spines = [], []
    columns = iter(drawn.spines)
    for (parent, child), line in zip(drawn.arcs, drawn.made.lines, strict=True):
        x, y = line[-1]
        if child < 0:
            spines.append([ids[parent], curve(line) + next(columns)])
        else:
            head = f"M{x} {y}l-4-{ARROW}h8z" if has_heads else ""
            arcs.append([ids[parent], ids[child], curve(line, ARROW - 1 if head else 0), head])
    return {
        "boxes": [list(box) for box in drawn.made.boxes], "arcs": arcs, "spines": spines,
        "heads": "".join(drawn.heads) if has_heads else "", "width": drawn.made.width, "height": drawn.made.height,
    }  # fmt: skip


def overview(net: AnyNetwork) -> dict[str, Any]:
    """Place a dot for each variable."""
    # returns ``x`` and ``y``, per mille of the width and the height, in the order of the variables; empty if there are
    #     more than 5,000.
    graph = outline(net).graph
    n = len(graph.parents)
    if n > MAX_OVERVIEW:
        return {"x": [], "y": []}
    whole = arrange([(8, 8)] * n, graph.arcs)
    across, down = max(whole.width, 1), max(whole.height, 1)
    return {
        "x": [1000 * (x + 4) // across for x, _, _, _ in whole.boxes],
        "y": [1000 * (y + 4) // down for _, y, _, _ in whole.boxes],
    }


class BoxStyle(NamedTuple):
    """Measures of boxes, in pixels."""

    rows: float  # size of the rows with bars, as a share of the page's font
    most_rows: int  # states of a box; the last row counts those that are left out
    widths: tuple[int, int]  # least and most
    one_line: int  # width above which a name of several words is broken into two lines


FULL = BoxStyle(1.0, 8, (104, 190), 150)
COMPACT = BoxStyle(0.5, 5, (86, 148), 116)  # rows are to be read when the map is enlarged
SMALL = BoxStyle(0.3, 3, (48, 148), 116)  # names, and bars that show the most probable of few states
TIGHT = (8, 16)  # pixels between small boxes
LINE, PAD, ROW, MARK = 15, 8, 18, 12  # height of a line of the title, distance to the border, height of a row
BAR, NUMBER, LABEL = 46, 42, 84  # widths of a bar and of its number, most of the name of a state
SEPARATORS = "_-. /:"


def title_lines(name: str, style: BoxStyle, others: Sequence[str] = ()) -> list[str]:
    """A name in one or two lines, broken where a word ends; of a longer one, a beginning that others share is cut."""
    # others: Names on the same map
    width, most = (w - 2 * PAD - MARK for w in (style.one_line, style.widths[1]))
    lines = _broken(name, width, most)
    if _wider(lines, most):
        shared = [n for n in _word_ends(name) if n > 2 and sum(o[:n] == name[:n] for o in others) > 1]
        shorter = [_broken(f"\u2026{name[n:]}", width, most) for n in shared]
        lines = next((each for each in shorter if not _wider(each, most)), shorter[-1] if shorter else lines)
    return lines


def _wider(lines: Sequence[str], width: int) -> bool:
    return max(map(_bold_width, lines)) > width


def _broken(name: str, width: int, most: int) -> list[str]:
    """A name in one line if it fits a width, in two if it has several words or does not fit the larger width."""
    ends = _word_ends(name)
    if len(name) < 2 or _bold_width(name) <= (width if ends else most):
        return [name]
    at = min(ends or [len(name) // 2], key=lambda n: (max(_bold_width(name[:n]), _bold_width(name[n:])), n))
    return [name[:at].strip(), name[at:].strip()]


def _word_ends(name: str) -> list[int]:
    """Places at which a name may be broken: after separators, and before a capital or a digit that begins a word."""
    return [
        n for n in range(1, len(name))
        if (name[n - 1] in SEPARATORS and name[n] not in SEPARATORS)
        or (name[n - 1].islower() and (name[n].isupper() or name[n].isdigit()))
    ]  # fmt: skip


def _bold_width(text: str) -> int:
    return text_width(text[:200]) * 11 // 10


def box_size(style: BoxStyle, lines: Sequence[str], states: Sequence[str]) -> tuple[int, int]:
    """Width and height of the box of a variable."""
    label = min(max((text_width(clean(s[:60])) for s in states), default=0), LABEL)
    inside = math.ceil((label + 5 + BAR + NUMBER) * style.rows)
    least, most = style.widths
    width = min(max(least, inside + 2 * PAD, max(map(_bold_width, lines)) + 2 * PAD + MARK), most)
    rows = min(len(states), style.most_rows)
    return width + width % 2, LINE * len(lines) + PAD + math.ceil(rows * ROW * style.rows) + PAD // 2


def curve_size(name: str) -> tuple[int, int]:
    """Width and height of the box of a number: its name, and a curve of its density."""
    return min(max(132, _bold_width(clean(name)) + 2 * PAD + MARK), 190), LINE + PAD + 62


def diamond_size(name: str) -> tuple[int, int]:
    """Width and height of the diamond of a utility: its name fits between the sides."""
    return min(max(96, 2 * (_bold_width(clean(name)) // 2) + 44), 220), 54
