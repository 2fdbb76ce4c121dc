"""Pictures of a posterior over structures: its arcs as a heat map and as a graph, and the traces of its chains.

The functions take a `jtgpu.learn.StructurePosterior`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError
from ..util.arguments import check_keywords_of, having, number
from ..util.text_table import counted
from .arrange import Arrangement, Spacing, arrange
from .drawing import Box, Drawing, box_size, draw_box
from .svg import ARROW, curve, escaped, picture, shortened, text_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..learn.dags.posterior.result import StructurePosterior

# Places for the labels of lines, where they cover neither boxes nor other labels, and few lines.

HEIGHT, GAP = 12, 5  # pixels of a label, and of the space to its line
SHARES = (0.5, 0.35, 0.65, 0.22, 0.78)  # of a segment, where a label may be
SAMPLES = 24  # points of a segment
ON_BOX, ON_LABEL = 1000, 300  # cost, in points of other lines

Point = tuple[int, int]


def label_places(
    labels: Sequence[str], lines: Sequence[Sequence[Point]], boxes: Sequence[tuple[int, int, int, int]]
) -> list[Point]:
    """The left end of the baseline of each label, next to its line; the first labels choose first."""
    # lines: sequence of sequences of (x, y): Points of the line of each label; see `jtgpu.draw.svg.curve`
    # boxes: sequence of (x, y, width, height)
    curves = [_points(line, np.linspace(0.0, 1.0, SAMPLES)) for line in lines]
    points = np.concatenate([np.empty((0, 2)), *curves])
    taken = np.array([(x, y, x + w, y + h) for x, y, w, h in boxes], np.float64).reshape(-1, 4)
    costs = np.full(len(taken), ON_BOX)
    placed = []
    for label, line in zip(labels, lines, strict=True):
        width = text_width(label)
        best, cost = (0, 0), np.inf
        places = _points(line, np.array(SHARES)).reshape(-1, len(SHARES), 2)
        order = np.argsort(np.abs(np.arange(len(places)) - (len(places) - 1) / 2), kind="stable")
        for x, y in places[order].transpose(1, 0, 2).reshape(-1, 2).round():
            for left in (x + GAP, x - GAP - width):
                rect = left - 1, y - HEIGHT / 2, left + width + 1, y + HEIGHT / 2
                meets = (taken[:, 0] < rect[2]) & (taken[:, 2] > rect[0])
                meets &= (taken[:, 1] < rect[3]) & (taken[:, 3] > rect[1])
                inside = (points[:, 0] > rect[0]) & (points[:, 0] < rect[2])
                inside &= (points[:, 1] > rect[1]) & (points[:, 1] < rect[3])
                now = int(costs[meets].sum()) + int(inside.sum()) + (ON_BOX if left < 0 else 0)
                if now < cost:
                    best, cost = (int(left), int(y)), now
            if cost == 0:
                break
        x, y = best
        taken = np.vstack([taken, (x, y - HEIGHT / 2, x + width, y + HEIGHT / 2)])
        costs = np.append(costs, ON_LABEL)
        placed.append((x, y + 4))
    return placed


def _points(line: Sequence[Point], t: np.ndarray) -> np.ndarray:
    """Points of each segment of a line at some shares of its length, (segments * shares, 2)."""
    ends = np.array(line, np.float64)
    (x0, y0), (x1, y1) = ends[:-1].T[:, :, None], ends[1:].T[:, :, None]
    s = 1 - t
    side = 3 * t * t - 2 * t * t * t  # the last digit of t**3 depends on the processor
    down = 1.5 * (s * s * t + s * t * t)
    y = y0 * (s * s * s + down) + y1 * (t * t * t + down)
    return np.stack([x0 + (x1 - x0) * side, y], axis=-1).reshape(-1, 2)


PAD, CELL, TITLE, LINE = 10, 16, 24, 18
FEW, LARGE_CELL = 15, 32  # variables whose cells have room for a number
LABEL = 160  # pixels of a name
VISIBLE = 0.005  # probability from which a cell has a colour
WIDTHS = (700, 1000, 1400, 2000)  # pixels of a layer that are tried
SPACING = Spacing(16, 32, 72, 1.5)
CERTAIN = 0.995  # from which an arc has no number: it would be 1
WEAK, LINKED = 0.5, 0.75  # probabilities of an arc, and of a link in either direction, below which a line is dashed
BEND = 22  # pixels that a line between neighbours of a layer hangs down
BOW = 44  # pixels of the corner of a bent line from the straight one
CHART, CURVE = 480, 160  # pixels of the chart of traces
MAX_POINTS = 400  # of a trace
UP, REVERSED = "\u2191", 0.05  # arrow before the probability of the reversed arc, shown from this one on
COLOURS = ("#4a90d9", "#5aa469", "#d9822b", "#8e5bd0", "#c0504d", "#2a9d9d", "#a67c52", "#7f7f7f")


@check_keywords_of()
def heat_map(posterior: StructurePosterior) -> Drawing:
    """Draw the probability of every arc as the colour of a cell: parents by rows, children by columns.

    Variables are in the order of the best graph, so that its arcs are above the diagonal; they have a border.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> post = jtgpu.learn.posterior({v: data[v] for v in ("smoke", "bronc", "lung", "dysp")})
    >>> jtgpu.draw.heat_map(post).save("probabilities.svg")  # doctest: +SKIP
    """
    _check(posterior)
    order = [posterior.names.index(v) for v in posterior.structure.order]
    names = [shortened(posterior.names[v], LABEL) for v in order]
    p, best = posterior.edge_probabilities.values, {*posterior.structure.arcs}
    label = max(map(text_width, names), default=0)
    left, top = PAD + label + 6, TITLE + label + 6
    cell = LARGE_CELL if len(order) <= FEW else CELL
    size = cell * len(order)
    body = [f'<text class="h" x="{PAD}" y="16">P(row is a parent of column)</text>']
    for i, name in enumerate(names):
        middle = i * cell + cell // 2 + 4
        body.append(f'<text class="r" x="{left - 6}" y="{top + middle}">{escaped(name)}</text>')
        turned = f'transform="translate({left + middle},{top - 6}) rotate(-90)"'
        body.append(f"<text {turned}>{escaped(name)}</text>")
    body.append(f'<rect class="n" x="{left}" y="{top}" width="{size}" height="{size}"/>')
    for i, u in enumerate(order):
        for j, v in enumerate(order):
            if p[u, v] >= VISIBLE:
                x, y = left + j * cell, top + i * cell
                tip = escaped(f"{posterior.names[u]} -> {posterior.names[v]}: {p[u, v]:.3f}")
                is_best = (posterior.names[u], posterior.names[v]) in best
                border = ' stroke="currentColor"' if is_best else ""
                body.append(
                    f'<rect class="b" x="{x + 1}" y="{y + 1}" width="{cell - 2}" height="{cell - 2}" '
                    f'fill-opacity="{p[u, v]:.2f}"{border}><title>{tip}</title></rect>'
                )
                if cell > CELL and p[u, v] >= REVERSED:
                    at = f'x="{x + cell // 2}" y="{y + cell // 2 + 4}"'
                    body.append(f'<text class="s m" pointer-events="none" {at}>{_short(p[u, v])}</text>')
    bottom = top + size + PAD
    body += _scale(left, bottom)
    width = max(left + size, left + 280, text_width("P(row is a parent of column)") + PAD) + PAD
    height = bottom + 2 * LINE
    title = f"Probabilities of the arcs between {len(order)} variables"
    return Drawing(picture(body, width, height, title), width, height, title)


def _check(posterior: object) -> None:
    having("posterior", posterior, "edge_probabilities", "a posterior over structures, from jtgpu.learn.posterior")


def _scale(x: int, y: int) -> list[str]:
    """The meaning of the colours and of the border."""
    parts = []
    for i, p in enumerate((0.1, 0.3, 0.5, 0.7, 0.9)):
        parts.append(f'<rect class="b" x="{x + 22 * i}" y="{y}" width="20" height="10" fill-opacity="{p}"/>')
    parts.append(f'<text class="s" x="{x}" y="{y + 22}">0.1 to 0.9</text>')
    parts.append(f'<rect fill="none" stroke="currentColor" x="{x + 124}" y="{y}" width="10" height="10"/>')
    parts.append(f'<text class="s" x="{x + 140}" y="{y + 10}">arc of the best graph</text>')
    return parts


def draw_graph(
    names: Sequence[str], graph: Sequence[tuple[str, str]], common: Sequence[tuple[str, str]] = ()
) -> Drawing:
    """Draw a directed acyclic graph of variables; hidden common causes of pairs are dashed, with two heads."""
    number_of = {name: i for i, name in enumerate(names)}
    boxes = [Box(v) for v in names]
    made = _fitted([box_size(box) for box in boxes], [(number_of[u], number_of[v]) for u, v in graph])
    heads = "".join(f"M{x} {y}l-4-{ARROW}h8z" for *_, (x, y) in made.lines)
    body = [f'<g transform="translate({PAD},{PAD})">']
    if graph:
        body.append(f'<path class="a" d="{"".join(curve(line, ARROW - 1) for line in made.lines)}"/>')
        body.append(f'<path class="y" d="{heads}"/>')
    bows = [_bow(made.boxes[number_of[u]], made.boxes[number_of[v]]) for u, v in common]
    if bows:
        body.append(f'<path class="a d" d="{"".join(line for line, _ in bows)}"/>')
        body.append(f'<path class="y" d="{"".join(ends for _, ends in bows)}"/>')
        body += [f'<rect class="w" x="{x}" y="{y}" width="{w}" height="{h}" rx="4"/>' for x, y, w, h in made.boxes]
    body += [draw_box(box, x, y, w, h) for box, (x, y, w, h) in zip(boxes, made.boxes, strict=True)]
    width, height = made.width + 2 * PAD, made.height + 2 * PAD
    title = f"Graph of {counted(len(names), 'variable')}, {counted(len(graph), 'arc')}"
    title += f", {counted(len(common), 'hidden common cause')}" if common else ""
    return Drawing(picture([*body, "</g>"], width, height, title), width, height, title)


def _bow(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> tuple[str, str]:
    """A bent line between two boxes wherever they are, and its two heads."""
    (x1, y1), (x2, y2) = ((x + w / 2, y + h / 2) for x, y, w, h in (one, other))
    length = math.hypot(x2 - x1, y2 - y1)
    bent = (x1 + x2) / 2 + BOW * (y2 - y1) / length, (y1 + y2) / 2 + BOW * (x1 - x2) / length
    points, heads = [], ""
    for (_, _, w, h), x, y in ((one, x1, y1), (other, x2, y2)):
        dx, dy = bent[0] - x, bent[1] - y
        share = min(w / 2 / abs(dx) if dx else math.inf, h / 2 / abs(dy) if dy else math.inf, 1.0)
        u, v = ARROW * dx / math.hypot(dx, dy), ARROW * dy / math.hypot(dx, dy)
        px, py = x + dx * share, y + dy * share
        points.append((round(px + u / 2), round(py + v / 2)))
        sides = (round(px + u - v / 2), round(py + v + u / 2)), (round(px + u + v / 2), round(py + v - u / 2))
        heads += f"M{round(px)} {round(py)}" + "".join(f"L{a} {b}" for a, b in sides) + "z"
    (a, b), (c, d) = points
    return f"M{a} {b}Q{round(bent[0])} {round(bent[1])} {c} {d}", heads


def _fitted(sizes: Sequence[tuple[int, int]], pairs: Sequence[tuple[int, int]]) -> Arrangement:
    """The arrangement that is the least to scroll, of several that differ in the width of their layers."""
    made = [arrange(sizes, pairs, width, SPACING) for width in WIDTHS]
    return min(made, key=lambda m: max(m.width * 2, m.height * 3))


@check_keywords_of()
def arcs(posterior: StructurePosterior, threshold: float = 0.1) -> Drawing:
    """Draw the probable arcs as a graph, with their probabilities.

    The width of a line is the probability that the two variables are linked, in either direction. Its arrowheads are as
    dark as the arc and the reversed arc are probable; the number is the probability of the arc (none: at least 0.995),
    the one after an arrow upwards that of the reversed arc. Dashed arcs have a probability of at most 0.5; they do not
    decide where variables stand.

    Parameters
    ----------
    posterior : StructurePosterior
    threshold : float
        Arcs are drawn above this probability, the most probable first, each unless it closes a cycle with those before
        it.

    Raises
    ------
    ArgumentError
        If the threshold is no number between 0 and 1.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> post = jtgpu.learn.posterior({v: data[v] for v in ("smoke", "bronc", "lung", "dysp")})
    >>> jtgpu.draw.arcs(post).save("arcs.svg")  # doctest: +SKIP
    """
    _check(posterior)
    if not 0.0 <= number("threshold", threshold) < 1.0:
        raise ArgumentError(f"threshold must be a number from 0 to below 1, not {threshold!r}")
    names, p = posterior.names, posterior.edge_probabilities.values
    graph = posterior.consensus(threshold)
    pairs = [(names.index(u), names.index(v)) for u, v in graph.edges]
    boxes = [Box(v) for v in names]
    strong = [pair for pair in pairs if p[pair] > WEAK or p[pair] + p[pair[::-1]] > LINKED]
    made = _fitted([box_size(box) for box in boxes], strong)
    line_of = dict(zip(strong, made.lines, strict=True))
    lines = [line_of.get(pair) or _free_line(made.boxes[pair[0]], made.boxes[pair[1]]) for pair in pairs]
    first = sorted(range(len(pairs)), key=lambda i: (-p[pairs[i]], i))
    labels = [_label(p[pairs[i]], p[pairs[i][::-1]]) for i in first]
    shown = {i: label for i, label in zip(first, labels, strict=True) if label}
    places = dict(zip(shown, label_places([*shown.values()], [lines[i] for i in shown], made.boxes), strict=True))
    head, legend = _arcs_legend(len(strong), len(pairs), threshold, any(UP in label for label in labels))
    top = PAD + TITLE + (LINE if pairs else 0)
    body = [f'<g transform="translate({PAD},{top})">']
    heads: dict[tuple[int, int, int], float] = {}  # place and direction, and the largest probability there
    for i, label in sorted(zip(first, labels, strict=True)):
        body.append(_drawn_arc(names, p, pairs[i], lines[i], pairs[i] not in line_of))
        ends = [(_head(lines[i]), p[pairs[i]])]
        if UP in label:
            ends.append((_head(lines[i][::-1]), p[pairs[i][::-1]]))
        for at, chance in ends:
            heads[at] = max(heads.get(at, 0.0), float(chance))
    body += [
        f'<path fill="currentColor" fill-opacity="{0.2 + 0.8 * chance:.2f}" d="M{x} {y}l-5 {height}h10z"/>'
        for (x, y, height), chance in heads.items()
    ]
    body += [f'<rect class="w" x="{x}" y="{y}" width="{w}" height="{h}" rx="4"/>' for x, y, w, h in made.boxes]
    body += [draw_box(box, x, y, w, h) for box, (x, y, w, h) in zip(boxes, made.boxes, strict=True)]
    # labels after all lines, with a halo that interrupts the lines behind them
    for i, label in sorted(shown.items()):
        x, y = places[i]
        body.append(f'<text class="s p" x="{x}" y="{y}">{label}</text>')
    body.append("</g>")
    body.append(f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>')
    if pairs:
        body.append(f'<text class="s" x="{PAD}" y="{16 + LINE}">{escaped(legend)}</text>')
    wide = max((places[i][0] + text_width(label) for i, label in shown.items()), default=0)
    width = max(made.width, wide, text_width(head) * 11 // 10, text_width(legend) if pairs else 0) + 2 * PAD
    height = made.height + top + PAD
    title = f"Probable arcs between {len(names)} variables"
    return Drawing(picture(body, width, height, title), width, height, title)


def _arcs_legend(n_strong: int, n_arcs: int, threshold: float, has_reversed: bool) -> tuple[str, str]:
    """A title, and what the numbers and lines mean."""
    head = f"{counted(n_arcs, 'arc')} with a probability above {threshold:g}"
    if n_strong < n_arcs:
        head += f", {n_arcs - n_strong:,} of them weak (dashed)"
    legend = f"number: P(arc), none from {CERTAIN:g}" + (f", {UP} P(reversed arc)" if has_reversed else "")
    return head, legend + "; width of a line: P(link in either direction)"


def _drawn_arc(
    names: Sequence[str], p: NDArray[np.float64], pair: tuple[int, int], line: Sequence[Point], is_weak: bool
) -> str:
    """The line of an arc."""
    u, v = pair
    link = min(p[u, v] + p[v, u], 1.0)
    tip = escaped(f"{names[u]} -> {names[v]}: {p[u, v]:.3f}; reversed: {p[v, u]:.3f}")
    shorter = _head(line)[2]  # the head covers the rest
    end = [*line[:-1], (line[-1][0], line[-1][1] + shorter * (ARROW - 1) // ARROW)]
    (x, y, sign), *rest = (_head(line[::-1]), *end[1:])
    start = [(x, y + (sign * (ARROW - 1) // ARROW if p[v, u] >= REVERSED else 0)), *rest]
    dashes = 'stroke-dasharray="5 4" ' if is_weak else ""
    return (
        f'<g><title>{tip}</title><path fill="none" stroke="currentColor" stroke-width="{0.5 + 2.5 * link:.2f}" '
        f'stroke-opacity="{0.2 + 0.6 * link:.2f}" {dashes}d="{curve(start)}"/></g>'
    )


def _head(line: Sequence[Point]) -> tuple[int, int, int]:
    """Where the last point of a line is, and the height of its arrowhead: negative where the line comes from above."""
    (_, before), (x, y) = line[-2:]
    return x, y, -ARROW if y > before else ARROW


def _free_line(parent: tuple[int, int, int, int], child: tuple[int, int, int, int]) -> tuple[Point, ...]:
    """A line between two boxes wherever they are."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = parent, child
    start, end = ax + aw // 2, bx + bw // 2
    if ay + ah < by:
        return (start, ay + ah), (end, by)
    if by + bh < ay:
        return (start, ay), (end, by + bh)
    low = max(ay + ah, by + bh)  # side by side: around below
    return (start, ay + ah), ((start + end) // 2, low + BEND), (end, by + bh)


def _label(p: float, reverse: float) -> str:
    """The probability of an arc, unless it is nearly certain, and of the reversed one if it is not small."""
    return ("" if p >= CERTAIN else _short(p)) + (f" {UP}{_short(reverse)}" if reverse >= REVERSED else "")


def _short(p: float) -> str:
    """A probability with two digits."""
    return "1" if p >= CERTAIN else f".{int(p * 100 + 0.5):02d}"


@check_keywords_of()
def trace(posterior: StructurePosterior) -> Drawing:
    """Draw the ln weight of the states of all chains over their samples, a line for each chain.

    Raises
    ------
    ArgumentError
        If the posterior is exact: there are no chains.
    """
    _check(posterior)
    values = np.asarray(posterior.trace)
    if values.shape[-1] < 2:
        raise ArgumentError("there are no traces: the posterior is exact, or the chains have hardly run")
    columns = np.unique(np.linspace(0, values.shape[1] - 1, min(values.shape[1], MAX_POINTS)).round().astype(int))
    low, high = float(values.min()), float(values.max())
    scale = CURVE / (high - low) if high > low else 0.0
    labels = [f"{high:.6g}", f"{low:.6g}"]
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
