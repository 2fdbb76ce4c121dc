"""Objects that users hold, as a notebook shows them: their ``_repr_html_`` methods call `html`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import singledispatch
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import format_bytes
from ..inference.compiled import CompiledModel
from ..inference.compiled_network import CompiledNetwork
from ..inference.network_plan import NetworkPlan
from ..inference.results.marginals import Posterior
from ..inference.results.result import Result
from ..model.cpt import Cpt
from ..model.decisions import PolicyNetwork
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..util.text_table import format_cell, shown_cells, shown_rows
from .drawing import Box, Drawing, bars_size, draw_bars
from .network import draw_junction_tree, draw_network
from .pictures import draw_decisions, show
from .structures import arcs, draw_graph, heat_map
from .svg import MAX_TITLE, escaped, marks, picture, shortened, text_width

if TYPE_CHECKING:
    from ..inference.results.contributions import Contributions
    from ..inference.results.sensitivities import Sensitivity

# Tables as HTML, as much of them as fits a page.

MAX_COLUMNS = 24
STYLE = {
    "table": "border-collapse:collapse;font-size:13px;margin:4px 0",
    "td,th": "padding:2px 10px;text-align:left;border:0;border-bottom:1px solid rgba(128,128,128,.3);background:none;"
    "color:inherit;unicode-bidi:isolate",
    ".r": "text-align:right;font-variant-numeric:tabular-nums",
    "th": "font-weight:600",
    "i": "display:inline-block;height:9px;margin-right:6px;background:#4a90d9",
}
BAR = 60  # pixels
PAD, ROW, TITLE = 10, 20, 24
LABEL, CHART = 340, 320  # widths
CURVE = 140  # height
MAX_POINTS = 1000  # of a curve


def draw_posterior(posterior: Posterior) -> Drawing:
    """Draw a bar for each state, or for the most probable ones."""
    box = Box(posterior.variable, posterior.states, posterior.probabilities.tolist())
    name = shortened(posterior.variable, LABEL)
    inside, height = bars_size(box)
    width = max(inside, text_width(name) * 11 // 10) + 2 * PAD
    body = [
        f'<text class="h" x="{PAD}" y="16">{escaped(name)}</text>',
        draw_bars(box, PAD, TITLE, inside),
    ]
    height += TITLE + PAD // 2
    title = f"P({posterior.variable[:200]})"
    return Drawing(picture(body, width, height, title), width, height, title)


def draw_tornado(sensitivity: Sensitivity, n: int = 10, spread: float = 0.1) -> Drawing:
    """Draw the parameters that change a probability most; see `jtgpu.inference.results.sensitivities.Sensitivity`."""
    # sensitivity: Result of ``tree.sensitivity(...)``
    # n: Number of parameters
    # spread: Each parameter changes from (1 - spread) to (1 + spread) times its value. Blue is the effect of the lower
    #     end, green that of the higher one.
    bars = [bar for bar in sensitivity.tornado(n, spread) if math.isfinite(bar.at_low) and math.isfinite(bar.at_high)]
    p = sensitivity.probability
    what = f"P({sensitivity.target[0]} = {sensitivity.target[1]})"
    change = f"{100 * spread:g} %"
    title = f"{shortened(what, LABEL)} = {p:.6g}; parameters lowered (blue) and raised (green) by {change}"
    rows = [
        (str(bar.parameter), (("b", p, bar.at_low), ("v", p, bar.at_high)), f"{bar.at_low:.6g} to {bar.at_high:.6g}")
        for bar in bars
    ]
    return _draw_ranges(title, rows, p)


def draw_waterfall(contributions: Contributions) -> Drawing:
    """Draw the way from the quantity without findings to that with all; blue lowers it, green raises it."""
    at, rows = contributions.base, []
    for name, value in contributions.items():
        label = f"{name} = {contributions.findings[name]}"
        rows.append((label, (("v" if value >= 0 else "b", at, at + value),), f"{value:+.6g}"))
        at += value
    if len(rows) > MAX_ROWS:
        at = contributions.base + math.fsum([*contributions.values()][: MAX_ROWS - 1])
        change = contributions.total - at
        what = f"{len(rows) - MAX_ROWS + 1} other findings"
        rows[MAX_ROWS - 1 :] = [(what, (("v" if change >= 0 else "b", at, contributions.total),), f"{change:+.6g}")]
    return _draw_ranges(contributions._title(), rows, contributions.base)


Range = tuple[str, float, float]  # class, ends


def _draw_ranges(title: str, rows: Sequence[tuple[str, Sequence[Range], str]], mark: float) -> Drawing:
    """Draw ranges of a quantity, a row with a label and a text for each, and a line at `mark`."""
    ends = [mark, *(end for _, ranges, _ in rows for _, *both in ranges for end in both)]
    low, high = min(ends), max(ends)
    scale = CHART / (high - low) if high > low else 0.0
    labels = [shortened(label, LABEL) for label, _, _ in rows]
    left = PAD + max(map(text_width, labels), default=0) + PAD

    def x(value: float) -> float:
        return round(left + (value - low) * scale, 1)

    body = [f'<text class="h" x="{PAD}" y="16">{escaped(title)}</text>']
    for i, ((_, ranges, text), label) in enumerate(zip(rows, labels, strict=True)):
        y = TITLE + i * ROW
        body.append(f'<text class="r" x="{left - PAD}" y="{y + 14}">{escaped(label)}</text>')
        for name, first, last in ranges:
            start, length = min(x(first), x(last)), abs(x(last) - x(first))
            body.append(f'<rect class="{name}" x="{start:g}" y="{y + 3}" width="{length:.1f}" height="14"/>')
        body.append(f'<text class="s" x="{left + CHART + PAD}" y="{y + 14}">{text}</text>')
    bottom = TITLE + len(rows) * ROW
    body.append(f'<path class="k" d="M{x(mark):g} {TITLE}V{bottom}"/>')
    body.append(f'<text class="s" x="{left}" y="{bottom + 16}">{low:.6g}</text>')
    body.append(f'<text class="s r" x="{left + CHART}" y="{bottom + 16}">{high:.6g}</text>')
    width, height = max(left + CHART + 160, text_width(title) * 11 // 10 + 2 * PAD), bottom + 24
    return Drawing(picture(body, width, height, title), width, height, title)


def draw_curve(values: Sequence[float], title: str, axis: str) -> Drawing | None:
    """Draw a quantity over the steps of an iteration as a line; values that are not finite are left out."""
    # values: sequence of float: One for each step
    # axis: Name of the steps
    # returns None if fewer than two values are finite.
    points = [(i, v) for i, v in enumerate(values, 1) if math.isfinite(v)]
    if len(points) < 2:
        return None
    stride = -(-len(points) // MAX_POINTS)
    points = [*points[:-1:stride], points[-1]]
    low, high = min(v for _, v in points), max(v for _, v in points)
    scale = CURVE / (high - low) if high > low else 0.0
    labels = [f"{high:.6g}", f"{low:.6g}"]
    left = PAD + max(map(text_width, labels)) + PAD
    first, last = points[0][0], points[-1][0]
    line = " ".join(
        f"{left + (i - first) * CHART / (last - first):.1f},{TITLE + 6 + (high - v) * scale:.1f}" for i, v in points
    )
    bottom = TITLE + 6 + CURVE
    name = shortened(title, 2 * LABEL)
    body = [
        f'<text class="h" x="{PAD}" y="16">{escaped(name)}</text>',
        f'<text class="s r" x="{left - PAD}" y="{TITLE + 10}">{labels[0]}</text>',
        f'<text class="s r" x="{left - PAD}" y="{bottom + 4}">{labels[1]}</text>',
        f'<path class="a" d="M{left} {TITLE}V{bottom + 6}H{left + CHART}"/>',
        f'<path class="l" d="M{line}"/>',
        f'<text class="s" x="{left}" y="{bottom + 22}">{escaped(axis)} {first}</text>',
        f'<text class="s r" x="{left + CHART}" y="{bottom + 22}">{last}</text>',
    ]
    width, height = max(left + CHART, text_width(name) * 11 // 10) + 2 * PAD, bottom + 32
    return Drawing(picture(body, width, height, title), width, height, title)


# Courses of posteriors over the slices of a sequence, a panel for each variable.

PANEL, GAP = 72, 30  # heights
COURSE, NAME = 360, 180  # widths
MOST_PANELS, MOST_POINTS = 6, 400
LINES = ("l", "g", "q", "k")  # classes; other states have no line


def draw_courses(title: str, slices: Sequence[int], courses: Sequence[Any]) -> Drawing | None:
    """Draw the probabilities of the most probable states, and numbers with bands of two standard deviations."""
    # courses: `jtgpu.dynamic.results.Course` of each variable
    # returns None for fewer than two slices.
    if len(slices) < 2 or not courses:
        return None
    stride = -(-len(slices) // MOST_POINTS)
    chosen = [*range(0, len(slices) - 1, stride), len(slices) - 1]
    at, left = [slices[i] for i in chosen], 60
    x = [left + (t - at[0]) * COURSE / (at[-1] - at[0]) for t in at]
    more = f"; {MOST_PANELS} of {len(courses)} variables" if len(courses) > MOST_PANELS else ""
    head = shortened(f"{title}{more}", left + COURSE + NAME)
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>']
    top = TITLE
    for course in courses[:MOST_PANELS]:
        band = np.zeros(len(at)) if course.sd is None else 2 * np.asarray(course.sd)[chosen]
        means = {name: np.asarray(values)[chosen] for name, values in course.lines.items()}
        shown = sorted(sorted(means, key=lambda s: -float(means[s].mean()))[: len(LINES)], key=[*means].index)
        low, high = 0.0, 1.0
        if course.sd is not None:
            low = min(float((m - band).min()) for m in means.values())
            high = max(float((m + band).max()) for m in means.values())
        scale = PANEL / (high - low) if high > low else 0.0

        def points(values: Any, top: int = top, high: float = high, scale: float = scale) -> str:
            return " ".join(f"{a:.1f},{top + (high - v) * scale:.1f}" for a, v in zip(x, values.tolist(), strict=True))

        ends = ((high, top + 10), (low, top + PANEL))
        body += [f'<text class="s r" x="{left - 6}" y="{y}">{value:.4g}</text>' for value, y in ends]
        body.append(f'<path class="a" d="M{left} {top}V{top + PANEL}H{left + COURSE}"/>')
        name = shortened(course.name, NAME)
        body.append(f'<text class="h" x="{left + COURSE + PAD}" y="{top + 10}">{escaped(name)}</text>')
        for i, state in enumerate(shown):
            values = means[state]
            if band.any():
                there, back = points(values + band), points(values - band).split()[::-1]
                body.append(f'<path class="t" d="M{there} {" ".join(back)}z"/>')
            body.append(f'<path class="{LINES[i]}" d="M{points(values)}"/>')
            y = top + 26 + 14 * i
            text = "mean, 2 sd" if course.sd is not None else shortened(state, NAME - 30)
            body.append(f'<path class="{LINES[i]}" d="M{left + COURSE + PAD} {y - 4}h16"/>')
            body.append(f'<text class="s" x="{left + COURSE + PAD + 22}" y="{y}">{escaped(text)}</text>')
        top += PANEL + GAP - 12
    body.append(f'<text class="s" x="{left}" y="{top}">slice {at[0]}</text>')
    body.append(f'<text class="s r" x="{left + COURSE}" y="{top}">{at[-1]}</text>')
    width, height = max(left + COURSE + PAD + NAME, text_width(head) * 11 // 10 + 2 * PAD), top + PAD
    return Drawing(picture(body, width, height, title), width, height, title)


# A chart of counts: those of a table as bars, those that a network predicts as ranges.

MAX_ROWS = 40
WIDE = 2.0  # standard deviations of a range


def draw_counts(
    labels: Sequence[str], counts: tuple[Sequence[float], Sequence[float], Sequence[float]], title: str
) -> Drawing:
    """Draw observed counts as bars and predicted ones as ranges of two standard deviations to each side."""
    # labels: sequence of str: One for each configuration
    # counts: (observed, expected, deviation)
    # returns The configurations in which the counts differ most, if there are many.
    rows = [*range(len(labels))]
    if len(rows) > MAX_ROWS:
        rows = sorted(sorted(rows, key=lambda i: -abs(counts[0][i] - counts[1][i]))[:MAX_ROWS])
    most = max((max(counts[0][i], counts[1][i] + WIDE * counts[2][i]) for i in rows), default=0.0)
    scale = CHART / most if most > 0 else 0.0
    names = [shortened(labels[i], LABEL) for i in rows]
    left = PAD + max(map(text_width, names), default=0) + PAD
    head = shortened(title, 2 * LABEL)
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>']
    for k, (i, name) in enumerate(zip(rows, names, strict=True)):
        observed, expected, wide = counts[0][i], counts[1][i], WIDE * counts[2][i]
        y = TITLE + k * ROW
        low, high = (round(left + max(x, 0.0) * scale, 1) for x in (expected - wide, expected + wide))
        middle = round(left + expected * scale, 1)
        body.append(f'<text class="r" x="{left - PAD}" y="{y + 14}">{escaped(name)}</text>')
        body.append(f'<rect class="b" x="{left}" y="{y + 3}" width="{observed * scale:.1f}" height="14"/>')
        body.append(f'<path class="k" d="M{low:g} {y + 10}H{high:g}M{middle:g} {y + 4}V{y + 16}"/>')
        body.append(
            f'<text class="s" x="{left + CHART + PAD}" y="{y + 14}">{observed:.6g}, expected {expected:.6g}</text>'
        )
    n_left_out = len(labels) - len(rows)
    more = f"; {n_left_out:,} configurations that differ less are left out" if n_left_out else ""
    bottom = TITLE + len(rows) * ROW
    note = f"bars: observed; lines: expected, two standard deviations to each side{more}"
    body.append(f'<text class="s" x="{PAD}" y="{bottom + 16}">{escaped(note)}</text>')
    width = max(left + CHART + 200, text_width(head) * 11 // 10 + 2 * PAD, text_width(note) + 2 * PAD)
    return Drawing(picture(body, width, bottom + 26, title), width, bottom + 26, title)


def html_table(
    title: str, names: Sequence[str], columns: Sequence[Any], *, fixed: int = 0, bars: int | None = None
) -> str:
    """Format columns of cells as an HTML table."""
    # title: A line above the table
    # names: sequence of str: Headers of the columns; if all are empty, there is no line of headers
    # columns: sequence of sequences: Cells of each column. Only cells that are shown are read.
    # fixed: Number of leading columns that are always shown
    # bars: A column of numbers that are drawn as bars, too
    n = len(columns[0]) if columns else 0
    rows = shown_rows(n)
    shown = _columns(len(columns), fixed)
    gap = len(rows) // 2 if len(rows) < n else None
    cells = [_cells(columns[j], rows, j == bars) for j in shown if j is not None]
    pairs = iter(cells)
    blocks = [["<td>\u2026</td>"] * len(rows) if j is None else next(pairs) for j in shown]
    lines = []
    if any(names):
        heads = ["\u2026" if j is None else escaped(names[j][:MAX_TITLE]) for j in shown]
        lines.append("<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>")
    for i in range(len(rows)):
        if i == gap:
            lines.append("<tr>" + "<td>\u2026</td>" * len(shown) + "</tr>")
        lines.append("<tr>" + "".join(block[i] for block in blocks) + "</tr>")
    if gap is not None or None in shown:
        lines.append(f'<tr><td colspan="{len(shown)}">{n:,} rows, {len(columns) - fixed:,} columns</td></tr>')
    body = f"<div>{escaped(title)}</div><table>{''.join(lines)}</table>"
    name = f"jtgpu-{blake2b(body.encode(), digest_size=6).hexdigest()}"
    style = "".join(
        "".join(f"#{name} {part}," for part in selector.split(",")).rstrip(",") + f"{{{rules}}}"
        for selector, rules in STYLE.items()
    )
    return f'<div id="{name}" style="overflow:auto;max-width:100%"><style>{style}</style>{body}</div>'


def _columns(n: int, fixed: int) -> list[int | None]:
    """Numbers of the columns that are shown; None where columns are left out."""
    if n <= fixed + MAX_COLUMNS:
        return [*range(n)]
    half = MAX_COLUMNS // 2
    return [*range(fixed + half), None, *range(n - half, n)]


def _cells(column: Any, rows: Sequence[int], bars: bool) -> list[str]:
    values = shown_cells(column, rows)
    numbers = [v for v in values if isinstance(v, (int, float, np.number)) and np.isfinite(v)]
    largest = max([abs(float(v)) for v in numbers], default=0.0)
    cells = []
    for value in values:
        text = escaped(format_cell(value))
        if not isinstance(value, (int, float, np.number)):
            cells.append(f"<td>{text}</td>")
            continue
        bar = ""
        if bars and largest > 0 and np.isfinite(value):
            bar = f'<i style="width:{round(BAR * abs(float(value)) / largest)}px"></i>'
        cells.append(f'<td class="r">{bar}{text}</td>')
    return cells


MAX_BOXES = 60  # variables of a picture
MAX_CLIQUES = 30
MAX_BYTES = 190_000  # of a picture
MAX_TEXT, MAX_REPORT = 1000, 10_000  # characters of a line of text, and of the text about a fit


@singledispatch
def html(thing: Any) -> str:
    """Return an object as HTML: a picture or a table of at most 200 kB, without scripts."""
    if hasattr(thing, "log_weight") or hasattr(thing, "common_causes"):  # `learn.Structure`, `causal.CausalGraph`
        names = thing.names if hasattr(thing, "log_weight") else thing.variables
        common = getattr(thing, "common_causes", ())
        drawn = draw_graph(names, thing.arcs, common)._repr_html_() if 0 < len(names) <= MAX_BOXES else ""
        drawn = "" if hasattr(thing, "links") else drawn  # arrows would say more than is known
        return _captioned(str(thing).partition("\n")[0], drawn if len(drawn.encode()) < MAX_BYTES else "")
    if not hasattr(thing, "_curve"):
        raise TypeError(f"{type(thing).__name__} has no HTML form")
    # a report with a curve, such as `jtgpu.learn.Fit`, whose module takes longer to import than all of this package
    text = f"<pre>{_lines(str(thing)[:MAX_REPORT])}</pre>"
    curve = draw_curve(*thing._curve())
    return text if curve is None else text + curve._repr_html_()


@html.register(Result)
@html.register(Cpt)
def _(thing: object) -> str:
    return PICTURES[getattr(thing, "_picture", "table")](thing)


def _table(thing: Any, bars: int | None = None) -> str:
    names, cells, keys = thing._table()
    return html_table(_name(thing._title()), names, cells, fixed=keys, bars=bars)


def _ranking(thing: Any) -> str:
    columns = thing._table().cells
    numbers = [j for j, column in enumerate(columns) if len(column) and isinstance(column[0], (float, np.number))]
    # the quantity by which the rows are sorted, largest first
    descending = (j for j in numbers if all(a >= b for a, b in pairwise(columns[j])))
    return _table(thing, next(descending, next(iter(numbers), None)))


def _courses(thing: Any) -> str:
    course = draw_courses(*thing._courses())
    return _table(thing) if course is None else course._repr_html_() + _table(thing)


def _arcs(thing: Any) -> str:
    text = _table(thing)
    pictures = [arcs(thing)._repr_html_()] if len(thing.names) <= MAX_BOXES else []
    pictures.append(heat_map(thing)._repr_html_())
    left = MAX_BYTES - len(text.encode())
    for drawn in pictures:
        left -= len(drawn.encode())
        text += drawn if left > 0 else ""
    return text


def _network(thing: Any) -> str:
    model, known = thing._model, thing._known
    nodes = thing._ids()
    if len(nodes) == len(model) <= MAX_BOXES:
        marked = {} if known is None else marks(known)
        if isinstance(model, PolicyNetwork):
            picture = draw_decisions(model.decision_network, nodes, thing, marked=marked)
        else:
            picture = draw_network(model, nodes, posteriors=thing, marks=marked)
        drawn = picture._repr_html_()
        if len(drawn.encode()) < MAX_BYTES:
            return _captioned(thing._title(), drawn)
    return _table(thing)


PICTURES: dict[str, Callable[[Any], str]] = {  # `_picture` of a result
    "arcs": _arcs,
    "bars": lambda thing: draw_posterior(thing)._repr_html_(),
    "counts": lambda thing: draw_counts(*thing._counts())._repr_html_(),
    "courses": _courses,
    "network": _network,
    "ranking": _ranking,
    "table": _table,
    "tornado": lambda thing: draw_tornado(thing)._repr_html_(),
    "waterfall": lambda thing: draw_waterfall(thing)._repr_html_(),
}


@html.register(DiscreteModel)
@html.register(MixedNetwork)
@html.register(MixedDynamicNetwork)
def _(thing: Any) -> str:
    # str(net) begins with one line that says what the network is
    return _captioned(str(thing).partition("\n")[0], _smaller(lambda most: show(thing, most=most), MAX_BOXES))


@html.register
def _(thing: NetworkPlan) -> str:
    if not thing.plan.is_planned:
        return f"<p>{_lines(thing.describe())}</p>"
    cost = thing.cost()
    facts = {
        "cliques": f"{cost.cliques:,}, width {cost.width}",
        "entries": f"{cost.entries:,} in clique tables, the largest {cost.largest:,}",
        "operations": f"{cost.flops:,} a propagation",
        "memory": format_bytes(cost.bytes),
    }
    if thing.slices:
        facts["slices"] = f"{thing.n_slices:,}, over {', '.join(thing.slices)}"[:MAX_TEXT]
    table = html_table(_name(f"Plan of {thing.model.name or 'a network'}"), ["", ""], [[*facts], [*facts.values()]])
    return table + _smaller(lambda most: draw_junction_tree(thing, most=most), MAX_CLIQUES)


@html.register(CompiledNetwork)
def _(thing: CompiledNetwork[Any]) -> str:
    return _captioned(f"Compiled {thing.network!r}", _smaller(lambda most: show(thing, most=most), MAX_BOXES))


@html.register
def _(thing: CompiledModel) -> str:
    return _captioned(repr(thing), _smaller(lambda most: show(thing.model, most=most), MAX_BOXES))


def _smaller(draw: Callable[[int], Drawing], most: int) -> str:
    """A picture of up to `most` boxes, or of fewer if their texts make it too large."""
    drawn = draw(most)._repr_html_()
    while len(drawn.encode()) > MAX_BYTES and most > 1:
        most //= 2
        drawn = draw(most)._repr_html_()
    return drawn


def _lines(text: str) -> str:
    """Escape a text of several lines."""
    return "\n".join(map(escaped, text.split("\n")))


def _captioned(text: str, body: str) -> str:
    return f"<div>{escaped(_name(text))}</div>{body}"


def _name(text: str) -> str:
    return text[:MAX_TEXT]
