"""Exact posteriors over the structures of few variables: of every parent set, and the evidence."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....errors import NetworkError, TableTooLarge, format_bytes
from ....util.loops import loops
from ....util.system import cores, free_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

_orders = loops("jtgpu.learn.dags.loops.exact_orders")
_set_sums = loops("jtgpu.learn.dags.loops.set_sums")
_partitions = loops("jtgpu.learn.dags.loops.exact_partitions")

MAX_BY_ORDERS, MAX_BY_PARTITIONS = 24, 15  # variables: seconds or minutes


class ExactPosterior(NamedTuple):
    """The posterior of every family."""

    # (n, M) ndarray of float64: Probability of each parent set of each variable, in the order of a `ScoreTable`
    families: NDArray[np.float64]
    # ln of the sum of the weights of all graphs: of P(data | graph) if the prior is uniform and not normalised
    log_evidence: float
    # set_sums, order_sums: ndarray of float64: Of `exact_by_orders`, for `jtgpu.learn.dags.exact.draws`: ln of the
    #     total weight of the parent sets of each variable within each set of the others, (n, 2**(n-1)), relative to the
    #     largest weight; and of the orders of each set of variables, (2**n,)
    set_sums: NDArray[np.float64] | None = None
    order_sums: NDArray[np.float64] | None = None


def exact_by_orders(
    log_weights: NDArray[np.float64],
    masks: NDArray[np.int64],
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> ExactPosterior:
    """The posterior under the order-modular prior: each graph counts once for each order that it allows.

    The algorithm of Koivisto and Sood (2004), in n^2 2^n additions of logarithmic numbers.
    """
    # log_weights: (n, M) ndarray of float64: ln weight of each parent set of each variable
    # masks: (M,) ndarray of int64: The parent sets as bits; bits above the child are squeezed down by one
    # memory_limit: In bytes. Default: 80 % of the free memory.
    # threads: The result does not depend on it
    # raises TableTooLarge: If there are too many variables, or they need too much memory.
    # raises NetworkError: If no graph has a weight above 0.
    n = len(log_weights)
    half = 1 << max(n - 1, 0)
    threads = threads or cores()
    _require_size(n, MAX_BY_ORDERS, 8 * half * (n + 4 + 4 * threads), memory_limit)
    top = log_weights.max(axis=1, keepdims=True)
    require_finite(top)
    scaled = np.ascontiguousarray(log_weights - top)
    sums, found = np.empty((n, half)), np.empty_like(scaled)
    forward, backward = np.empty(2 * half), np.empty(2 * half)
    with ThreadPoolExecutor(threads, "jtgpu-learn") as pool:
        list(pool.map(lambda v: _set_sums.log_sums_of_subsets(scaled[v], masks, sums[v]), range(n)))
        _orders.order_sums(sums, forward, backward)
        if forward[-1] == -math.inf:
            raise NetworkError("no graph satisfies the constraints")
        list(pool.map(lambda v: _orders.set_posteriors(v, scaled[v], masks, forward, backward, found[v]), range(n)))
    return ExactPosterior(found, float(forward[-1] + math.fsum(top[:, 0])), sums, forward)


def exact_by_partitions(
    log_weights: NDArray[np.float64], masks: NDArray[np.int64], *, memory_limit: int | None = None
) -> ExactPosterior:
    """The posterior under a modular prior: each graph counts once.

    Sums over the ordered partitions of all graphs, in about 2 * 4^n additions; nothing is subtracted, so no digits are
    lost. Parameters and errors as for `exact_by_orders`.
    """
    n = len(log_weights)
    _require_size(n, MAX_BY_PARTITIONS, 16 * (2 * 3**n + 2 * n * n * 2**n), memory_limit)
    top = log_weights.max(axis=1, keepdims=True)
    require_finite(top)
    found = np.empty_like(log_weights)
    log_z = _partitions.partition_posteriors(np.ascontiguousarray(log_weights - top), masks, found)
    if log_z == -math.inf:
        raise NetworkError("no graph satisfies the constraints")
    return ExactPosterior(found, float(log_z + math.fsum(top[:, 0])))


def _require_size(n: int, most: int, needed: int, limit: int | None) -> None:
    limit = int(0.8 * free_memory()) if limit is None else limit
    if n > most or needed > limit:
        reason = f"at most {most} are supported" if n > most else f"the limit is {format_bytes(limit)}"
        raise TableTooLarge(
            f"the exact posterior of {n} variables needs {format_bytes(needed)}; {reason}", 1 << n, needed, limit
        )


def require_finite(top: NDArray[np.float64]) -> None:
    """Raise `NetworkError` if a variable has no possible parent set."""
    if not np.isfinite(top).all():
        raise NetworkError("the constraints leave a variable without a possible set of parents")
