"""The picture of a junction tree: cliques as boxes, and between two cliques the separator that they share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..inference.network_plan import NetworkPlan
from .drawing import Drawing, Graph, neighbourhood
from .layered.arrange import arrange
from .svg import MAX_TITLE, clean, curve, escaped, picture, shortened, text_width

MAX_WIDTH, MAX_LINES = 190, 5  # of the names in a clique, pixels and lines
SEPARATOR_WIDTH = 120
MAX_LAYER = 2400  # pixels of a layer
LINE, PAD, MARGIN = 15, 8, 16
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
    width, height = max(made.width, text_width(note)) + 2 * MARGIN, made.height + 2 * MARGIN
    shown = [f'<g transform="translate({MARGIN},{MARGIN})">', *body, "</g>"]
    if note:
        shown.append(f'<text class="s" x="{MARGIN}" y="{height + 4}">{escaped(note)}</text>')
        height += NOTE
    of = f"{len(nodes):,} of {len(cliques):,}" if note else f"{len(cliques):,}"
    named = f" of {shortened(plan.model.name, 200)}" if plan.model.name else ""
    title = f"Junction tree{named}, {of} cliques"
    return Drawing(picture(shown, width, height, title), width, height, title)


def _graph(parent: Sequence[int]) -> Graph:
    arcs = [(up, c) for c, up in enumerate(parent) if up >= 0]
    parents: list[list[int]] = [[up] if up >= 0 else [] for up in parent]
    children: list[list[int]] = [[] for _ in parent]
    for up, c in arcs:
        children[up].append(c)
    return Graph(arcs, parents, children, is_directed=False)


def _lines(clique: Sequence[str]) -> list[str]:
    """Names of a clique's variables, in lines; the last one counts those that do not fit."""
    lines: list[str] = []
    for i, name in enumerate(clique):
        cut = shortened(name, MAX_WIDTH)
        if lines and text_width(f"{lines[-1]}, {cut}") <= MAX_WIDTH:
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
