"""A network whose nodes have the size of their betweenness, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import ArgumentError, UnknownVariable, shown
from ..graphs.posterior import BetweennessPosterior
from ..model.discrete import DiscreteModel
from ..series.autoregression import Autoregression, residuals
from ..series.inputs import read_series, series_table
from ..series.slices import significance_bound
from ..util.arguments import check_keywords_of, described, number, whole_number
from .arrange import arrange
from .drawing import Drawing, graph_of
from .svg import ARROW, clean, curve, escaped, picture, shortened, text_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARGIN = 16
MAX_WIDTH = 2400  # pixels of a layer
SMALLEST, LARGEST = 3, 32  # radius of a circle, in pixels
MAX_NAME = 130
LINE = 15  # height of a line of text
LEGEND = 22


class _Node(NamedTuple):
    """A variable with its values as shares of the largest one, and the text of its rank."""

    name: str
    value: float
    low: float
    high: float
    rank: str
    tooltip: str


@check_keywords_of()
def show_ranks(
    model: DiscreteModel, betweenness: Mapping[str, float] | BetweennessPosterior, most: int = 150
) -> Drawing:
    """Draw a network with a circle for each variable, whose area is its betweenness.

    Parameters
    ----------
    model : BayesianNetwork or MarkovNetwork
        The graph that is drawn.
    betweenness : mapping of str to float, or BetweennessPosterior
        See `jtgpu.graphs.betweenness` and `jtgpu.graphs.betweenness_posterior`. A posterior is drawn with the mean as
        a disc and its first and last quantile as circles, and with the interval of ranks that has probability 0.9.
    most : int, default 150
        Variables to draw, those of the largest betweenness.

    Returns
    -------
    Drawing

    Raises
    ------
    UnknownVariable
        If the model has a variable without a value.
    ArgumentError
        If an argument has a wrong type, or a value is negative.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.load("asia")
    >>> jtgpu.draw.show_ranks(net, jtgpu.graphs.betweenness(net)).title
    'Betweenness in asia, 8 variables'
    """
    if not isinstance(model, DiscreteModel):
        raise ArgumentError(f"show_ranks draws a network, not {described(model)}")
    nodes = _nodes(model, betweenness)
    chosen = sorted(sorted(range(len(nodes)), key=lambda v: -nodes[v].value)[: whole_number("most", most, least=1)])
    place = {v: i for i, v in enumerate(chosen)}
    graph = graph_of(model)
    arcs = [(place[a], place[b]) for a, b in graph.arcs if a in place and b in place]
    made = arrange([_size(nodes[v]) for v in chosen], arcs, MAX_WIDTH)
    head = ARROW - 1 if graph.is_directed else 0
    body = [f'<path class="a" d="{"".join(curve(line, head) for line in made.lines)}"/>' if arcs else ""]
    if graph.is_directed and arcs:
        body.append(f'<path class="y" d="{"".join(f"M{x} {y}l-4-{ARROW}h8z" for *_, (x, y) in made.lines)}"/>')
    body += [_drawn(nodes[v], *box) for v, box in zip(chosen, made.boxes, strict=True)]
    legend = _legend(isinstance(betweenness, BetweennessPosterior), len(chosen), len(nodes))
    width, y = max(made.width, text_width(legend)) + 2 * MARGIN, made.height + 2 * MARGIN
    parts = [f'<g transform="translate({MARGIN},{MARGIN})">', *body, "</g>"]
    parts.append(f'<text class="s" x="{MARGIN}" y="{y + 8}">{escaped(legend)}</text>')
    name = f" in {shortened(model.name, 200)}" if model.name else ""
    title = f"Betweenness{name}, {_of(len(chosen), len(nodes))} variables"
    return Drawing(picture(parts, width, y + LEGEND, title), width, y + LEGEND, title)


def _of(n: int, total: int) -> str:
    return f"{n:,} of {total:,}" if n < total else f"{n:,}"


def _legend(with_intervals: bool, n: int, total: int) -> str:
    text = "area: betweenness; number: rank"
    if with_intervals:
        text = "area: mean betweenness; circles: first and last quantile; numbers: ranks with probability 0.9"
    return f"{text}; {n:,} of {total:,} variables, the largest" if n < total else text


def _nodes(model: DiscreteModel, ranked: Mapping[str, float] | BetweennessPosterior) -> list[_Node]:
    names = list(model.variables)
    if isinstance(ranked, BetweennessPosterior):
        known = {name: i for i, name in enumerate(ranked.variables)}
        order = [known[_checked(name, known)] for name in names]
        mean, ranks, ends = ranked.mean.tolist(), ranked.rank_interval().tolist(), ranked.quantiles
        low, high = (
            [mean[i] if not ranked.levels else float(ends[i, side]) for i in range(len(mean))] for side in (0, -1)
        )
        top = max([*mean, *high], default=0.0) or 1.0
        return [
            _Node(
                name, mean[i] / top, low[i] / top, high[i] / top, "-".join(map(str, dict.fromkeys(ranks[i]))),
                f"{clean(name)}: {mean[i]:.4g} ({low[i]:.4g} to {high[i]:.4g})",
            )
            for name, i in zip(names, order, strict=True)
        ]  # fmt: skip
    if not isinstance(ranked, Mapping):
        raise ArgumentError(f"betweenness must be a mapping from name to number, not {described(ranked)}")
    values = [number(f"the value of {name!r}", ranked[_checked(name, ranked)], least=0) for name in names]
    top = max(values, default=0.0) or 1.0
    return [
        _Node(name, x / top, 0.0, 0.0, str(1 + sum(other > x for other in values)), f"{clean(name)}: {x:.4g}")
        for name, x in zip(names, values, strict=True)
    ]


def _checked(name: str, known: Mapping[str, object]) -> str:
    if name not in known:
        raise UnknownVariable(f"there is no value for the variable {shown(name)}")
    return name


def _radius(share: float) -> float:
    """Radius of a circle whose area is a share of the largest one's."""
    return round(max(LARGEST * math.sqrt(share), SMALLEST), 1)


