"""The exact posterior under the order-modular prior on a GPU: cuda/learn/exact_orders.cu.

The sums over the parent sets of all variables take 8 n 2**(n-1) bytes, 30 GB for 28 variables. They are needed for the
orders of all sets, and for draws; parent sets then take a table of one variable at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .....errors import NetworkError
from ..posteriors import ExactPosterior, require_finite
from .workspace import THREADS, Workspace, require_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .....device.context import Device

MAX_VARIABLES = 30
LOW = 5  # variables by which the sets of a warp differ
WARPS = THREADS // 32

ORDER_SUMS = np.dtype(
    [
        (name, np.uint64)
        for name in (
            "sums", "forward", "backward", "table", "log_weights", "masks", "families", "order", "u", "before",
            "totals",
        )
    ]
    + [("log_total", np.float64)]
    + [(name, np.uint32) for name in ("n", "level", "v", "n_sets", "n_draws", "pad")]
)  # fmt: skip


class OrderDraws(NamedTuple):
    """Orders drawn from the posterior."""

    before: NDArray[np.int64]  # (n, D) ndarray of int64: Predecessors of each variable, as squeezed bits
    # (n, D) ndarray of float64: ln of the total weight of their parent sets, relative to the largest weight of the
    #     variable
    totals: NDArray[np.float64]


def bytes_for(n: int, n_sets: int, n_tables: int = 5) -> int:
    """Memory for n variables with parent sets in `n_tables` tables more than the sums."""
    return 8 * ((n + n_tables) << max(n - 1, 0)) + 24 * n * n_sets


def orders_on_gpu(
    device: Device, log_weights: NDArray[np.float64], masks: NDArray[np.int64], u: NDArray[np.float64]
) -> tuple[ExactPosterior, OrderDraws]:
    """The posterior as `exact_by_orders` computes it, and draws."""
    # log_weights: (n, M) ndarray of float64
    # masks: (M,) ndarray of int64
    # u: (n, D) ndarray of float64: Random numbers of the draws
    # raises TableTooLarge: If there are too many variables for the device's memory.
    # raises NetworkError: If no graph has a weight above 0.
    n, n_sets = log_weights.shape
    require_memory(device, n, MAX_VARIABLES, lambda m: bytes_for(m, n_sets))
    top = log_weights.max(axis=1, keepdims=True)
    require_finite(top)
    with Workspace(device) as w:
        s = _tables(w, log_weights - top, masks, maxima=False)
        forward = np.empty(1)
        every = (1 << n) - 1
        s["backward"] = w.empty(8 << n)
        _take_levels(w, s, "order_level")
        log_total = float(w.get(forward, int(s["forward"][0]) + 8 * every)[0])
        if log_total == -math.inf:
            raise NetworkError("no graph satisfies the constraints")
        found = _draws(w, s, u)
        s["log_total"], s["table"] = log_total, w.empty(8 << (n - 1))
        weights, families = int(s["log_weights"][0]), w.empty(log_weights.nbytes)
        for v in range(n):
            s["v"], s["log_weights"], s["families"] = v, weights + 8 * n_sets * v, families + 8 * n_sets * v
            w.launch("predecessors", -(-(1 << (n - 1)) // THREADS), s)
            w.transform(int(s["table"][0]), 1, n - 1, supersets=True)
            w.launch("order_families", -(-n_sets // THREADS), s)
        posteriors = w.get(np.empty_like(log_weights), families)
    return ExactPosterior(posteriors, log_total + math.fsum(top[:, 0])), found


def best_order(device: Device, log_weights: NDArray[np.float64], masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order of the variables whose best graph has the highest weight (Silander and Myllymaki, 2006).

    Parameters and errors as for `orders_on_gpu`.
    """
    n, n_sets = log_weights.shape
    require_memory(device, n, MAX_VARIABLES, lambda m: bytes_for(m, n_sets, 2))
    require_finite(log_weights.max(axis=1))
    with Workspace(device) as w:
        s = _tables(w, log_weights, masks, maxima=True)
        _take_levels(w, s, "best_level")
        highest = np.empty(1)
        if w.get(highest, int(s["forward"][0]) + 8 * ((1 << n) - 1))[0] == -math.inf:
            raise NetworkError("no graph satisfies the constraints")
        s["order"] = w.empty(4 * n)
        w.launch("best_order", 1, s, threads=32)
        return w.get(np.empty(n, np.int32), int(s["order"][0])).astype(np.int64)


def _tables(w: Workspace, log_weights: NDArray[np.float64], masks: NDArray[np.int64], maxima: bool) -> NDArray[np.void]:
    """Sums or maxima over the parent sets within every set of predecessors."""
    n, n_sets = log_weights.shape
    s = np.zeros(1, ORDER_SUMS)
    s["n"], s["n_sets"] = n, n_sets
    s["log_weights"], s["masks"] = w.put(log_weights), w.put(masks)
    s["sums"], s["forward"] = w.empty(8 * n << (n - 1)), w.empty(8 << n)
    at = int(s["sums"][0])
    w.place(at, (n, n - 1, n_sets), int(s["log_weights"][0]), int(s["masks"][0]), members=False)
    w.transform(at, n, n - 1, maxima=maxima)
    return s


def _take_levels(w: Workspace, s: NDArray[np.void], kernel: str) -> None:
    n = int(s["n"][0])
    high = max(n - LOW, 0)
    for level in range(high + 1):
        s["level"] = level
        w.launch(kernel, -(-(1 << high) // WARPS), s)


def _draws(w: Workspace, s: NDArray[np.void], u: NDArray[np.float64]) -> OrderDraws:
    found = OrderDraws(np.zeros(u.shape, np.int64), np.zeros(u.shape))
    if u.size:
        s["n_draws"], s["u"] = u.shape[1], w.put(u)
        s["before"], s["totals"] = w.empty(u.nbytes), w.empty(u.nbytes)
        w.launch("draw_orders", -(-u.shape[1] // WARPS), s)
        w.get(found.before, int(s["before"][0]))
        w.get(found.totals, int(s["totals"][0]))
    return found
