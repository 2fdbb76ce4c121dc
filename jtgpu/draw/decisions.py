"""The picture of a network with decisions: rectangles for decisions, diamonds for utilities, dashed arcs for
information."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..decisions.tree import DecisionTree
from ..errors import ArgumentError
from ..inference.evidence import Findings, read_known
from ..inference.results.marginals import Posteriors
from ..model.decisions import DecisionNetwork
from ..util.text_table import counted
from .arrange import arrange
from .drawing import MAX_NAME, TITLE, Box, Drawing, DrawnGraph, box_size, draw_box, hub, neighbourhood
from .network import LEGEND, LEGEND_TEXT, MARGIN, MAX_WIDTH, known_probabilities
from .svg import ARROW, MARKS, Mark, curve, escaped, mark, marks, picture, shortened, text_width

MOST_AUTOMATIC = 60  # nodes of a part of a network that the user did not choose
LINE = 16  # height of a line of text in a diamond


def decision_graph(net: DecisionNetwork) -> DrawnGraph:
    """The arcs among variables and utilities, which follow the variables."""
    names = [*net.variables, *net.utilities]
    number = {v: i for i, v in enumerate(names)}
    arcs = [(number[p], v) for v, name in enumerate(names) for p in net.parents(name)]
    parents: list[list[int]] = [[] for _ in names]
    children: list[list[int]] = [[] for _ in names]
    for parent, child in arcs:
        parents[child].append(parent)
        children[parent].append(child)
    return DrawnGraph(arcs, parents, children, True)


def show_decisions(
    model: DecisionNetwork | DecisionTree, evidence: Findings | None, posteriors: Posteriors | None,
    targets: Sequence[object], around: Sequence[object], hops: int, most: int,
) -> Drawing:  # fmt: skip
    """The picture of a network, or of its posteriors and expected utilities under the best policy."""
    if isinstance(model, DecisionNetwork) and evidence:
        model = model.compile()
    net = model.network if isinstance(model, DecisionTree) else model
    names = [*net.variables, *net.utilities]
    number = {v: i for i, v in enumerate(names)}
    ringed, start = ([_numbered(net, number, v) for v in given] for given in (targets, around))
    marked = marks(read_known(net, evidence)) if evidence else {}
    expected: Mapping[str, float] = {}
    if isinstance(model, DecisionTree):
        posteriors = model.posteriors(evidence) if posteriors is None else posteriors
        expected = model.utility(evidence).by_node
    nodes, note = [*range(len(names))], ""
    if start or len(names) > most:
        graph = decision_graph(net)
        limit = most if start else min(most, MOST_AUTOMATIC)
        nodes = neighbourhood(graph, start or [*dict.fromkeys([*ringed, *marked])] or [hub(graph)], hops, limit)
        note = f"{len(nodes):,} of {len(names):,} nodes"
    return draw_decisions(net, nodes, posteriors, expected, marked, frozenset(ringed), note)


def _numbered(net: DecisionNetwork, number: Mapping[str, int], v: Any) -> int:
    return number[v] if v in net.utilities else net.index(v)


def draw_decisions(
    net: DecisionNetwork, nodes: Sequence[int], posteriors: Posteriors | None = None,
    expected: Mapping[str, float] | None = None, marked: Mapping[int, Mark] | None = None,
    targets: frozenset[int] = frozenset(), note: str = "",
) -> Drawing:  # fmt: skip
    """Draw some nodes, with their arcs."""
    # nodes: sequence of int: Variables by number, then utilities
    # expected: mapping from utility to float: Written in its diamond
    names, graph, marked = [*net.variables, *net.utilities], decision_graph(net), marked or {}
    number, decided = {v: i for i, v in enumerate(nodes)}, {net.index(d) for d in net.decisions}
    shapes: list[Box | _Diamond] = []
    for v in nodes:
        if v >= len(net.variables):
            shapes.append(_Diamond(names[v], None if not expected else expected[names[v]], v in targets))
            continue
        hidden = (sum(u not in number for u in graph.parents[v]), sum(u not in number for u in graph.children[v]))
        p = known_probabilities(posteriors, v)
        mine = marked.get(v)
        shapes.append(Box(names[v], net.states(names[v]), p, None, mine, v in targets, hidden, v in decided))
    arcs = [(number[a], number[b]) for a, b in graph.arcs if a in number and b in number]
    sizes = [shape.size() if isinstance(shape, _Diamond) else box_size(shape) for shape in shapes]
    made = arrange(sizes, arcs, MAX_WIDTH)
    lines: dict[str, list[str]] = {"a": [], "a d": []}
    heads = []
    for (_, child), line in zip(arcs, made.lines, strict=True):
        x, y = line[-1]
        lines["a d" if nodes[child] in decided else "a"].append(curve(line, ARROW - 1))
        heads.append(f"M{x} {y}l-4-{ARROW}h8z")
    body = [f'<path class="{name}" d="{"".join(data)}"/>' for name, data in lines.items() if data]
    body += [f'<path class="y" d="{"".join(heads)}"/>'] if heads else []
    for shape, (x, y, w, h) in zip(shapes, made.boxes, strict=True):
        body.append(shape.draw(x, y, w, h) if isinstance(shape, _Diamond) else draw_box(shape, x, y, w, h))
    shown = [f'<g transform="translate({MARGIN},{MARGIN})">', *body, "</g>"]
    width, y = made.width, made.height + 2 * MARGIN
    for text, w in _legend([m.kind for v, m in marked.items() if v in number], note):
        shown.append(f'<g transform="translate({MARGIN},{y})">{text}</g>')
        width, y = max(width, w), y + LEGEND
    width, y = width + 2 * MARGIN, y + MARGIN // 2
    title = _title(net, posteriors is not None)
    return Drawing(picture(shown, width, y, title), width, y, title)


def _title(net: DecisionNetwork, with_posteriors: bool) -> str:
    name = f" {shortened(net.name, 200)}" if net.name else ""
    n = len(net.utilities)
    parts = [counted(len(net), "variable"), counted(len(net.decisions), "decision")]
    parts.append(f"{n} {'utility' if n == 1 else 'utilities'}")
    return f"Decision network{name}, {', '.join(parts)}{' with posteriors' if with_posteriors else ''}"


class _Diamond:
    """A utility: its name, and its expectation."""

    def __init__(self, name: str, expected: float | None, is_target: bool):
        self.lines = [shortened(name, MAX_NAME), *([] if expected is None else [f"{expected:.6g}"])]
        self.name, self.is_target = name, is_target

    def size(self) -> tuple[int, int]:
        """Width and height of the diamond around its lines."""
        inside, height = max(map(text_width, self.lines)) * 11 // 10, LINE * len(self.lines)
        total = 3 * height if len(self.lines) == 1 else 5 * height // 2
        width = inside * total // (total - height) + 12
        return width + width % 2, max(total, TITLE)

    def draw(self, x: int, y: int, w: int, h: int) -> str:
        """The elements of the diamond in a box."""
        cut = self.lines[0] != self.name
        parts = [f'<g transform="translate({x},{y})">']
        parts.append(f"<title>{escaped(self.name[:200])}</title>" if cut else "")
        if self.is_target:
            parts.append(f'<path class="q" d="M{w // 2} -6L{w + 8} {h // 2}L{w // 2} {h + 6}L-8 {h // 2}z"/>')
        parts.append(f'<path class="u" d="M{w // 2} 0L{w} {h // 2}L{w // 2} {h}L0 {h // 2}z"/>')
        first = h // 2 - LINE * len(self.lines) // 2 + 12
        for i, text in enumerate(self.lines):
            kind = "m" if i else "h m"
            parts.append(f'<text class="{kind}" x="{w // 2}" y="{first + LINE * i}">{escaped(text)}</text>')
        return "".join([*parts, "</g>"])


def _legend(kinds: Sequence[str], note: str) -> Iterator[tuple[str, int]]:
    """Lines of the legend with their widths."""
    entries = [
        ('<rect class="c" x="0" y="3" width="11" height="11"/>', "decision"),
        ('<path class="u" d="M6 2L12 8L6 14L0 8z"/>', "utility"),
        ('<path class="a d" d="M0 8h12"/>', "known when deciding"),
        *((mark(kind, 5, 8), LEGEND_TEXT[kind]) for kind in MARKS if kind in kinds),
    ]
    parts, x = [], 0
    for shape, text in entries:
        parts.append(f'<g transform="translate({x},0)">{shape}<text x="17" y="12">{text}</text></g>')
        x += 17 + text_width(text) + 20
    yield "".join(parts), x
    if note:
        yield f'<text class="s" y="12">{escaped(note)}</text>', text_width(note)


def check_plain(tree: bool, more: Mapping[str, object]) -> None:
    """Raise `ArgumentError` for options of `show` that decisions do not have."""
    if tree:
        raise ArgumentError("a network with decisions has no junction tree of its own; net.with_policy(policy) has one")
    given = next((name for name, value in more.items() if value), None)
    if given:
        raise ArgumentError(f"a network with decisions is drawn with findings only, not with {given}=")
