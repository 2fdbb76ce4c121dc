"""The picture of a network: a box for each variable, with its posterior and its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..inference.results.marginals import Posteriors
from ..model.directed import DirectedModel
from ..model.discrete import DiscreteModel
from .boxes import Box, box_size, draw_box
from .drawing import Drawing
from .focus import Graph, graph_of
from .layered.arrange import arrange
from .marks import Mark
from .stacks import StackedDrawing, arrange_stacked
from .svg import ARROW, MARKS, curve, mark, picture
from .text import escaped, shortened, text_width

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
    posteriors: Posteriors | None = None,
    priors: Posteriors | None = None,
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
    cut = frozenset(number[v] for v, found in marks.items() if found.kind == "do" and v in number)
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
    model: DiscreteModel, v: int, graph: Graph, number: Mapping[int, int],
    results: tuple[Posteriors | None, Posteriors | None], mark: Mark | None, is_target: bool,
) -> Box:  # fmt: skip
    p, prior = (_probabilities(found, v) for found in results)
    hidden = (sum(u not in number for u in graph.parents[v]), sum(u not in number for u in graph.children[v]))
    return Box(model.variables[v], model.states(v), p, prior, mark, is_target, hidden)


def _probabilities(found: Posteriors | None, v: int) -> Sequence[float] | None:
    try:
        return None if found is None else found[v].probabilities.tolist()
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


def _overview(n: int, graph: Graph, shown: frozenset[int], y: int) -> tuple[list[str], int, int]:
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
