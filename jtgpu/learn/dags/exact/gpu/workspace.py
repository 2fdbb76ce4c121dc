"""Memory, kernels and sums over sets of an exact posterior on one GPU: cuda/learn/set_sums.cu."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from .....device.context import Device, device_numbers, open_device
from .....device.driver import Arguments, loaded_kernels
from .....device.memory import Memory
from .....errors import TableTooLarge, format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARE = 0.9  # of the device's free memory that may be used
THREADS = 256
TILE = 12  # bits of a block's cells
LINE = 4  # lowest bits that a block reads together: 128 bytes
CELL_BYTES = 12  # of a number in shared memory

SET_SUMS = np.dtype(
    [("tables", np.uint64)]
    + [(name, np.uint32) for name in ("k", "first", "width", "low", "is_superset", "pad")]
)  # fmt: skip
WEIGHTS = np.dtype(
    [(name, np.uint64) for name in ("tables", "log_weights", "masks", "n_cells")]
    + [(name, np.uint32) for name in ("n", "k", "n_sets", "of_members")]
)  # fmt: skip
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
    # raises TableTooLarge: With the number of variables that fits.
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
