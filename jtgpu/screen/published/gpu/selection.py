"""The published selection kernels on a GPU; see cuda/screen/published/select.cu."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....device.context import Device, open_device
from ....errors import DataError, TableTooLarge, format_bytes
from ...gpu_tree import Launcher

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = "screen/published/select"
SELECT = np.dtype(
    [(n, np.uint64) for n in ("numbers", "lists", "scratch")]
    + [(n, np.uint32) for n in ("m", "d", "k", "first", "blocks", "pad")]
)
THREADS, ROWS, RANKS = 64, 32, 256  # as in select.cu
BLOCKS = 64  # of the multi-block kernels, for one row
BY_THREAD = ("garcia_insertion", "arefin", "single_heap", "cuknn")  # lists are (k, m)
TRANSPOSED = BY_THREAD[:3]  # read the (d, m) matrix
ROOMS = (8, 16, 32, 64, 128)
LARGEST_K = ROOMS[-1]


class SelectionJob:
    """One kernel for one matrix. Used inside ``device.active()``."""
    # numbers: Address of the matrix, (m, d) float32; (d, m) for `TRANSPOSED`
    # raises DataError: If k is larger than a list in shared memory may be.
    # raises TableTooLarge: If the device has too little memory.

    def __init__(self, launcher: Launcher, name: str, numbers: int, m: int, d: int, k: int):
        if k > LARGEST_K:
            raise DataError(f"k must be at most {LARGEST_K} for the published kernels, not {k}")
        self._launcher, self._name, self.m, self.d, self.k = launcher, name, m, d, k
        self._room = next(room for room in ROOMS if room >= k)
        scratch = {"cuknn": m * -(-d // RANKS) * k, "barrientos": m * k * THREADS}.get(name, 0)
        if name.endswith("_mb"):
            scratch = m * BLOCKS * k
        free = launcher.device.free_memory()
        if 4 * (scratch + m * k) > free:
            raise TableTooLarge(
                f"{name} takes {format_bytes(4 * scratch)} of GPU memory, of which {format_bytes(free)} are free",
                needed=4 * scratch,
                limit=free,
            )
        self._lists, self._scratch = launcher.memory.empty(4 * m * k), launcher.memory.empty(4 * scratch)
        self._numbers = numbers

    def queue(self) -> None:
        """Queue the kernel, or the kernels."""
        m, name = self.m, self._name
        if name in TRANSPOSED:
            self._launch(name, -(-m // ROWS), ROWS)
        elif name == "cuknn":
            self._launch("cuknn_rank", m * -(-self.d // RANKS), RANKS)
            self._launch("cuknn_merge", -(-m // ROWS), ROWS)
        elif name.endswith("_mb"):
            one = name[:-3]
            for row in range(m):
                self._launch(one, BLOCKS, THREADS, lists=self._scratch, first=row, blocks=BLOCKS)
            self._launch(one, m, THREADS, numbers=self._scratch, d=BLOCKS * self.k)
        else:
            self._launch(name, m, THREADS)

    def _launch(self, kernel: str, n_blocks: int, threads: int, **fields: int) -> None:
        job = {"numbers": self._numbers, "lists": self._lists, "scratch": self._scratch, "m": self.m, "d": self.d}
        job |= {"k": self.k, "blocks": 1, **fields}
        self._launcher.launch(FILE, kernel, n_blocks, SELECT, job, threads=threads, ways=self._room)

    def lists(self) -> NDArray[np.float64]:
        """The k smallest of each row, ascending, (m, k)."""
        found = self._launcher.get(self._lists, self.m * self.k, np.float32)
        by_row = found.reshape(self.k, self.m).T if self._name in BY_THREAD else found.reshape(self.m, self.k)
        return np.sort(by_row, axis=1).astype(np.float64)


def select_on_gpu(
    name: str, distances: NDArray[np.float64], k: int, device: Device | None = None
) -> NDArray[np.float64]:
    """The k smallest of each row of an (m, d) matrix, rounded to float32, ascending."""
    m, d = distances.shape
    table = distances.astype(np.float32)
    found = device or open_device()
    with found.active():
        launcher = Launcher(found)
        try:
            numbers = launcher.put(np.ascontiguousarray(table.T if name in TRANSPOSED else table))
            job = SelectionJob(launcher, name, numbers, m, d, k)
            job.queue()
            return job.lists()
        finally:
            launcher.close()
