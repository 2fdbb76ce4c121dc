"""Residuals of autoregressive models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..inference.results.printed import make_frame
from ..inference.tables import Table
from ..util.arguments import having
from ..util.loops import loops
from . import workers as reference
from .autoregression import Autoregression
from .inputs import SeriesData, read_series, series_table
from .workers import missing_value, on_threads, resolve_backend

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.options import EngineName

_lags = loops("jtgpu.series.loops.lags")


def whiten(
    x: Any, fit: Autoregression, *, time: str | None = None, backend: EngineName = "auto", threads: int | None = None
) -> Any:
    """Residuals of series: the errors of one-step predictions, which are nearly independent of each other.

    Parameters
    ----------
    x : (..., T) array, or table
        The series that the models were fitted to, or other ones of any length: a table has a column for each series'
        name, an array has the leading axes of the models.
    fit : Autoregression
        See `ar`.
    time : str, optional
        Column of a table with the times, which must increase.
    backend : {"auto", "cpu", "reference"}
    threads : int, optional
        Default: one for each core.

    Returns
    -------
    masked array or table
        Of the kind and shape of `x`; columns that are no series are copied. The first values of each series, as many as
        its order, are null: masked in arrays, NaN in pandas frames.

    Raises
    ------
    DataError
        If a series is missing, or has a gap or an infinite value.
    """
    having("fit", fit, "n_times", "the result of jtgpu.series.ar")
    table = series_table(x)
    data = read_series(x, time, None if table is None else list(fit.names))
    out = residuals(data, fit, backend, threads)
    order = fit.order.reshape(-1)
    hidden = np.arange(out.shape[1]) < order[:, None]
    if table is None:
        return np.ma.MaskedArray(out, hidden).reshape(*data.shape, out.shape[1])
    columns: dict[str, Any] = {name: table.carried(name) for name in table.names}
    columns |= {n: np.ma.MaskedArray(e, h) if h.any() else e for n, e, h in zip(data.names, out, hidden, strict=True)}
    return like_input(x, table, columns, same_rows=True)


def residuals(
    data: SeriesData, fit: Autoregression, backend: EngineName = "auto", threads: int | None = None
) -> NDArray[np.float64]:
    """Residuals as a (B, T) array, zero at the first times; see `whiten`."""
    if len(data.values) != len(fit.names):
        raise DataError(f"x has {len(data.values)} series, but the models are of {len(fit.names)}")
    bad = np.argwhere(~np.isfinite(data.values))
    if len(bad):
        raise DataError(missing_value(data, *map(int, bad[0])))
    order, mean = fit.order.reshape(-1), fit.mean.reshape(-1)
    coef = np.ascontiguousarray(fit.coef.reshape(len(order), fit.coef.shape[-1]))
    out = np.empty_like(data.values)
    if resolve_backend(backend, has_gpu=False) == "reference":
        for s in range(len(out)):
            out[s] = reference.residuals(data.values[s], mean[s], coef[s, : order[s]])
    else:
        on_threads(
            lambda some: _lags.residuals(data.values[some], mean[some], coef[some], order[some], out[some]),
            len(out), out.shape[1] * (1 + coef.shape[1]), threads,
        )  # fmt: skip
    return out


def like_input(x: Any, table: Table, columns: Mapping[str, Any], *, same_rows: bool) -> Any:
    """A table of the kind of `x`: a frame of its library, a mapping of columns, or a list of mappings."""
    if table.library is None and table.index is None:
        if isinstance(x, (list, tuple)):
            cells = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns.values()]
            return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]
        return dict(columns)
    return make_frame(columns, table.library, cases=table if same_rows else None)
