"""The exact posterior under the order-modular prior on a GPU: cuda/learn/exact_orders.cu.

The sums over the parent sets of all variables take 8 n 2**(n-1) bytes, 30 GB for 28 variables. They are needed for the
orders of all sets, and for draws; parent sets then take a table of one variable at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...device.context import Device, Memory, device_numbers, open_device
from ...device.driver import Arguments, loaded_kernels
from ...device.structs import struct
from ...errors import NetworkError, TableTooLarge, format_bytes
from .exact import ExactPosterior, require_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Memory, kernels and sums over sets of an exact posterior on one GPU: cuda/learn/set_sums.cu.

SHARE = 0.9  # of the device's free memory that may be used
THREADS = 256
TILE = 12  # bits of a block's cells
LINE = 4  # lowest bits that a block reads together: 128 bytes
CELL_BYTES = 12  # of a number in shared memory

SET_SUMS = struct("learn/set_sums.cu", "SetSums")
WEIGHTS = struct("learn/set_sums.cu", "Weights")
KERNELS = {
    "set_sums": ("sum_sets", "max_sets", "clear_sets", "place_sets"),
    "exact_orders": ("order_level", "best_level", "predecessors", "order_families", "best_order", "draw_orders"),
    "exact_partitions": (
        "forward_level", "join_splits", "first_parts", "last_parts", "root_parts", "backward_level", "fold_shares",
        "gather_shares", "partition_families", "draw_parts",
    ),
}  # fmt: skip


def first_device(devices: Any) -> Device:
    """The first of some GPUs, which computes exact posteriors."""
    return open_device() if devices is None else open_device(device_numbers(devices)[0])


def require_memory(device: Device, n: int, most: int, needed: Callable[[int], int]) -> None:
    """Check that the posterior of n variables fits a device."""
    # n, most: Number of variables, and the largest one that is supported
    # needed: Bytes for a number of variables
    with device.active():
        limit = int(SHARE * device.free_memory())
    if n <= most and needed(n) <= limit:
        return
    fits = min(n, most)
    while fits and needed(fits) > limit:
        fits -= 1
    raise TableTooLarge(
        f"the exact posterior of {n} variables needs {format_bytes(needed(n))} of the memory of {device.name}, which "
        f"has {format_bytes(limit)} free; {fits} variables fit", 1 << n, needed(n), limit,
    )  # fmt: skip


class Workspace:
    """Used as a context manager, inside which the device is active; frees all its memory at the end."""

    def __init__(self, device: Device):
        self.device = device
        self._memory = Memory(device)
        self._current: Any = None

    def __enter__(self) -> Workspace:
        self._current = self.device.active()
        self._current.__enter__()
        try:
            self.stream = self.device.stream()
            self._kernels = {
                name: loaded_kernels(self.device, f"learn/{file}", names)
                for file, names in KERNELS.items()
                for name in names
            }
        except BaseException:
            self._current.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._memory.close()
        finally:
            self._current.__exit__(None, None, None)

    def put(self, array: NDArray[Any]) -> int:
        """Address of a copy of an array."""
        return self._memory.put(np.ascontiguousarray(array), self.stream)

    def empty(self, n_bytes: int) -> int:
        """Address of new memory."""
        return self._memory.empty(n_bytes)

    def get(self, array: NDArray[Any], address: int) -> NDArray[Any]:
        """Fill in an array from the device."""
        self.device.download(array, address, self.stream)
        self.stream.synchronize()
        return array

    def launch(
        self, name: str, n_blocks: int, arguments: NDArray[Any], *, threads: int = THREADS, shared: int = 0
    ) -> None:
        """Queue a kernel with the present contents of its arguments."""
        kernels = self._kernels[name]
        if shared > 40 << 10:  # beyond 48 KB together with the static arrays
            kernels.allow_shared(name, shared)
        kernels.launch(name, n_blocks, threads, self.stream, Arguments(arguments), shared=shared)

    def clear(self, address: int, n_cells: int) -> None:
        """Fill a table with -inf."""
        weights = np.zeros(1, WEIGHTS)
        weights["tables"], weights["n_cells"] = address, n_cells
        self.launch("clear_sets", min(-(-n_cells // THREADS), 64 * self.device.multiprocessors), weights)

    def place(self, address: int, shape: tuple[int, int, int], log_weights: int, masks: int, members: bool) -> None:
        """Fill tables with the weights of parent sets, and -inf elsewhere."""
        # address: Of (n, 2**k) float64, or (n, n, 2**n) if `members`: weights of the sets that contain each variable
        # shape: (int, int, int): n, k, and the number of parent sets
        # log_weights, masks: Addresses
        n, k, n_sets = shape
        n_tables = n * n if members else n
        self.clear(address, n_tables << k)
        weights = np.zeros(1, WEIGHTS)
        weights["tables"], weights["log_weights"], weights["masks"] = address, log_weights, masks
        weights["n"], weights["k"], weights["n_sets"], weights["of_members"] = n, k, n_sets, members
        self.launch("place_sets", -(-n * n_sets // THREADS), weights)

    def transform(self, address: int, n_tables: int, k: int, *, maxima: bool = False, supersets: bool = False) -> None:
        """Replace the value of each set by the sum, or the maximum, over its subsets, or the sum over its supersets."""
        s = np.zeros(1, SET_SUMS)
        s["tables"], s["k"], s["is_superset"] = address, k, supersets
        first = 0
        while first < k:
            low = min(LINE, first)
            width = min(TILE - low, k - first)
            s["first"], s["width"], s["low"] = first, width, low
            size = 1 << (width + low)
            name, n_bytes = ("max_sets", 8) if maxima else ("sum_sets", CELL_BYTES)
            self.launch(name, n_tables << (k - width - low), s, shared=n_bytes * size)
            first += width


MAX_VARIABLES = 30
LOW = 5  # variables by which the sets of a warp differ
WARPS = THREADS // 32

ORDER_SUMS = struct("learn/exact_orders.cu", "OrderSums")


class OrderDraws(NamedTuple):
    """Orders drawn from the posterior."""

    before: NDArray[np.int64]  # (n, D) predecessors of each variable, as squeezed bits
    # (n, D) ln of the total weight of their parent sets, relative to the largest weight of the variable
    totals: NDArray[np.float64]


def bytes_for(n: int, n_sets: int, n_tables: int = 5) -> int:
    """Memory for n variables with parent sets in `n_tables` tables more than the sums."""
    return 8 * ((n + n_tables) << max(n - 1, 0)) + 24 * n * n_sets


def orders_on_gpu(
    device: Device, log_weights: NDArray[np.float64], masks: NDArray[np.int64], u: NDArray[np.float64]
) -> tuple[ExactPosterior, OrderDraws]:
    """The posterior as `exact_by_orders` computes it, and draws."""
    # log_weights (n, M), masks (M,)
    # u: (n, D) random numbers of the draws
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
        draws = _draws(w, s, u)
        s["log_total"], s["table"] = log_total, w.empty(8 << (n - 1))
        weights, families = int(s["log_weights"][0]), w.empty(log_weights.nbytes)
        for v in range(n):
            s["v"], s["log_weights"], s["families"] = v, weights + 8 * n_sets * v, families + 8 * n_sets * v
            w.launch("predecessors", -(-(1 << (n - 1)) // THREADS), s)
            w.transform(int(s["table"][0]), 1, n - 1, supersets=True)
            w.launch("order_families", -(-n_sets // THREADS), s)
        posteriors = w.get(np.empty_like(log_weights), families)
    return ExactPosterior(posteriors, log_total + math.fsum(top[:, 0])), draws


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
    draws = OrderDraws(np.zeros(u.shape, np.int64), np.zeros(u.shape))
    if u.size:
        s["n_draws"], s["u"] = u.shape[1], w.put(u)
        s["before"], s["totals"] = w.empty(u.nbytes), w.empty(u.nbytes)
        w.launch("draw_orders", -(-u.shape[1] // WARPS), s)
        w.get(draws.before, int(s["before"][0]))
        w.get(draws.totals, int(s["totals"][0]))
    return draws
