"""Symmetric Toeplitz systems: predictors of all orders, and solutions for right-hand sides."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..device.arrays import device_array
from ..errors import ArgumentError, DataError
from ..util.arguments import check_keywords, choice, whole_number
from ..util.arrays import Floats, Ints
from ..util.loops import loops
from ..util.options import Devices, EngineName, OnProblem
from . import gpu_batch as batch
from . import gpu_run as run
from . import workers as reference
from .inputs import as_floats, as_rows
from .workers import on_threads, resolve_backend

_recursion = loops("jtgpu.series.recursion_loops")

SHORT = 64  # highest order for which systems are computed side by side
NO_RIGHT_SIDE = 0


@check_keywords()
class Predictors(NamedTuple):
    """Linear predictors of orders 0..p.

    Attributes
    ----------
    coef : (..., p) ndarray of float64
        Coefficients of the highest order: ``x[t] = sum_i coef[i] x[t-1-i] + e[t]``. A flagged system has those of its
        last good order, then zeros.
    partial : (..., p+1) ndarray of float64
        Partial autocorrelations (reflection coefficients) at lags 0..p; the first is 1.
    sigma2 : (..., p+1) ndarray of float64
        Variance of the prediction error of orders 0..p; the first is r[0].
    stops_at : (...) ndarray of int64
        First order that does not exist: its partial autocorrelation is not below 1 in magnitude, its variance is at
        most 2**-50 r[0], or one of them is not finite. 0: r[0] is not positive and finite. -1: all orders exist. From
        this order on, `partial` is 0 and `sigma2` that of the last good order.
    """

    coef: Floats
    partial: Floats
    sigma2: Floats
    stops_at: Ints

    def at_order(self, order: int) -> Floats:
        """Coefficients of a lower order, (..., order)."""
        m = whole_number("order", order, 0, self.coef.shape[-1])
        a = np.zeros((*self.coef.shape[:-1], m))
        for i in range(m):
            k = self.partial[..., i + 1, None]
            a[..., :i] -= k * a[..., :i][..., ::-1]
            a[..., i] = k[..., 0]
        return a


def levinson(
    r: object, *, on_error: OnProblem = "flag", backend: EngineName = "auto", threads: int | None = None,
    devices: Devices = None,
) -> Predictors:
    """Linear predictors of all orders from autocovariances, by the recursion of Levinson and Durbin.

    Order m solves ``toeplitz(r[:m]) a = r[1:m+1]``. Batches are computed side by side in vector registers; a system's
    results do not depend on the other systems or on the number of threads, bit for bit.

    Parameters
    ----------
    r : (..., p+1) array
        Autocovariances at lags 0..p. An array in a GPU's memory (``__cuda_array_interface__`` or DLPack) is read there.
    on_error : {"flag", "error"}
        What to do with a system of which an order does not exist: set `Predictors.stops_at`, or raise `DataError`.
    backend : {"auto", "cpu", "gpu", "reference"}
        ``"auto"``: the GPU for arrays that are in its memory, otherwise the CPU.
    threads : int, optional
        Default: one for each core.
    devices : "all" or sequence of int, optional
        GPUs that share a batch from the host. Default: the best one.

    Returns
    -------
    Predictors

    Examples
    --------
    >>> from jtgpu import series
    >>> series.levinson([1.0, 0.5, 0.25]).coef.tolist()
    [0.5, 0.0]
    """
    source = device_array(r)
    backend = resolve_backend(backend, on_device=source is not None)
    choice("on_error", on_error, ("flag", "error"))
    values = as_floats("r", r) if source is None else source
    if not values.shape or not values.shape[-1]:
        raise ArgumentError("r must have the autocovariance at lag 0 at least; its last axis is empty")
    front, p = values.shape[:-1], values.shape[-1] - 1
    if source is not None and p <= batch.HIGHEST:
        predictors = _empty(math.prod(front), p)
        run.predict_resident(source, predictors)
    else:
        flat = as_rows(values if isinstance(values, np.ndarray) else run.download(values))
        predictors = recurse(flat, np.full(len(flat), p), backend, threads, devices)
    stopped = np.flatnonzero(predictors.stops_at >= 0)
    if on_error == "error" and len(stopped):
        first = stopped[0]
        raise DataError(f"system {first} has no predictor of order {predictors.stops_at[first]}; see stops_at")
    return Predictors(
        predictors.coef.reshape(*front, p),
        predictors.partial.reshape(*front, p + 1),
        predictors.sigma2.reshape(*front, p + 1),
        predictors.stops_at.reshape(front),
    )


def _empty(n: int, p: int) -> Predictors:
    """Predictors of n systems, not set."""
    memory = np.empty(n * (3 * p + 2))  # one array: the system provides large ones faster
    coef, rest = memory[: n * p].reshape(n, p), memory[n * p :].reshape(2, n, p + 1)
    return Predictors(coef, rest[0], rest[1], np.empty(n, np.int64))


def recurse(r: Floats, order: Ints, backend: str, threads: int | None, devices: Devices = None) -> Predictors:
    """`levinson` of a C-contiguous (B, p+1) array; `order`: (B,), of the coefficients, and where results end."""
    n, p = r.shape[0], r.shape[1] - 1
    predictors = _empty(n, p)
    if backend == "gpu":
        run.predict(r, order, predictors, devices)
        return predictors
    if backend == "reference":
        for s in range(n):
            one = reference.predict(r[s], int(order[s]))
            predictors.coef[s], predictors.partial[s], predictors.sigma2[s], predictors.stops_at[s] = one
        return predictors

    def work(some: slice) -> None:
        out = [a[some] for a in predictors]
        if p <= SHORT:
            _recursion.recurse_lanes(r[some], order[some], *out)
        else:
            none = np.empty((len(out[0]), NO_RIGHT_SIDE, p + 1))
            _recursion.recurse_each(r[some], order[some], none, True, none.copy(), *out)

    on_threads(work, n, p * p + 8, threads)
    return predictors


def solve_toeplitz(
    c: object, b: object, *, backend: EngineName = "auto", threads: int | None = None, devices: Devices = None
) -> Floats:
    """Solve ``toeplitz(c) x = b`` for symmetric Toeplitz matrices, with the shapes of `scipy.linalg.solve_toeplitz`.

    Parameters
    ----------
    c : (..., N) array
        First columns, which are the first rows, too. For other Toeplitz matrices use SciPy's function.
    b : (N,) or (..., N, K) array
        Right-hand sides. Axes in front are broadcast.
    backend : {"auto", "cpu", "gpu", "reference"}
        ``"auto"``: the GPU for arrays that are in its memory, otherwise the CPU.
    threads : int, optional
        Default: one for each core.
    devices : "all" or sequence of int, optional
        GPUs that share a batch from the host. Default: the best one.

    Returns
    -------
    x : ndarray of float64
        (..., N) if `b` has one axis, else (..., N, K).

    Raises
    ------
    DataError
        For shapes that do not fit, values that are not finite, and matrices with a leading minor that is singular to
        working precision.

    Examples
    --------
    >>> import jtgpu
    >>> jtgpu.series.solve_toeplitz([2.0, 1.0], [3.0, 3.0]).tolist()
    [1.0, 1.0]
    """
    if isinstance(c, tuple) and len(c) == 2 and all(np.ndim(part) for part in c):
        raise ArgumentError(
            "c is a pair of a column and a row; use scipy.linalg.solve_toeplitz for matrices that are not symmetric"
        )
    column, right = as_floats("c", c), as_floats("b", b)
    is_vector, n = right.ndim == 1, column.shape[-1]
    right = right[:, None] if is_vector else right
    if right.shape[-2] != n:
        raise DataError(f"c has {n} entries, but b has {right.shape[-2]} rows")
    front: tuple[int, ...] = ()
    if column.ndim > 1 or right.ndim > 2:
        try:
            front = np.broadcast_shapes(column.shape[:-1], right.shape[:-2])
        except ValueError:
            raise DataError(f"c of shape {column.shape} and b of shape {right.shape} cannot be broadcast") from None
        column = np.broadcast_to(column, (*front, n))
        right = np.broadcast_to(right, (*front, *right.shape[-2:]))
    for name, array in (("c", column), ("b", right)):
        if not np.isfinite(array).all():
            at = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
            raise DataError(f"{name} has a value that is not finite at index {at}")
    c2, b3 = as_rows(column), right.reshape(math.prod(front), n, right.shape[-1])
    b3 = np.require(b3.transpose(0, 2, 1), requirements=["C", "W"])
    x = np.empty_like(b3)
    stops_at = np.full(len(c2), -1)
    if n:
        _solve(c2, b3, x, stops_at, resolve_backend(backend), threads, devices)
    bad = np.flatnonzero(stops_at >= 0)
    if len(bad):
        raise DataError(
            f"system {bad[0]}: the leading minor of size {stops_at[bad[0]] + 1} is singular to working precision; "
            "numpy.linalg.solve uses pivots"
        )
    solution = x.transpose(0, 2, 1).reshape(*front, n, right.shape[-1])
    return np.ascontiguousarray(solution[..., 0] if is_vector else solution)


def _solve(
    c: Floats, b: Floats, x: Floats, stops_at: Ints, backend: str,
    threads: int | None, devices: Devices,
) -> None:  # fmt: skip
    """Solve (B, N) systems for (B, K, N) right-hand sides."""
    n = c.shape[1]
    if backend == "gpu":
        run.solve(c, b, x, stops_at, devices)
        return
    if backend == "reference":
        for s in range(len(c)):
            x[s], stops_at[s] = reference.solve(c[s], b[s])
        return

    def work(some: slice) -> None:
        size = len(c[some])
        scratch = np.empty((size, n - 1)), np.empty((size, n)), np.empty((size, n))
        _recursion.recurse_each(c[some], np.full(size, n - 1), b[some], False, x[some], *scratch, stops_at[some])

    on_threads(work, len(c), (1 + b.shape[1]) * n * n, threads)
