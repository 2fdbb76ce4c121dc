"""Pictures of a posterior over structures: its arcs as a heat map and as a graph, and the traces of its chains.

The functions take a `jtgpu.learn.StructurePosterior`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError
from ..util.arguments import number
from .boxes import Box, box_size, draw_box
from .drawing import Drawing
from .layered.arrange import arrange
from .svg import ARROW, curve, picture
from .text import escaped, shortened, text_width

if TYPE_CHECKING:
    from ..learn.dags.posterior.result import StructurePosterior

__all__ = ["arcs", "heat_map", "trace"]

PAD, CELL, TITLE, LINE = 10, 16, 24, 18
LABEL = 160  # pixels of a name
VISIBLE = 0.005  # probability from which a cell has a colour
MAX_WIDTH = 2400  # pixels of a layer
CHART, CURVE = 480, 160  # pixels of the chart of traces
MAX_POINTS = 400  # of a trace
COLOURS = ("#4a90d9", "#5aa469", "#d9822b", "#8e5bd0", "#c0504d", "#2a9d9d", "#a67c52", "#7f7f7f")


def heat_map(posterior: StructurePosterior) -> Drawing:
    """Draw the probability of every arc as the colour of a cell: parents by rows, children by columns.

    Variables are in the order of the best graph, so that its arcs are above the diagonal; they have a border.
    """
    order = [posterior.names.index(v) for v in posterior.structure.order]
    names = [shortened(posterior.names[v], LABEL) for v in order]
    p, best = posterior.edge_probabilities.values, {*posterior.structure.arcs}
    label = max(map(text_width, names), default=0)
    left, top = PAD + label + 6, TITLE + label + 6
    size = CELL * len(order)
    body = [f'<text class="h" x="{PAD}" y="16">P(row is a parent of column)</text>']
    for i, name in enumerate(names):
        middle = i * CELL + CELL // 2 + 4
        body.append(f'<text class="r" x="{left - 6}" y="{top + middle}">{escaped(name)}</text>')
        turned = f'transform="translate({left + middle},{top - 6}) rotate(-90)"'
        body.append(f"<text {turned}>{escaped(name)}</text>")
    body.append(f'<rect class="n" x="{left}" y="{top}" width="{size}" height="{size}"/>')
    for i, u in enumerate(order):
        for j, v in enumerate(order):
            if p[u, v] >= VISIBLE:
                x, y = left + j * CELL, top + i * CELL
                tip = escaped(f"{posterior.names[u]} -> {posterior.names[v]}: {p[u, v]:.3f}")
                is_best = (posterior.names[u], posterior.names[v]) in best
                border = ' stroke="currentColor"' if is_best else ""
                body.append(
                    f'<rect class="b" x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}" '
                    f'fill-opacity="{p[u, v]:.2f}"{border}><title>{tip}</title></rect>'
                )
    bottom = top + size + PAD
    body += _scale(left, bottom)
    width = max(left + size, left + 280, text_width("P(row is a parent of column)") + PAD) + PAD
    height = bottom + 2 * LINE
    title = f"Probabilities of the arcs between {len(order)} variables"
    return Drawing(picture(body, width, height, title), width, height, title)


def _scale(x: int, y: int) -> list[str]:
    """What the colours and the border mean."""
    parts = []
    for i, p in enumerate((0.1, 0.3, 0.5, 0.7, 0.9)):
        parts.append(f'<rect class="b" x="{x + 22 * i}" y="{y}" width="20" height="10" fill-opacity="{p}"/>')
    parts.append(f'<text class="s" x="{x}" y="{y + 22}">0.1 to 0.9</text>')
    parts.append(f'<rect fill="none" stroke="currentColor" x="{x + 124}" y="{y}" width="10" height="10"/>')
    parts.append(f'<text class="s" x="{x + 140}" y="{y + 10}">arc of the best graph</text>')
    return parts


def arcs(posterior: StructurePosterior, threshold: float = 0.1) -> Drawing:
    """Draw the probable arcs as a graph: the more probable an arc, the wider and darker its line.

    Parameters
    ----------
    posterior : StructurePosterior
    threshold : float
        Arcs are drawn from this probability on, the most probable first, each unless it closes a cycle with those
        before it.

    Raises
    ------
    ArgumentError
        If the threshold is no number between 0 and 1.
    """
    if not 0.0 <= number("threshold", threshold) < 1.0:
        raise ArgumentError(f"threshold must be a number from 0 to below 1, not {threshold!r}")
    names = posterior.names
    graph = posterior.consensus(threshold)
    pairs = [(names.index(u), names.index(v)) for u, v in graph.edges]
    boxes = [Box(v) for v in names]
    made = arrange([box_size(box) for box in boxes], pairs, MAX_WIDTH)
    body = [f'<g transform="translate({PAD},{PAD + TITLE})">']
    for (u, v), line in zip(pairs, made.lines, strict=True):
        p = posterior.edge_probabilities[u, v]
        x, y = line[-1]
        (a, top), (b, bottom) = line[(len(line) - 1) // 2 : (len(line) - 1) // 2 + 2]
        back = posterior.edge_probabilities[v, u]
        tip = escaped(f"{names[u]} -> {names[v]}: {p:.3f}; reversed: {back:.3f}")
        shade = f'stroke-opacity="{0.2 + 0.8 * p:.2f}"'
        body.append(
            f'<g><title>{tip}</title><path fill="none" stroke="currentColor" stroke-width="{0.5 + 2.5 * p:.2f}" '
            f'{shade} d="{curve(line, ARROW - 1)}"/><path fill="currentColor" fill-opacity="{0.2 + 0.8 * p:.2f}" '
            f'd="M{x} {y}l-4-{ARROW}h8z"/><text class="s" x="{(a + b) // 2 + 5}" '
            f'y="{(top + bottom) // 2 + 4}">{_short(p)}</text></g>'
        )
    body += [draw_box(box, x, y, w, h) for box, (x, y, w, h) in zip(boxes, made.boxes, strict=True)]
    body.append("</g>")
    head = f"{len(pairs)} arcs with a probability above {threshold:g}"
    body.append(f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>')
    width = max(made.width + 40, text_width(head) * 11 // 10) + 2 * PAD
    height = made.height + TITLE + 2 * PAD
    title = f"Probable arcs between {len(names)} variables"
    return Drawing(picture(body, width, height, title), width, height, title)


def _short(p: float) -> str:
    """A probability with two digits; only 1 itself appears as 1."""
    return "1" if p >= 1.0 else f".{min(int(p * 100 + 0.5), 99):02d}"


def trace(posterior: StructurePosterior) -> Drawing:
    """Draw the ln weight of the states of all chains over their samples, a line for each chain.

    Raises
    ------
    ArgumentError
        If the posterior is exact: there are no chains.
    """
    values = np.asarray(posterior.trace)
    if values.shape[-1] < 2:
        raise ArgumentError("there are no traces: the posterior is exact, or the chains have hardly run")
    columns = np.unique(np.linspace(0, values.shape[1] - 1, min(values.shape[1], MAX_POINTS)).round().astype(int))
    low, high = float(values.min()), float(values.max())
    scale = CURVE / (high - low) if high > low else 0.0
    labels = [f"{high:.8g}", f"{low:.8g}"]
    left = PAD + max(map(text_width, labels)) + PAD
    top, bottom = TITLE + 6, TITLE + 6 + CURVE
    step = CHART / (values.shape[1] - 1)
    head = f"ln weight of {len(values)} chains, R-hat {posterior.rhat:.3f}"
    body = [
        f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>',
        f'<text class="s r" x="{left - PAD}" y="{top + 4}">{labels[0]}</text>',
        f'<text class="s r" x="{left - PAD}" y="{bottom + 4}">{labels[1]}</text>',
        f'<path class="a" d="M{left} {TITLE}V{bottom + 6}H{left + CHART}"/>',
    ]
    for chain, row in enumerate(values):
        points = " ".join(f"{left + c * step:.1f},{top + (high - row[c]) * scale:.1f}" for c in columns)
        colour = COLOURS[chain % len(COLOURS)]
        body.append(f'<path fill="none" stroke="{colour}" stroke-opacity=".7" d="M{points}"/>')
    body.append(f'<text class="s" x="{left}" y="{bottom + 22}">step 0</text>')
    body.append(f'<text class="s r" x="{left + CHART}" y="{bottom + 22}">{posterior.n_steps:,}</text>')
    width, height = left + CHART + 2 * PAD, bottom + 32
    return Drawing(picture(body, width, height, head), width, height, head)
