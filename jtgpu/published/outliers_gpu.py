"""The published solving set on a GPU (A4, ``CUDA_ODPSolvingSet``); see cuda/screen/published/solving.cu."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device.context import Device, open_device
from ..device.structs import struct
from ..errors import DataError, TableTooLarge, format_bytes
from ..screen.gpu_tree import Launcher
from ..util.arguments import choice
from ..util.arrays import Floats, Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The published selection kernels on a GPU; see cuda/screen/published/select.cu.

FILE = "screen/published/select"
SELECT = struct("screen/published/select.cu", "Select")
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

    def lists(self) -> Floats:
        """The k smallest of each row, ascending, (m, k)."""
        lists = self._launcher.get(self._lists, self.m * self.k, np.float32)
        by_row = lists.reshape(self.k, self.m).T if self._name in BY_THREAD else lists.reshape(self.m, self.k)
        return np.sort(by_row, axis=1).astype(np.float64)


def select_on_gpu(name: str, distances: Floats, k: int, device: Device | None = None) -> Floats:
    """The k smallest of each row of an (m, d) matrix, rounded to float32, ascending."""
    m, d = distances.shape
    table = distances.astype(np.float32)
    gpu = device or open_device()
    with gpu.active():
        launcher = Launcher(gpu)
        try:
            numbers = launcher.put(np.ascontiguousarray(table.T if name in TRANSPOSED else table))
            job = SelectionJob(launcher, name, numbers, m, d, k)
            job.queue()
            return job.lists()
        finally:
            launcher.close()


SOLVING_SET = "screen/published/solving"
SOLVING = struct("screen/published/solving.cu", "Solving")
SOLVING_SET_ROWS, SOLVING_SET_THREADS, SOLVING_SET_BLOCKS = 128, 64, 64
WIDTH = 1 << 21  # columns of the matrix
# mode -> kernels after `solving_rows`; the first three read a matrix of distances
MODES = {
    "kato": ("solving_kato",),
    "red": ("solving_red",),
    "redMS": ("solving_redms",),
    "ndm": ("solving_ndm", "solving_merge"),
    "hgm": ("solving_hgm", "solving_merge_all"),
    "hgmA1A2": ("solving_hgm", "solving_a2", "solving_merge"),
}
WITH_MATRIX = ("kato", "red", "redMS")


class SolvingSetJob:
    """The rows of a table on a device, and the iterations. Used inside ``device.active()``."""
    # x: (d, a) array of float32
    # k, m: Distances that are added, and candidates of an iteration
    # mode: One of `MODES`
    # raises DataError: If k is larger than a list in shared memory may be.
    # raises TableTooLarge: If the device has too little memory.

    def __init__(self, launcher: Launcher, x: NDArray[np.float32], k: int, m: int, mode: str):
        choice("mode", mode, tuple(MODES))
        if k > LARGEST_K:
            raise DataError(f"k must be at most {LARGEST_K} for the published kernels, not {k}")
        d, a = x.shape
        width, has_matrix = min(d, WIDTH), mode in WITH_MATRIX
        lists = m * SOLVING_SET_BLOCKS * k
        sizes = {
            "lists": k * d, "state": d, "candidates": m, "own": m * k, "bounds": d, "matrix": has_matrix * m * width,
            "parts": mode.startswith("hgm") * lists * SOLVING_SET_THREADS, "merged": (not has_matrix) * lists,
        }  # fmt: skip
        needed, free = 4 * (sum(sizes.values()) + d * a), launcher.device.free_memory()
        if needed > free:
            raise TableTooLarge(
                f"mode={mode!r} takes {format_bytes(needed)} of GPU memory, of which {format_bytes(free)} are free",
                needed=needed,
                limit=free,
            )
        self._launcher, self._mode, self._k = launcher, mode, k
        self._room = next(room for room in ROOMS if room >= k)
        self._d, self._width = d, width
        self._fields: dict[str, Any] = {name: launcher.memory.empty(4 * size) for name, size in sizes.items()}
        self._fields |= {"x": launcher.put(x), "d": d, "a": a, "k": k, "blocks": SOLVING_SET_BLOCKS}
        if not has_matrix:
            self._fields["matrix"] = 0
        self._upload("lists", np.full(k * d, np.inf, np.float32))
        self._upload("state", np.zeros(d, np.uint32))

    def _upload(self, name: str, array: NDArray[Any]) -> None:
        self._launcher.device.upload(self._fields[name], array, self._launcher.stream)
        self._launcher.stream.synchronize()

    def iterate(self, candidates: Ints, cut: float) -> tuple[Floats, NDArray[np.float32]]:
        """The weights of some candidates, which leave the other rows; and upper bounds of the weights of all others."""
        m, n_blocks = len(candidates), -(-len(candidates) // SOLVING_SET_ROWS)
        self._upload("candidates", candidates.astype(np.uint32))
        fields = {**self._fields, "m": m, "cut": cut, "first": 0, "width": self._d}
        self._launch("solving_init", n_blocks, SOLVING_SET_ROWS, fields)
        self._launch("solving_compare", n_blocks, SOLVING_SET_ROWS, fields)
        if self._mode in WITH_MATRIX:
            for first in range(0, self._d, self._width):
                fields |= {"first": first, "width": min(self._width, self._d - first)}
                self._launch("solving_rows", -(-fields["width"] // SOLVING_SET_ROWS), SOLVING_SET_ROWS, fields)
                self._launch(MODES[self._mode][0], m, SOLVING_SET_THREADS, fields)
        else:
            for kernel in MODES[self._mode]:
                blocks = m if kernel.startswith("solving_merge") else m * SOLVING_SET_BLOCKS
                self._launch(kernel, blocks, SOLVING_SET_THREADS, fields)
            self._launch("solving_rows", -(-self._d // SOLVING_SET_ROWS), SOLVING_SET_ROWS, fields)
        own = self._launcher.get(self._fields["own"], m * self._k, np.float32).reshape(m, self._k)
        bounds = self._launcher.get(self._fields["bounds"], self._d, np.float32)
        return np.sort(own.astype(np.float64), axis=1).sum(axis=1), bounds

    def _launch(self, kernel: str, n_blocks: int, threads: int, fields: dict[str, Any]) -> None:
        self._launcher.launch(SOLVING_SET, kernel, n_blocks, SOLVING, fields, threads=threads, ways=self._room)


def solve(x: Floats, n: int, k: int, m: int, mode: str, seed: int) -> tuple[Ints, Floats, Ints]:
    """The n rows of largest weight, their weights, and the solving set."""
    device, d = open_device(), len(x)
    inside, active = np.zeros(d, np.bool_), np.ones(d, np.bool_)
    top, weight = np.empty(0, np.int64), np.empty(0)
    candidates = np.random.default_rng(seed).permutation(d)[:m]
    with device.active():
        launcher = Launcher(device)
        try:
            job = SolvingSetJob(launcher, x.astype(np.float32), k, min(m, d), mode)
            while len(candidates):
                inside[candidates] = True
                cut = float(weight[-1]) if len(weight) == n else -math.inf
                weights, bounds = job.iterate(candidates, cut)
                top, weight = np.concatenate([top, candidates]), np.concatenate([weight, weights])
                best = np.lexsort((top, -weight))[:n]
                top, weight = top[best], weight[best]
                active &= ~inside & (bounds >= cut)
                left = np.flatnonzero(active)
                if len(left) > m:  # the m largest bounds; of equal bounds the first rows
                    least = np.partition(bounds[left], len(left) - m)[len(left) - m]
                    left = left[bounds[left] >= least]
                candidates = left[np.lexsort((left, -bounds[left]))[:m]]
        finally:
            launcher.close()
    return top, weight, np.flatnonzero(inside)
