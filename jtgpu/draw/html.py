"""What a notebook shows of the objects that users hold: their ``_repr_html_`` methods call `html`."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import format_bytes
from ..inference.compiled import CompiledModel
from ..inference.network_plan import NetworkPlan
from ..inference.results.marginals import Posterior, Posteriors
from ..inference.results.printed import Printed
from ..inference.results.rankings import Ranking, Scores
from ..inference.results.sensitivities import Sensitivity
from ..model.cpt import Cpt
from ..model.discrete import DiscreteModel
from .charts import draw_curve, draw_posterior, draw_tornado
from .count_chart import draw_counts
from .drawing import Drawing
from .junction_tree import draw_junction_tree
from .marks import marks
from .network import draw_network
from .pictures import show
from .structures import arcs, heat_map
from .tables import html_table
from .text import escaped

MAX_BOXES = 60  # variables of a picture
MAX_CLIQUES = 30
MAX_BYTES = 190_000  # of a picture
MAX_TEXT, MAX_REPORT = 1000, 10_000  # characters of a line of text, and of the text about a fit


@singledispatch
def html(thing: Any) -> str:
    """Return an object as HTML: a picture or a table of at most 200 kB, without scripts."""
    if not hasattr(thing, "_curve"):
        raise TypeError(f"{type(thing).__name__} has no HTML form")
    # a report with a curve, such as `jtgpu.learn.Fit`, whose module takes longer to import than all of this package
    text = f"<pre>{_lines(str(thing)[:MAX_REPORT])}</pre>"
    curve = draw_curve(*thing._curve())
    return text if curve is None else text + curve._repr_html_()


@html.register
def _(thing: Printed) -> str:
    if hasattr(thing, "_counts"):  # `jtgpu.learn.PredictiveCheck`, whose module takes long to import
        return draw_counts(*thing._counts())._repr_html_()
    names, columns, fixed = thing._table()
    table = html_table(thing._title()[:MAX_TEXT], names, columns, fixed=fixed)
    if not hasattr(thing, "edge_probabilities"):
        return table
    # a posterior over structures, whose module takes longer to import than all of this package
    posterior: Any = thing
    pictures = [arcs(posterior)._repr_html_()] if len(posterior.names) <= MAX_BOXES else []
    pictures.append(heat_map(posterior)._repr_html_())
    left = MAX_BYTES - len(table.encode())
    for drawn in pictures:
        left -= len(drawn.encode())
        table += drawn if left > 0 else ""
    return table


@html.register(Ranking)
@html.register(Scores)
def _(thing: Any) -> str:
    names, columns, fixed = thing._table()
    numbers = [j for j, column in enumerate(columns) if len(column) and isinstance(column[0], (float, np.number))]
    # the quantity by which the rows are sorted, largest first
    descending = (j for j in numbers if all(a >= b for a, b in pairwise(columns[j])))
    bars = next(descending, next(iter(numbers), None))
    return html_table(thing._title()[:MAX_TEXT], names, columns, fixed=fixed, bars=bars)


@html.register
def _(thing: Cpt) -> str:
    names, columns, fixed = thing._table()
    return html_table(thing._title()[:MAX_TEXT], names, columns, fixed=fixed)


@html.register
def _(thing: Posterior) -> str:
    return draw_posterior(thing)._repr_html_()


@html.register
def _(thing: Posteriors) -> str:
    model, known = thing._model, thing._known
    nodes = thing._ids()
    if len(nodes) == len(model) <= MAX_BOXES:
        found = {} if known is None else marks(known)
        drawn = draw_network(model, nodes, posteriors=thing, marks=found)._repr_html_()
        if len(drawn.encode()) < MAX_BYTES:
            return _captioned(thing._title(), drawn)
    names, columns, fixed = thing._table()
    return html_table(thing._title(), names, columns, fixed=fixed)


@html.register
def _(thing: Sensitivity) -> str:
    return draw_tornado(thing)._repr_html_()


@html.register
def _(thing: DiscreteModel) -> str:
    # str(net) begins with one line that says what the network is
    return _captioned(str(thing).partition("\n")[0], _smaller(lambda most: show(thing, most=most), MAX_BOXES))


@html.register
def _(thing: NetworkPlan) -> str:
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
def _(thing: CompiledModel) -> str:
    return _captioned(repr(thing), _smaller(lambda most: draw_junction_tree(thing.plan, most=most), MAX_CLIQUES))


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
