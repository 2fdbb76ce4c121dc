"""The picture of a network: a box for each variable, with its posterior and its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..inference.network_plan import NetworkPlan
from ..inference.results.marginals import Posteriors
from ..model.directed import DirectedModel
from ..model.discrete import DiscreteModel
from .arrange import SPACING, Arrangement, Spacing, arrange
from .drawing import Box, Drawing, DrawnGraph, box_size, draw_box, graph_of, neighbourhood
from .svg import ARROW, MARKS, MAX_TITLE, Mark, clean, curve, escaped, mark, picture, shortened, text_width

# The picture of a junction tree: cliques as boxes, and between two cliques the separator that they share.

TREE_MAX_WIDTH, MAX_LINES = 190, 5  # of the names in a clique, pixels and lines
SEPARATOR_WIDTH = 120
MAX_LAYER = 2400  # pixels of a layer
LINE, PAD, TREE_MARGIN = 15, 8, 16
NOTE = 22


def draw_junction_tree(plan: NetworkPlan, around: Sequence[int] = (), *, hops: int = 2, most: int = 150) -> Drawing:
    """Draw the junction tree of a plan, the roots at the top."""
    # around: sequence of int: Draw the cliques that contain one of these variables, and those up to `hops` edges away.
    #     Default: all cliques; of a tree with more than `most`, the neighbourhood of the largest clique.
    cliques, parent, separators = plan.cliques, plan.clique_parents, plan.separators
    cards = dict(zip(plan.model.variables, plan.model.cardinality.tolist(), strict=True))
    entries = [math.prod(cards[v] for v in clique) for clique in cliques]
    names = {plan.model.variables[v] for v in around}
    graph = _graph(parent)
    note = ""
    nodes = [*range(len(cliques))]
    if names or len(cliques) > most:
        start = [c for c in nodes if names.intersection(cliques[c])] or [entries.index(max(entries))]
        nodes = neighbourhood(graph, start, hops if names else len(cliques), most)
        around_text = ", ".join(sorted(v[:60] for v in names)) if names else "the largest clique"
        note = f"{len(nodes):,} of {len(cliques):,} cliques: those nearest to {around_text}"
    number = {c: i for i, c in enumerate(nodes)}
    texts = []
    for c in nodes:
        hidden = sum(u not in number for u in (*graph.parents[c], *graph.children[c]))
        texts.append((_lines(cliques[c]), f"{entries[c]:,} entries" + (f", +{hidden} neighbours" if hidden else "")))
    sizes = [_clique_size(lines, size) for lines, size in texts]
    edges, labels = [], []
    for c in nodes:
        if parent[c] in number:  # a separator is a node between the two cliques
            middle = len(sizes)
            labels.append(_separator_text(separators[c]))
            sizes.append((text_width(labels[-1]) + 2 * PAD, LINE + 4))
            edges += [(number[parent[c]], middle), (middle, number[c])]
    made = arrange(sizes, edges, MAX_LAYER)
    body = [f'<path class="a" d="{"".join(map(curve, made.lines))}"/>'] if edges else []
    for i, (x, y, w, h) in enumerate(made.boxes):
        if i < len(nodes):
            body.append(_clique(texts[i], cliques[nodes[i]], (x, y, w, h)))
        else:
            body.append(
                f'<rect class="c" x="{x}" y="{y}" width="{w}" height="{h}"/>'
                f'<text class="m" x="{x + w // 2}" y="{y + 14}">{escaped(labels[i - len(nodes)])}</text>'
            )
    width, height = max(made.width, text_width(note)) + 2 * TREE_MARGIN, made.height + 2 * TREE_MARGIN
    shown = [f'<g transform="translate({TREE_MARGIN},{TREE_MARGIN})">', *body, "</g>"]
    if note:
        shown.append(f'<text class="s" x="{TREE_MARGIN}" y="{height + 4}">{escaped(note)}</text>')
        height += NOTE
    of = f"{len(nodes):,} of {len(cliques):,}" if note else f"{len(cliques):,}"
    named = f" of {shortened(plan.model.name, 200)}" if plan.model.name else ""
    title = f"Junction tree{named}, {of} cliques"
    return Drawing(picture(shown, width, height, title), width, height, title)


def _graph(parent: Sequence[int]) -> DrawnGraph:
    arcs = [(up, c) for c, up in enumerate(parent) if up >= 0]
    parents: list[list[int]] = [[up] if up >= 0 else [] for up in parent]
    children: list[list[int]] = [[] for _ in parent]
    for up, c in arcs:
        children[up].append(c)
    return DrawnGraph(arcs, parents, children, is_directed=False)


def _lines(clique: Sequence[str]) -> list[str]:
    """Names of a clique's variables, in lines; the last one counts those that do not fit."""
    lines: list[str] = []
    for i, name in enumerate(clique):
        cut = shortened(name, TREE_MAX_WIDTH)
        if lines and text_width(f"{lines[-1]}, {cut}") <= TREE_MAX_WIDTH:
            lines[-1] += f", {cut}"
        elif len(lines) == MAX_LINES - 1 and i < len(clique) - 1:
            return [*lines, f"and {len(clique) - i:,} more"]
        else:
            lines.append(cut)
    return lines


