"""The published rules of the GPU engine, and the kernel launches that follow from them.

A launch works on a list of independent jobs (see cuda/published/job.cuh). `LaunchBook` collects the job lists of every launch
of an engine, sends them to the device once, and hands out launches that are ready to be queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...device.context import Device, Launch
from ...device.nvcc import JOB, MAP
from .indextables import MAX_ENTRIES, padded

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LaunchBook", "Rules", "Step", "Task", "block_size", "scratch_cells"]

_SUM_CELLS = 1024  # cells that one block of normalise_sum adds, at least; 256 threads
_SUM_BLOCKS = 1024  # at most: what normalise_scale's blocks add again
_SCALE_BLOCKS = 2048


@dataclass(frozen=True)
class Rules:
    """The rules of the published system, as options; the defaults are the published ones.

    Attributes
    ----------
    transfers : {"each", "resident"}
        ``"each"``: tables are copied to the device and back for every message, as published. ``"resident"``: they
        stay on the device from the evidence to the posteriors, and a level's messages share their launches.
    dtype : {"float64", "float32"}
        Type of the tables.
    split_n : int
        A separator of fewer configurations is marginalised in parallel over m, else over n. At most 1024.
    marginalise_threads, scatter_threads : int
        Most threads of a block: powers of two up to 1024.
    min_entries : int or None
        A clique table of fewer entries is marginalised, or scattered into, on the CPU: the two are decided one by
        one. None: 5000 with ``transfers="each"``, 0 with ``"resident"``, where the tables are on the device anyway.
    normalise : {"auto", "cublas", "kernel"}
        ``"auto"``: cuBLAS with ``transfers="each"`` where scikit-cuda is installed, else our kernels.
    ways : int
        Cells that a thread of either marginalisation kernel adds in one launch: 2 (published), 4, 8 or 16.
    scatter_ways : int
        Cells that a thread of the scattering kernel multiplies: 1 (published), 2, 4 or 8.
    marginalise_m : {"syncwarp", "shuffle"}
        The m-parallel kernel: the published one, or cuda/published/trials/marginalise_m_shuffle.cu.
    scatter : {"two_phase", "fused"}
        The scattering kernel: the published one, or cuda/published/trials/scatter_fused.cu.
    index_transfers : {"once", "each"}
        With ``transfers="each"``: whether index tables, which never change, travel with every message too.
    streams : int
        Streams of ``transfers="each"``; 1 is the published order of one thing after another.
    graph : bool
        ``transfers="resident"``: replay the sweeps as one CUDA graph (needs cuda-bindings; without it, launches).
    max_entries : int or None
        Largest clique table allowed.
    device : int or None
        Number of the device; None: the one of highest compute capability.
    """

    transfers: str = "each"
    dtype: str = "float64"
    split_n: int = 512
    marginalise_threads: int = 512
    scatter_threads: int = 256
    min_entries: int | None = None
    normalise: str = "auto"
    ways: int = 2
    scatter_ways: int = 1
    marginalise_m: str = "syncwarp"
    scatter: str = "two_phase"
    index_transfers: str = "once"
    streams: int = 4
    graph: bool = True
    max_entries: int | None = MAX_ENTRIES
    device: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        for name in ("marginalise_threads", "scatter_threads"):
            threads = getattr(self, name)
            if threads != padded(threads) or not 32 <= threads <= 1024:
                raise ValueError(f"{name} must be a power of two from 32 to 1024, not {threads!r}")
        if not 1 <= self.split_n <= 1025:
            raise ValueError(f"split_n must lie between 1 and 1025, not {self.split_n!r}")
        if not 1 <= self.streams <= 64:
            raise ValueError(f"streams must lie between 1 and 64, not {self.streams!r}")

    @property
    def threshold(self) -> int:
        """Entries from which a table is worked on by the GPU."""
        if self.min_entries is not None:
            return self.min_entries
        return 5000 if self.transfers == "each" else 0

    @property
    def file_m(self) -> str:
        """Kernel file of the m-parallel marginalisation."""
        return f"published/{'marginalise_m' if self.marginalise_m == 'syncwarp' else 'trials/marginalise_m_shuffle'}"

    @property
    def file_scatter(self) -> str:
        """Kernel file of scattering."""
        return "published/scatter" if self.scatter == "two_phase" else "published/trials/scatter_fused"

    def with_(self, **changes: Any) -> Rules:
        """The same rules but for `changes`."""
        return replace(self, **changes)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "transfers": ("each", "resident"),
    "dtype": ("float64", "float32"),
    "normalise": ("auto", "cublas", "kernel"),
    "ways": (2, 4, 8, 16),
    "scatter_ways": (1, 2, 4, 8),
    "marginalise_m": ("syncwarp", "shuffle"),
    "scatter": ("two_phase", "fused"),
    "index_transfers": ("once", "each"),
}


class Task(NamedTuple):
    """One marginalisation or scattering, by device addresses."""

    clique: int  # address of the clique's table
    table: int  # address of its index table
    new: int  # separator: marginalise writes it, scatter reads it
    old: int  # separator's old table; scatter's divide turns it into the ratio
    n: int  # true configurations and entries for each
    m: int
    scratch: int = 0  # address of `scratch_cells` cells; marginalise only

    @property
    def total(self) -> int:
        """Cells of the index table."""
        return padded(self.n) * padded(self.m)


class Step(NamedTuple):
    """A launch before its addresses are known: jobs and map as offsets in the book."""

    file: str
    name: str
    blocks: int
    threads: int
    job_at: int
    map_at: int  # -1: one job, no map
    ways: int = 16  # most cells that one thread takes


def block_size(cells: int, most: int) -> int:
    """Threads of a block that reduces `cells` cells, two a thread (the published rule): `most` where the cells fill
    one block or more, else the power of two that leaves a single block."""
    return most if cells >= 2 * most else padded((cells + 1) // 2)


def scratch_cells(n: int, m: int, rules: Rules) -> int:
    """Cells of partial sums that marginalising an m x n table takes at most."""
    columns, total = padded(n), padded(n) * padded(m)
    if n >= rules.split_n:
        return 0 if padded(m) <= rules.ways else total // rules.ways
    # the smallest block that a launch may pick leaves the most partial sums
    threads = max(block_size(total, rules.marginalise_threads), columns)
    first = -(-total // (2 * threads))
    if first == 1:
        return 0
    second = -(-first * columns // (2 * columns))
    return columns * (first + second)


class LaunchBook:
    """Launches under construction for one device, type of table and type of index."""

    def __init__(self, device: Device, rules: Rules, index: str):
        self._device, self.rules, self._index = device, rules, index
        self._jobs: list[NDArray[np.void]] = []
        self._maps: list[NDArray[np.uint32]] = []
        self._n_jobs = self._n_maps = 0
        self._itemsize = np.dtype(rules.dtype).itemsize
        self._memory: Any = None
        self._base = (0, 0)

    def _step(
        self, file: str, name: str, threads: int, jobs: NDArray[np.void], blocks: Sequence[int], ways: int = 16
    ) -> Step:
        """Add a launch whose job i takes blocks[i] blocks."""
        bounds = np.concatenate([[0], np.cumsum(blocks)])
        jobs["first_block"] = bounds[:-1]
        at, map_at = self._n_jobs, -1
        self._jobs.append(jobs)
        self._n_jobs += len(jobs)
        if len(jobs) > 1:
            map_at = self._n_maps
            self._maps.append(np.repeat(np.arange(len(jobs), dtype=MAP), blocks))
            self._n_maps += int(bounds[-1])
        return Step(file, name, int(bounds[-1]), threads, at, map_at, ways)

    # The operations -------------------------------------------------------------------------------------------

    def marginalise(self, tasks: Sequence[Task]) -> list[Step]:
        """Launches that marginalise independent tables: those in parallel over m, then those over n."""
        split = self.rules.split_n
        return [
            *self._over_m([t for t in tasks if t.n < split]),
            *self._over_n([t for t in tasks if t.n >= split]),
        ]

    def _over_m(self, tasks: list[Task]) -> list[Step]:
        steps = []
        # what is left: task, address read, cells, the other half of the scratch
        left = [(t, t.clique, t.total, t.scratch) for t in tasks]
        kind = "gather"
        while left:
            columns = [padded(t.n) for t, *_ in left]
            most = max(cells for _, _, cells, _ in left)
            threads = max(block_size(most, self.rules.marginalise_threads), *columns)
            jobs, blocks = np.zeros(len(left), JOB), []
            after = []
            for i, (t, source, cells, to) in enumerate(left):
                # more ways only where they leave every block full
                ways = max(2, min(self.rules.ways, padded(cells) // threads))
                count = -(-cells // (ways * threads))
                final = count == 1
                jobs[i] = (
                    source, t.table if kind == "gather" else 0, 0, t.new if final else to, cells, columns[i],
                    t.n if final else columns[i], 0, ways, 0,
                )  # fmt: skip
                blocks.append(count)
                if not final:
                    partial = count * columns[i]
                    # ping-pong: the first half holds the larger list, the second starts behind it
                    other = t.scratch + partial * self._itemsize if to == t.scratch else t.scratch
                    after.append((t, to, partial, other))
            name = f"marginalise_m_{kind}_{threads}"
            steps.append(self._step(self.rules.file_m, name, threads, jobs, blocks, self.rules.ways))
            left, kind = after, "partial"
        return steps

    def _over_n(self, tasks: list[Task]) -> list[Step]:
        steps = []
        left = [(t, t.clique, t.total) for t in tasks]
        kind = "gather"
        while left:
            threads = block_size(max(cells for _, _, cells in left), self.rules.marginalise_threads)
            jobs, blocks, after = np.zeros(len(left), JOB), [], []
            for i, (t, source, cells) in enumerate(left):
                columns = padded(t.n)
                ways = min(self.rules.ways, cells // columns)
                remain = cells // ways
                final = remain == columns
                jobs[i] = (
                    source, t.table if kind == "gather" else 0, 0, t.new if final else t.scratch, cells, columns,
                    t.n, 0, ways, 0,
                )  # fmt: skip
                blocks.append(-(-remain // threads))
                if not final:
                    after.append((t, t.scratch, remain))
            file, name = "published/marginalise_n", f"marginalise_n_{kind}"
            steps.append(self._step(file, name, threads, jobs, blocks, self.rules.ways))
            left, kind = after, "partial"
        return steps

    def divide(self, tasks: Sequence[Task]) -> list[Step]:
        """The launch that turns old separator tables into ratios; none where scattering divides as it goes."""
        if self.rules.scatter == "fused" or not tasks:
            return []
        threads = min(self.rules.scatter_threads, padded(max(t.n for t in tasks)))
        jobs, blocks = np.zeros(len(tasks), JOB), []
        for i, t in enumerate(tasks):
            jobs[i] = (t.new, 0, t.old, t.old, t.n, padded(t.n), t.n, 0, 0, 0)
            blocks.append(-(-t.n // threads))
        return [self._step(self.rules.file_scatter, "scatter_divide", threads, jobs, blocks)]

    def multiply(self, tasks: Sequence[Task]) -> list[Step]:
        """The launch that multiplies ratios into clique tables."""
        if not tasks:
            return []
        threads = min(self.rules.scatter_threads, padded(max(t.total for t in tasks)))
        jobs, blocks = np.zeros(len(tasks), JOB), []
        for i, t in enumerate(tasks):
            ways = max(1, min(self.rules.scatter_ways, t.total // threads))
            jobs[i] = (t.new, t.table, t.old, t.clique, t.total, padded(t.n), t.n, 0, ways, 0)
            blocks.append(-(-t.total // (ways * threads)))
        return [self._step(self.rules.file_scatter, "scatter_multiply", threads, jobs, blocks, self.rules.scatter_ways)]

    def normalise(self, tables: Sequence[tuple[int, int, int, int]]) -> list[Step]:
        """The two launches that normalise tables: (address, cells, address of the sum, doubles from there to the
        partial sums). A table needs `partial_sums` doubles of them."""
        if not tables:
            return []
        sums = np.zeros(len(tables), JOB)
        sum_blocks, scale_blocks = [], []
        for i, (address, cells, total, distance) in enumerate(tables):
            ways = partial_sums(cells)
            blocks = min(_SCALE_BLOCKS, -(-cells // _SUM_CELLS))
            sums[i] = (address, 0, 0, address, cells, blocks, distance, 0, ways, total)
            sum_blocks.append(ways)
            scale_blocks.append(blocks)
        return [
            self._step("published/normalise", "normalise_sum", 256, sums, sum_blocks),
            self._step("published/normalise", "normalise_scale", 256, sums.copy(), scale_blocks),
        ]

    def hold(self, nanoseconds: int) -> list[Step]:
        """A launch that keeps the stream busy, so that what is queued behind it runs without gaps."""
        jobs = np.zeros(1, JOB)
        jobs["total"] = nanoseconds
        return [self._step("common/hold", "hold", 1, jobs, [1])]

    # To the device --------------------------------------------------------------------------------------------

    @property
    def n_bytes(self) -> int:
        """Device memory that the job lists take."""
        return self._n_jobs * JOB.itemsize + self._n_maps * MAP.itemsize

    def send(self, stream: Any) -> None:
        """Copy all job lists to the device; no launch can be added after it."""
        jobs = np.concatenate(self._jobs) if self._jobs else np.zeros(0, JOB)
        maps = np.concatenate(self._maps) if self._maps else np.zeros(0, MAP)
        self._memory = self._device.alloc(self.n_bytes)
        base = int(self._memory)
        self._base = (base, base + jobs.nbytes)
        packed = np.concatenate([jobs.view(np.uint8), maps.view(np.uint8)])
        if packed.size:
            self._device.upload(base, packed, stream)
            stream.synchronize()
        self._jobs, self._maps = [], []

    def ready(self, steps: Sequence[Step]) -> list[Launch]:
        """Launches of steps, once the book has been sent."""
        return [
            Launch(
                self._device.function(s.file, s.name, real=self.rules.dtype, index=self._index, ways=s.ways),
                (s.blocks, 1, 1),
                (s.threads, 1, 1),
                self._base[0] + s.job_at * JOB.itemsize,
                0 if s.map_at < 0 else self._base[1] + s.map_at * MAP.itemsize,
            )
            for s in steps
        ]

    def close(self) -> None:
        """Free the job lists; inside ``device.active()``."""
        if self._memory is not None:
            self._memory.free()
        self._memory = None


def partial_sums(cells: int) -> int:
    """Doubles of partial sums that normalising a table of `cells` cells takes."""
    return min(_SUM_BLOCKS, -(-cells // _SUM_CELLS))