def _size(node: _Node) -> tuple[int, int]:
    across = 2 * math.ceil(_radius(max(node.value, node.high)))
    width = max(across, text_width(shortened(node.name, MAX_NAME)), text_width(node.rank)) + 4
    return width + width % 2, across + 2 * LINE


def _drawn(node: _Node, x: int, y: int, width: int, height: int) -> str:
    middle, across = x + width // 2, height - 2 * LINE
    centre = y + across // 2
    parts = [f"<g><title>{escaped(node.tooltip)}</title>"]
    parts.append(f'<circle class="c" cx="{middle}" cy="{centre}" r="{_radius(node.value):g}"/>')
    rings = [_radius(share) for share in (node.high, node.low) if share > 0]
    parts += [f'<circle class="l" cx="{middle}" cy="{centre}" r="{r:g}"/>' for r in rings]
    name = escaped(shortened(node.name, MAX_NAME))
    parts.append(f'<text class="h m" x="{middle}" y="{y + across + LINE - 3}">{name}</text>')
    parts.append(f'<text class="s m" x="{middle}" y="{y + across + 2 * LINE - 4}">{node.rank}</text></g>')
    return "".join(parts)


# The picture of autoregressive models: partial autocorrelations with their bounds, and residuals over time.

PAD, TITLE, GAP = 10, 24, 46
CHART, HEIGHT = 320, 110  # of each of the two charts of a series
LABEL = 300
NARROW = 18  # most pixels from a lag to the next
COLUMNS = 160  # of a long line of residuals: the least and the largest value of each


