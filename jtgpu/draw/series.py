"""The picture of autoregressive models: partial autocorrelations with their bounds, and residuals over time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..series.autoregression import Autoregression
from ..series.inputs import read_series, series_table
from ..series.slices import significance_bound
from ..series.whitening import residuals
from ..util.arguments import described, whole_number
from .drawing import Drawing
from .svg import picture
from .text import escaped, shortened, text_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAD, TITLE, GAP = 10, 24, 46
CHART, HEIGHT = 320, 110  # of each of the two charts of a series
LABEL = 300
NARROW = 18  # most pixels from a lag to the next
COLUMNS = 160  # of a long line of residuals: the least and the largest value of each


def show_series(x: Any, fit: Autoregression, *, alpha: float = 0.05, most: int = 8, time: str | None = None) -> Drawing:
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