def _clique_size(lines: Sequence[str], size: str) -> tuple[int, int]:
    width = max(map(text_width, [*lines, size])) + 2 * PAD
    return width + width % 2, (len(lines) + 1) * LINE + PAD


def _separator_text(separator: Sequence[str]) -> str:
    text = ", ".join(separator)
    return text if text_width(text[:100]) <= SEPARATOR_WIDTH and len(text) < 100 else f"{len(separator):,} variables"


def _clique(text: tuple[list[str], str], clique: Sequence[str], box: tuple[int, int, int, int]) -> str:
    lines, size = text
    x, y, w, h = box
    whole = clean(", ".join(clique)[:MAX_TITLE])
    parts = [f'<g transform="translate({x},{y})"><title>{escaped(whole)}</title>']
    parts.append(f'<rect class="n" width="{w}" height="{h}" rx="{h // 3}"/>')
    for i, line in enumerate(lines):
        parts.append(f'<text class="m" x="{w // 2}" y="{(i + 1) * LINE}">{escaped(line)}</text>')
    parts.append(f'<text class="s m" x="{w // 2}" y="{h - 7}">{size}</text></g>')
    return "".join(parts)


# Many leaves of one parent are drawn as columns, below each other, so that a hub does not make a picture wide.

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
    sizes: Sequence[Size], arcs: Sequence[tuple[int, int]], max_width: int, apart: frozenset[int] = frozenset(),
    spacing: Spacing = SPACING,
) -> StackedDrawing:
    """Arrange a graph; leaves with the same single parent become columns where there are many."""
    # sizes: sequence of (int, int)
    # arcs: sequence of (int, int)
    # max_width, spacing: See `jtgpu.draw.arrange.arrange`
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
    inner = arrange(inner_sizes, inner_arcs, max_width, spacing)
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


MARGIN = 16
MAX_WIDTH = 2400  # pixels of a layer
LEGEND = 22  # height of a line below the picture
MAX_OVERVIEW = 2000  # variables of an overview
OVERVIEW_WIDTH, OVERVIEW_HEIGHT = 720, 84
LEGEND_TEXT = {
    "observed": "observed", "one of": "one of several states", "likelihood": "likelihood", "soft": "soft evidence",
    "do": "intervention",
}  # fmt: skip


def draw_network(
    model: DiscreteModel,
    nodes: Sequence[int],
    *,
    posteriors: Posteriors | Mapping[int, object] | None = None,
    priors: Posteriors | Mapping[int, object] | None = None,
    marks: Mapping[int, Mark] | None = None,
    targets: Sequence[int] = (),
    note: str = "",
) -> Drawing:
    """Draw some variables of a model, with their arcs."""
    # nodes: sequence of int: The variables, ascending
    # posteriors, priors: Bars and ticks; variables without a posterior are drawn with their name only
    # targets: sequence of int: Variables with a ring
    # note: Text below the picture
    graph, marks = graph_of(model), marks or {}
    number = {v: i for i, v in enumerate(nodes)}
    boxes = [_box(model, v, graph, number, (posteriors, priors), marks.get(v), v in targets) for v in nodes]
    arcs = [(number[a], number[b]) for a, b in graph.arcs if a in number and b in number]
    # arcs into a variable that is set have no effect
    cut = frozenset(number[v] for v, shown_mark in marks.items() if shown_mark.kind == "do" and v in number)
    stacked = arrange_stacked([box_size(box) for box in boxes], arcs, MAX_WIDTH, cut)
    made = stacked.made
    body = [*_arcs(stacked, cut, graph.is_directed)]
    body += [draw_box(box, x, y, w, h) for box, (x, y, w, h) in zip(boxes, made.boxes, strict=True)]
    width, height = made.width, made.height
    shown = [f'<g transform="translate({MARGIN},{MARGIN})">', *body, "</g>"]
    y = height + 2 * MARGIN
    if len(nodes) < len(model) <= MAX_OVERVIEW:
        y += MARGIN // 2  # below the stubs of hidden arcs
        overview, w, h = _overview(len(model), graph, frozenset(nodes), y)
        shown += overview
        width, y = max(width, w), y + h + MARGIN
    for line, w in _legend([m.kind for v, m in marks.items() if v in number], priors is not None, bool(targets), note):
        shown.append(f'<g transform="translate({MARGIN},{y})">{line}</g>')
        width, y = max(width, w), y + LEGEND
    title = _title(model, len(nodes), posteriors is not None)
    width, y = width + 2 * MARGIN, y + (MARGIN if y > height + 2 * MARGIN else 0)
    return Drawing(picture(shown, width, y, title), width, y, title)