@check_keywords_of()
def show_series(
    x: object, fit: Autoregression, *, alpha: float = 0.05, most: int = 8, time: str | None = None
) -> Drawing:
    """Draw the partial autocorrelations and the residuals of autoregressive models.

    Parameters
    ----------
    x : (..., T) array, or table
        See `jtgpu.series.whiten`.
    fit : Autoregression
        See `jtgpu.series.ar`.
    alpha : float
        The dashed bounds are ``z / sqrt(T)``, outside of which a series without memory has a partial autocorrelation
        with this probability; see `jtgpu.series.lag_parents`. Lags outside are blue.
    most : int
        Series to draw: the first ones.
    time : str, optional
        Column of a table with the times.

    Returns
    -------
    Drawing

    Raises
    ------
    DataError
        If a series is missing, or has a gap or an infinite value.

    Examples
    --------
    >>> import numpy as np
    >>> from jtgpu import draw, series
    >>> x = np.sin(np.arange(200) ** 2)
    >>> draw.show_series(x, series.ar(x, order=2)).title
    'Partial autocorrelations and residuals of 1 series'
    """
    if not isinstance(fit, Autoregression):
        raise ArgumentError(f"fit must be the result of jtgpu.series.ar, not {described(fit)}")
    n = min(whole_number("most", most, 1), len(fit.names))
    bound = significance_bound(fit, alpha)
    data = read_series(x, time, list(fit.names) if series_table(x) is not None else None)
    left_over = residuals(data, fit, "reference" if fit.backend == "reference" else "auto")
    order, variance = fit.order.reshape(-1), fit.variance.reshape(-1)
    partial = fit.partial.reshape(len(fit.names), fit.partial.shape[-1])
    title = f"Partial autocorrelations and residuals of {n:,} series"
    names = [shortened(name, LABEL) for name in fit.names[:n]]
    labels = [f"{name}: order {order[i]}, variance {variance[i]:.4g}" for i, name in enumerate(names)]
    body: list[str] = []
    for i, label in enumerate(labels):
        top = i * (TITLE + HEIGHT + GAP)
        body.append(f'<text class="h" x="{PAD}" y="{top + 16}">{escaped(label)}</text>')
        body += _lags(partial[i, 1:], bound, PAD, top + TITLE)
        body += _line(left_over[i], int(order[i]), 2 * PAD + CHART + GAP, top + TITLE)
    rest = len(fit.names) - n
    height = n * (TITLE + HEIGHT + GAP)
    if rest:
        body.append(f'<text class="s" x="{PAD}" y="{height}">{rest:,} more series are left out</text>')
    width = max(2 * CHART + GAP + 3 * PAD, *(text_width(t) * 11 // 10 + 2 * PAD for t in labels)) if labels else 200
    return Drawing(picture(body, width, height + 2 * PAD, title), width, height + 2 * PAD, title)


def _lags(partial: NDArray[np.float64], bound: float, left: int, top: int) -> list[str]:
    """Stems of the partial autocorrelations at lags 1, 2 ..., with their bounds."""
    limit = max(float(np.abs(partial).max(initial=0.0)), 1.5 * bound)
    middle, scale = top + HEIGHT / 2, HEIGHT / 2 / limit
    step = min(NARROW, (CHART - NARROW) / max(len(partial), 1))
    stems = {"b": "", "y": ""}
    for lag, value in enumerate(partial.tolist(), 1):
        x, y, tall = left + lag * step - step / 3, middle - max(value, 0.0) * scale, abs(value) * scale
        name = "b" if abs(value) > bound else "y"
        stems[name] += f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{step * 2 / 3:.1f}" height="{tall:.1f}"/>'
    right, end = left + len(partial) * step + step, max(left + len(partial) * step + step, left + NARROW)
    bounds = "".join(f"M{left} {middle + s * bound * scale:.1f}H{end:.1f}" for s in (-1, 1))
    return [
        stems["y"], stems["b"],
        f'<path class="x" d="{bounds}"/>',
        f'<path class="a" d="M{left} {middle:.1f}H{end:.1f}"/>',
        f'<text class="s" x="{left}" y="{top + HEIGHT + 16}">lag 1 to {len(partial)}; dashed: &#177;{bound:.3g}</text>',
        f'<text class="s" x="{right + 6:.1f}" y="{top + 10}">{limit:.3g}</text>',
        f'<text class="s" x="{right + 6:.1f}" y="{top + HEIGHT}">{-limit:.3g}</text>',
    ]  # fmt: skip


def _line(values: NDArray[np.float64], order: int, left: int, top: int) -> list[str]:
    """Residuals over time; of a long series the range of each column of pixels."""
    n = len(values)
    shown = values[order:]
    if not len(shown):
        return []
    limit = float(np.abs(shown).max()) or 1.0
    middle, scale = top + HEIGHT / 2, HEIGHT / 2 / limit
    if len(shown) <= 2 * COLUMNS:
        points = [(order + t, v) for t, v in enumerate(shown.tolist())]
    else:
        edges = np.linspace(0, len(shown), COLUMNS + 1).astype(int)
        points = [(order + int(a), float(f(shown[a:b]))) for a, b in pairwise(edges) for f in (np.min, np.max)]
    note = f"residuals at times 0 to {n - 1:,}, up to {limit:.3g}"
    path = " ".join(f"{left + t * CHART / n:.1f},{middle - v * scale:.1f}" for t, v in points)
    return [
        f'<path class="l" style="stroke-width:1" d="M{path}"/>',
        f'<path class="a" d="M{left} {middle:.1f}H{left + CHART}"/>',
        f'<text class="s" x="{left}" y="{top + HEIGHT + 16}">{note}</text>',
    ]
