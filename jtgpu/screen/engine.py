"""The interface of an engine: weights of rows against a fixed set of references."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..device.context import device_numbers
from ..device.nvcc import find_nvcc
from ..errors import ArgumentError, BackendUnavailable
from ..util.arguments import choice, whole_number
from ..util.arrays import Bools, Floats, Ints
from ..util.system import cores

# Where rows are searched: threads of the CPU, or GPUs. Rows are independent: no bit of the results depends on it.

BACKENDS = ("auto", "cpu", "gpu", "reference")
PIECE = 256  # rows that a thread takes at a time
LARGEST_K = 1024  # of a GPU: the lists are in registers
FEWEST_ALL, FEWEST_TOP = 30_000, 400_000  # rows from which a GPU takes less time, its start included


class ScreenTarget(NamedTuple):
    """The backend that computes."""

    backend: str  # {"cpu", "gpu", "reference"}
    threads: int | None  # of the CPU; None: one for each core
    devices: tuple[int, ...] = ()  # tuple of int: Numbers of the GPUs
    reason: str = "as requested"  # why this backend
    is_auto: bool = False  # whether the CPU computes where the GPU has too little memory

    @classmethod
    def resolve(
        cls, backend: str, threads: int | None, devices: object, n_rows: int, k: int, *, every: bool,
        cluster: object = None,
    ) -> ScreenTarget:  # fmt: skip
        """The backend for a table of so many rows, of which all weights are computed or the largest."""
        # raises ArgumentError: If options contradict each other, or a GPU cannot add so many distances.
        # raises BackendUnavailable: If a GPU is requested and there is none.
        choice("backend", backend, BACKENDS)
        if threads is not None:
            whole_number("threads", threads, 1)
        if devices is not None and backend not in ("auto", "gpu"):
            raise ArgumentError(f"devices are GPUs, which backend={backend!r} does not use; use 'gpu'")
        if devices is not None and cluster is not None:
            raise ArgumentError("devices are GPUs of this machine; a cluster's workers have one each")
        if backend == "reference" and cluster is not None:
            raise ArgumentError("a cluster computes with backend='cpu' or 'gpu', not 'reference'")
        if (backend == "gpu" or devices is not None) and k > LARGEST_K:
            raise ArgumentError(f"k must be at most {LARGEST_K} on a GPU, not {k}; use backend='cpu'")
        if cluster is not None:  # what follows on this machine, such as predictions, runs on the CPU if it has no GPU
            name = "gpu" if backend == "gpu" else "cpu"
            return cls(name, threads, (0,) if name == "gpu" else (), "on a cluster", is_auto=True)
        if backend == "gpu" or devices is not None:
            return cls("gpu", threads, tuple(device_numbers([0] if devices is None else devices)))
        if backend != "auto":
            return cls(backend, threads)
        if threads is not None:
            return cls("cpu", threads, reason="auto: threads are given")
        fewest = FEWEST_ALL if every else FEWEST_TOP
        if n_rows < fewest or k > LARGEST_K:
            limit = f"fewer than {fewest:,} rows" if n_rows < fewest else f"k above {LARGEST_K}"
            return cls("cpu", threads, reason=f"auto: {limit}")
        try:
            numbers = device_numbers([0])
        except BackendUnavailable:
            return cls("cpu", threads, reason="auto: there is no GPU")
        if find_nvcc() is None:
            return cls("cpu", threads, reason="auto: nvcc, which compiles the GPU kernels, was not found")
        return cls("gpu", threads, tuple(numbers), f"auto: {n_rows:,} rows", is_auto=True)


def on_threads(work: Callable[[slice], int], n: int, threads: int | None) -> int:
    """The sum of what `work` returns for slices that cover n rows."""
    pieces = [slice(first, min(first + PIECE, n)) for first in range(0, n, PIECE)]
    n_threads = min(len(pieces), threads or cores())
    if n_threads <= 1:
        return sum(map(work, pieces))
    with ThreadPoolExecutor(n_threads, "jtgpu-screen") as pool:
        return sum(pool.map(work, pieces))


# Rows of a table as numbers and state codes, and how distances between them are computed.

MISSING, UNSEEN = -1, -2  # codes in place of a state's number


class Measure(NamedTuple):
    """How the distance of two rows follows from their columns."""

    metric: str  # ``"euclidean"``, ``"manhattan"``, ``"hamming"`` or ``"gower"``
    n_columns: int  # number of columns, over which ``"hamming"`` and ``"gower"`` are means
    # Whether cells of the table are missing and ignored: distances are means over the columns that both rows have
    has_holes: bool

    @property
    def is_squared(self) -> bool:
        """Whether keys are squared distances."""
        return self.metric == "euclidean"

    @property
    def is_share(self) -> bool:
        """Whether distances are means over columns."""
        return self.metric in ("hamming", "gower")


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows."""

    numbers: Floats  # (N, A) ndarray of float64: Columns of numbers, scaled; NaN where missing
    # (N, D) ndarray of int32: States of the other columns; `MISSING`, or `UNSEEN` for a state that the table does not
    #     have
    codes: NDArray[np.int32]
    n_observed: Ints  # (N,) ndarray of int64: Columns that are not missing

    def __len__(self) -> int:
        return len(self.n_observed)

    def take(self, index: Ints) -> Rows:
        """Some rows."""
        return Rows(self.numbers[index], self.codes[index], self.n_observed[index])

    def divisors(self, measure: Measure) -> Floats:
        """Divisor of the sum of each row's keys, (N,)."""
        if measure.is_share and not measure.has_holes:
            return self.n_observed.astype(np.float64)
        return np.ones(len(self))


class Ranking(NamedTuple):
    """References in groups, those that are probably outliers first; a group is consecutive in an order."""

    order: NDArray[np.integer]  # (N,)
    starts: Ints  # (G,)
    sizes: Ints  # (G,)
    bounds: Floats  # (G,) descending: no weight of a group's rows is larger

    @classmethod
    def of_rows(cls, order: Ints) -> Ranking:
        """Rows in an order, without bounds."""
        return cls(order, np.arange(len(order)), np.ones(len(order), np.int64), np.full(len(order), np.inf))

    def rows(self, first: int, last: int) -> Ints:
        """The rows of groups first..last-1."""
        sizes = self.sizes[first:last]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        ranked: Ints = self.order[np.repeat(self.starts[first:last], sizes) + within].astype(np.int64)
        return ranked

    def part(self, i: int, n: int) -> Ranking:
        """Part i of n: every n-th group."""
        return Ranking(self.order, self.starts[i::n], self.sizes[i::n], self.bounds[i::n])


class Engine(ABC):
    """Computes weights of rows against at least k references."""

    batches = (32, 1 << 14)  # rows of the first and of the largest batch, between which the cut is raised
    _references: Rows

    @abstractmethod
    def ranking(self) -> Ranking:
        """All references, those that are probably outliers first."""

    @abstractmethod
    def similar(self) -> Ints:
        """All references, similar ones close to each other."""

    @abstractmethod
    def search(self, rows: Rows, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        """Weights of rows, and how many distances were computed.

        A weight that is less than the row's cut is an upper bound; others are exact.
        """

    def search_own(self, index: Ints, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        """`search` of some references."""
        return self.search(self._references.take(index), cuts, threads)

    def settled(self, other: Engine, threshold: float, threads: int | None) -> Bools:
        """References whose weight against those of another engine is certainly below a threshold; others may be."""
        return np.zeros(len(self._references), np.bool_)

    def close(self) -> None:  # noqa: B027 (optional)
        """Free the memory of devices."""