def _title(model: DiscreteModel, n: int, with_posteriors: bool) -> str:
    kind = "Bayesian network" if isinstance(model, DirectedModel) else "Markov network"
    name = f" {shortened(model.name, 200)}" if model.name else ""
    of = f"{n:,} of {len(model):,}" if n < len(model) else f"{n:,}"
    return f"{kind}{name}, {of} variables{' with posteriors' if with_posteriors else ''}"


def _box(
    model: DiscreteModel, v: int, graph: DrawnGraph, number: Mapping[int, int],
    results: tuple[Any, Any], mark: Mark | None, is_target: bool,
) -> Box:  # fmt: skip
    p, prior = (known_probabilities(result, v) for result in results)
    hidden = (sum(u not in number for u in graph.parents[v]), sum(u not in number for u in graph.children[v]))
    return Box(model.variables[v], model.states(v), p, prior, mark, is_target, hidden)


def known_probabilities(posteriors: Posteriors | Mapping[int, Any] | None, v: int) -> Sequence[float] | None:
    """Probabilities of the states of a variable; None if there are none."""
    try:
        return None if posteriors is None else posteriors[v].probabilities.tolist()
    except KeyError:  # not among the targets
        return None


def _arcs(stacked: StackedDrawing, cut: frozenset[int], is_directed: bool) -> Iterator[str]:
    lines: dict[str, list[str]] = {"a": stacked.spines, "x": []}
    heads = stacked.heads if is_directed else []
    for (_, child), line in zip(stacked.arcs, stacked.made.lines, strict=True):
        has_head = is_directed and child >= 0
        lines["x" if child in cut else "a"].append(curve(line, ARROW - 1 if has_head else 0))
        x, y = line[-1]
        if has_head and child not in cut:
            heads.append(f"M{x} {y}l-4-{ARROW}h8z")
    for name, data in lines.items():
        if data:
            yield f'<path class="{name}" d="{"".join(data)}"/>'
    if heads:
        yield f'<path class="y" d="{"".join(heads)}"/>'


def _overview(n: int, graph: DrawnGraph, shown: frozenset[int], y: int) -> tuple[list[str], int, int]:
    """A dot for each variable at its place in the whole network; those that the picture shows stand out."""
    whole = arrange([(8, 8)] * n, graph.arcs)
    across, down = max(whole.width, 1), max(whole.height, 1)
    places = [
        (4 + w * (OVERVIEW_WIDTH - 8) // across, 4 + h * (OVERVIEW_HEIGHT - 8) // down) for w, h, _, _ in whole.boxes
    ]
    data = {
        name: "".join(
            f"M{a} {b}h0" for a, b in dict.fromkeys(p for v, p in enumerate(places) if (v in shown) == inside)
        )
        for name, inside in (("currentColor", False), ("#8e5bd0", True))
    }
    parts = [f'<g transform="translate({MARGIN},{y})" fill="none" stroke-linecap="round" stroke-width="3">']
    parts.append(f'<rect class="n" stroke-width="1" width="{OVERVIEW_WIDTH}" height="{OVERVIEW_HEIGHT}" rx="4"/>')
    opacity = {"currentColor": ".3", "#8e5bd0": "1"}
    parts += [f'<path stroke="{c}" stroke-opacity="{opacity[c]}" d="{d}"/>' for c, d in data.items() if d]
    return [*parts, "</g>"], OVERVIEW_WIDTH, OVERVIEW_HEIGHT


def _legend(kinds: Sequence[str], ticks: bool, rings: bool, note: str) -> Iterator[tuple[str, int]]:
    """Lines of the legend with their widths: the marks in use, and a note."""
    parts, x = [], 0
    entries = [(mark(kind, 5, 8), LEGEND_TEXT[kind]) for kind in MARKS if kind in kinds]
    if ticks:
        entries.append(('<path class="k" d="M5 2v12"/>', "prior"))
    if rings:
        entries.append(('<rect class="q" x="0" y="3" width="11" height="11" rx="3"/>', "target"))
    for shape, text in entries:
        parts.append(f'<g transform="translate({x},0)">{shape}<text x="16" y="12">{text}</text></g>')
        x += 16 + text_width(text) + 20
    if parts:
        yield "".join(parts), x
    if note:
        cut = shortened(note, 900)
        yield f'<text class="s" y="12">{escaped(cut)}</text>', text_width(cut)
