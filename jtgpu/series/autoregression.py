"""Autoregressive models of many series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..util.arguments import choice, flag, whole_number
from .inputs import SeriesData, read_series
from .products import Moments, missing_value, moments
from .toeplitz import recurse

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Autoregression", "ar"]


@dataclass(frozen=True, eq=False)
class Autoregression:
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
        Variance of the prediction error of orders 0..max_order.
    stops_at : (...) ndarray of int64
        First order that does not exist, or -1; see `jtgpu.series.Predictors`. 0 for series that are constant or have
        values that are missing or infinite.
    """

    names: tuple[str, ...]
    n_times: int
    order: NDArray[np.int64]
    coef: NDArray[np.float64]
    mean: NDArray[np.float64]
    partial: NDArray[np.float64]
    sigma2: NDArray[np.float64]
    stops_at: NDArray[np.int64]

    @property
    def variance(self) -> NDArray[np.float64]:
        """Variance of the prediction error of each series' model, (...)."""
        found: NDArray[np.float64] = np.take_along_axis(self.sigma2, self.order[..., None], axis=-1)[..., 0]
        return found

    def __repr__(self) -> str:
        orders = np.unique(self.order)
        span = f"{orders[0]}" if len(orders) == 1 else f"{orders[0]} to {orders[-1]}" if len(orders) else "none"
        flagged = int(np.count_nonzero(self.stops_at >= 0))
        return f"<Autoregression: {len(self.names)} series of {self.n_times}, order {span}, {flagged} flagged>"


def ar(  # noqa: PLR0913
    x: Any, order: str | int = "bic", max_order: int = 16, *, demean: bool = True, on_error: str = "error",
    time: str | None = None, backend: str = "auto", threads: int | None = None,
) -> Autoregression:  # fmt: skip
    """Fit autoregressive models by the Yule-Walker equations with biased autocovariances.

    Parameters
    ----------
    x : (..., T) array, or table
        Series; a table (data frame, mapping of columns, list of mappings) has a column for each.
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
    data = read_series(x, time)
    n, n_times = data.values.shape
    if n_times <= p:
        lower = "max_order" if isinstance(order, str) else "order"
        raise DataError(f"series of {n_times} values have no model of order {p}; use a lower {lower}")
    found = moments(data, p + 1, flag("demean", demean), backend, threads)
    r = found.sums / n_times
    predictors = recurse(r, np.full(n, p), backend, threads)
    for s in np.flatnonzero(predictors.stops_at >= 0)[: 1 if on_error == "error" else 0]:
        raise DataError(_why(data, found, int(s), int(predictors.stops_at[s])))
    last = np.where(predictors.stops_at < 0, p, np.maximum(predictors.stops_at - 1, 0))
    chosen = _best(predictors.sigma2, last, n_times, order) if isinstance(order, str) else last
    coef = predictors.coef
    if (chosen < last).any():
        coef = recurse(r, chosen, backend, threads).coef
    shape = data.shape
    return Autoregression(
        tuple(data.names), n_times, chosen.reshape(shape),
        coef[:, : chosen.max(initial=0)].reshape(*shape, chosen.max(initial=0)), found.mean.reshape(shape),
        predictors.partial.reshape(*shape, p + 1), predictors.sigma2.reshape(*shape, p + 1),
        predictors.stops_at.reshape(shape),
    )  # fmt: skip


def _best(sigma2: NDArray[np.float64], last: NDArray[np.int64], n_times: int, criterion: str) -> NDArray[np.int64]:
    """The order of each series that has the smallest value of a criterion."""
    m = np.arange(sigma2.shape[1])
    penalty = np.log(n_times) if criterion == "bic" else 2.0
    values = n_times * np.log(np.where(sigma2 > 0, sigma2, 1.0)) + penalty * m
    chosen: NDArray[np.int64] = np.where(m <= last[:, None], values, np.inf).argmin(axis=1)
    return chosen


def _why(data: SeriesData, found: Moments, s: int, order: int) -> str:
    """Why a series has no model of an order."""
    if found.bad[s] >= 0:
        return missing_value(data, s, int(found.bad[s])) + ", or use on_error='flag'"
    if order > 0:
        return (
            f"{data.locate(s)} has no model of order {order}: its partial autocorrelation there is not below 1 in "
            f"magnitude, or the remaining variance is rounding; use max_order={order - 1} or on_error='flag'"
        )
    what = "is constant" if found.sums[s, 0] == 0 else "has values whose squares overflow"
    return f"{data.locate(s)} {what}; leave it out, or use on_error='flag'"
