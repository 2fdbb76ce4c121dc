"""Objects that users hold, as a notebook shows them: their ``_repr_html_`` methods call `html`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np

from ..decisions.tree import DecisionTree
from ..errors import format_bytes
from ..inference.compiled import CompiledModel
from ..inference.network_plan import NetworkPlan
from ..inference.results.result import Result
from ..model.cpt import Cpt
from ..model.decisions import PolicyNetwork
from ..model.discrete import DiscreteModel
from ..util.text_table import format_cell, shown_cells, shown_rows
from .charts import draw_counts, draw_curve, draw_posterior, draw_tornado
from .courses import draw_courses
from .decisions import draw_decisions
from .drawing import Drawing
from .network import draw_junction_tree, draw_network
from .pictures import show
from .structures import arcs, draw_graph, heat_map
from .svg import MAX_TITLE, escaped, marks

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
    if hasattr(thing, "arcs") and hasattr(thing, "log_weight"):  # `jtgpu.learn.Structure`, likewise
        drawn = draw_graph(thing.names, thing.arcs)._repr_html_() if len(thing.names) <= MAX_BOXES else ""
        return _captioned(str(thing).partition("\n")[0], drawn if len(drawn.encode()) < MAX_BYTES else "")
    if not hasattr(thing, "_curve"):
        raise TypeError(f"{type(thing).__name__} has no HTML form")
    # a report with a curve, such as `jtgpu.learn.Fit`, whose module takes longer to import than all of this package
    text = f"<pre>{_lines(str(thing)[:MAX_REPORT])}</pre>"
    curve = draw_curve(*thing._curve())
    return text if curve is None else text + curve._repr_html_()


@html.register(Result)
@html.register(Cpt)
def _(thing: Any) -> str:
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
}


@html.register
def _(thing: DiscreteModel) -> str:
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


@html.register
def _(thing: DecisionTree) -> str:
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
