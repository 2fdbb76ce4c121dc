"""Autoregressive models of many series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..device.arrays import device_array
from ..errors import ArgumentError, DataError
from ..inference.results.frames import table_like
from ..util.arguments import check_keywords, choice, flag, having, whole_number
from ..util.arrays import Floats, Ints
from ..util.elementary import log, logs
from ..util.equality import ByValue
from ..util.loops import loops
from ..util.options import Devices, EngineName, OnProblem
from . import gpu_batch as batch
from . import gpu_run as run
from . import workers as reference
from .gpu_batch import BatchResult
from .inputs import DeviceSeries, SeriesData, read_series, series_table
from .toeplitz import recurse
from .workers import missing_value, moments, on_threads, resolve_backend

TINY = 1e-100  # squares of smaller numbers lose digits, or are 0


@check_keywords()
@dataclass(frozen=True, eq=False)
class Autoregression(ByValue):
    """Autoregressive models ``x[t] - mean = sum_i coef[i] (x[t-1-i] - mean) + e[t]``, one for each series.

    The leading axes of the arrays are those of the series: none for one series of shape (T,), (B,) for a table with B
    columns.

    Attributes
    ----------
    names : tuple of str
        Names of the series; ``x0``, ``x1`` ... for arrays.
    n_times : int
        Length of the series.
    order : (...) ndarray of int64
    coef : (..., P) ndarray of float64
        P is the largest order; zero beyond a series' order.
    mean : (...) ndarray of float64
        What was subtracted; zero without `demean`.
    partial : (..., max_order+1) ndarray of float64
        Partial autocorrelations at lags 0..max_order.
    sigma2 : (..., max_order+1) ndarray of float64
        Variance of the prediction error of orders 0..max_order; it can underflow for values below 1e-154.
    stops_at : (...) ndarray of int64
        First order that does not exist, or -1; see `jtgpu.series.Predictors`. 0 for series that are constant or have
        values that are missing or infinite.
    backend : {"cpu", "gpu", "reference"}
        What fitted the models.
    """

    names: tuple[str, ...]
    n_times: int
    order: Ints
    coef: Floats
    mean: Floats
    partial: Floats
    sigma2: Floats
    stops_at: Ints
    backend: str = "cpu"

    @property
    def variance(self) -> Floats:
        """Variance of the prediction error of each series' model, (...)."""
        variance: Floats = np.take_along_axis(self.sigma2, self.order[..., None], axis=-1)[..., 0]
        return variance

    def __repr__(self) -> str:
        orders = np.unique(self.order)
        span = f"{orders[0]}" if len(orders) == 1 else f"{orders[0]} to {orders[-1]}" if len(orders) else "none"
        flagged = int(np.count_nonzero(self.stops_at >= 0))
        return f"<Autoregression: {len(self.names)} series of {self.n_times}, order {span}, {flagged} flagged>"


def ar(  # noqa: PLR0913
    x: object, order: Literal["bic", "aic"] | int = "bic", max_order: int = 16, *, demean: bool = True,
    on_error: OnProblem = "error", time: str | None = None, backend: EngineName = "auto", threads: int | None = None,
    devices: Devices = None,
) -> Autoregression:  # fmt: skip
    """Fit autoregressive models by the Yule-Walker equations with biased autocovariances.

    Parameters
    ----------
    x : (..., T) array, or table
        Series; a table (data frame, mapping of columns, list of mappings) has a column for each. A float32 or float64
        array in a GPU's memory (``__cuda_array_interface__`` or DLPack) is read there.
    order : {"bic", "aic"} or int
        An order for all series, or how each series' order is chosen: the smallest ``T ln sigma2[m] + m ln T`` (BIC) or
        ``T ln sigma2[m] + 2 m`` (AIC), of equals the lowest order.
    max_order : int
        Highest order; not used if `order` is a number.
    demean : bool
        Subtract each series' mean first.
    on_error : {"error", "flag"}
        What to do with a series that is constant, has a missing or infinite value, or has no predictor of some order:
        raise `DataError`, or set `Autoregression.stops_at` and use the last good order. The other series are not
        affected.
    time : str, optional
        Column of a table with the times, which must increase. Without it, the index of a pandas frame must increase.
    backend : {"auto", "cpu", "reference"}
    threads : int, optional
        Default: one for each core. Results do not depend on it.

    Returns
    -------
    Autoregression

    Raises
    ------
    DataError
        Also if the series are not longer than the highest order.

    Examples
    --------
    >>> import numpy as np
    >>> from jtgpu import series
    >>> fit = series.ar(np.sin(np.arange(200) ** 2), order=2)
    >>> fit.coef.shape, fit.partial.shape
    ((2,), (3,))
    """
    if isinstance(order, str):
        choice("order", order, ("bic", "aic"))
        p = whole_number("max_order", max_order, 0)
    else:
        p = whole_number("order", order, 0)
    choice("on_error", on_error, ("error", "flag"))
    source = device_array(x)
    backend = resolve_backend(backend, on_device=source is not None)
    if source is not None and p <= batch.HIGHEST:
        if time is not None:
            raise ArgumentError("time= names a column; an array has none")
        data: SeriesData = DeviceSeries(source)
    else:
        data = read_series(x if source is None else run.download(source), time)
    n_times = data.n_times
    if n_times <= p:
        lower = "max_order" if isinstance(order, str) else "order"
        raise DataError(f"series of {n_times} values have no model of order {p}; use a lower {lower}")
    tiny = _magnify(data)
    demean = flag("demean", demean)
    if backend != "gpu" or p > batch.HIGHEST:
        models = _fit(data, p, order, demean, backend, threads, devices)
    elif isinstance(data, DeviceSeries):
        models = run.fit_resident(data.source, p, order, demean)
    else:
        models = run.fit(data.values, p, order, demean, devices)
    if tiny.any():
        models = models._replace(
            mean=np.ldexp(models.mean, tiny), sigma2=np.ldexp(models.sigma2, 2 * tiny[:, None])
        )
    for s in np.flatnonzero(models.stops_at >= 0)[: 1 if on_error == "error" else 0]:
        raise DataError(_why(data, models, int(s)))
    shape, largest = data.shape, models.order.max(initial=0)
    return Autoregression(
        tuple(data.names), n_times, models.order.reshape(shape), models.coef[:, :largest].reshape(*shape, largest),
        models.mean.reshape(shape), models.partial.reshape(*shape, p + 1), models.sigma2.reshape(*shape, p + 1),
        models.stops_at.reshape(shape), backend,
    )  # fmt: skip


def _magnify(data: SeriesData) -> Ints:
    """Multiply series whose squares underflow by powers of 2, exactly; the exponents of what they were divided by."""
    if not data.values.size:
        return np.zeros(data.n_series, np.int64)
    largest = np.maximum(data.values.max(axis=1), -data.values.min(axis=1))
    exponent = np.where((largest > 0) & (largest < TINY), np.frexp(largest)[1], 0).astype(np.int64)
    if exponent.any():
        data.values = np.ldexp(data.values, -exponent[:, None])
    return exponent


def _fit(
    data: SeriesData, p: int, order: str | int, demean: bool, backend: EngineName, threads: int | None,
    devices: Devices,
) -> BatchResult:
    """Models of orders up to p, from autocovariances that the CPU computes."""
    lags = moments(data, p + 1, demean, "cpu" if backend == "gpu" else backend, threads)
    n, n_times = data.values.shape
    r = lags.sums / n_times
    predictors = recurse(r, np.full(n, p), backend, threads, devices)
    last = np.where(predictors.stops_at < 0, p, np.maximum(predictors.stops_at - 1, 0))
    chosen = _best(predictors.sigma2, last, n_times, order) if isinstance(order, str) else last
    coef = predictors.coef
    if (chosen < last).any():
        coef = recurse(r, chosen, backend, threads, devices).coef
    return BatchResult(
        coef, predictors.partial, predictors.sigma2, lags.mean, lags.sums[:, 0], lags.bad, chosen,
        predictors.stops_at,
    )  # fmt: skip


def _best(sigma2: Floats, last: Ints, n_times: int, criterion: str) -> Ints:
    """The order of each series that has the smallest value of a criterion."""
    m = np.arange(sigma2.shape[1])
    penalty = log(n_times) if criterion == "bic" else 2.0
    values = n_times * logs(np.where(sigma2 > 0, sigma2, 1.0)) + penalty * m
    chosen: Ints = np.where(m <= last[:, None], values, np.inf).argmin(axis=1)
    return chosen


def _why(data: SeriesData, models: BatchResult, s: int) -> str:
    """Why a series has no model of an order."""
    order = int(models.stops_at[s])
    if models.bad[s] >= 0:
        return missing_value(data, s, int(models.bad[s])) + ", or use on_error='flag'"
    if order > 0:
        return (
            f"{data.locate(s)} has no model of order {order}: its partial autocorrelation there is not below 1 in "
            f"magnitude, or the remaining variance is rounding; use max_order={order - 1} or on_error='flag'"
        )
    what = "is constant" if models.power[s] == 0 else "has values whose squares overflow"
    return f"{data.locate(s)} {what}; leave it out, or use on_error='flag'"


# Residuals of autoregressive models.

_lags = loops("jtgpu.series.lag_loops")


def whiten(
    x: object, fit: Autoregression, *, time: str | None = None, backend: EngineName = "auto", threads: int | None = None
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
    return table_like(x, table, columns, table.index)


def residuals(
    data: SeriesData, fit: Autoregression, backend: EngineName = "auto", threads: int | None = None
) -> Floats:
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
