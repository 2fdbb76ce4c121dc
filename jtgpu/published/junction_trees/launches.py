"""The kernel launches of the published engine.

A launch processes a list of independent jobs (see cuda/published/job.cuh). `LaunchBook` collects the job lists of all
launches of an engine, copies them to the device once, and returns launches that are ready to be queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...device.context import Device, Launch
from ...device.structs import JOB, MAP
from .indextables import padded
from .rules import Rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SUM_CELLS = 1024  # cells that a block of normalise_sum adds, at least; 256 threads
_SUM_BLOCKS = 1024  # most partial sums, which every block of normalise_scale adds again
_SCALE_BLOCKS = 2048


class Task(NamedTuple):
    """One marginalisation or scattering; device addresses."""

    clique: int  # the clique's table
    table: int  # its index table
    new: int  # the separator's new table: written by marginalise, read by scatter
    old: int  # the separator's old table, which divide replaces by the ratio
    n: int  # configurations of the separator, without padding
    m: int  # entries of the clique for each of them
    scratch: int = 0  # `scratch_cells` cells; marginalise only

    @property
    def total(self) -> int:
        """Cells of the index table."""
        return padded(self.n) * padded(self.m)


class Step(NamedTuple):
    """A launch before its addresses are known: jobs and map are offsets into the book."""

    file: str
    name: str
    blocks: int
    threads: int
    job_at: int
    map_at: int  # -1: one job, no map
    ways: int = 16  # most cells that one thread takes


def block_size(cells: int, most: int) -> int:
    """Threads of a block that reduces `cells` cells, two per thread (the published rule).

    `most` if the cells fill at least one such block, otherwise the power of two that leaves a single block.
    """
    return most if cells >= 2 * most else padded((cells + 1) // 2)


def scratch_cells(n: int, m: int, rules: Rules) -> int:
    """Most cells of partial sums that the marginalisation of an m x n table needs."""
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
    """The job lists of an engine's launches, for one device, table type and index type.

    Add launches, `send` the job lists once, then turn steps into launches by `ready`. Used inside
    ``device.active()``.
    """

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
        """Launches that marginalise independent tables: first those parallel over m, then those over n."""
        split = self.rules.split_n
        return [
            *self._over_m([t for t in tasks if t.n < split]),
            *self._over_n([t for t in tasks if t.n >= split]),
        ]

    def _over_m(self, tasks: list[Task]) -> list[Step]:
        steps = []
        # remaining work: task, address read, cells, address of the partial sums
        left = [(t, t.clique, t.total, t.scratch) for t in tasks]
        kind = "gather"
        while left:
            columns = [padded(t.n) for t, *_ in left]
            most = max(cells for _, _, cells, _ in left)
            threads = max(block_size(most, self.rules.marginalise_threads), *columns)
            jobs, blocks = np.zeros(len(left), JOB), []
            after = []
            for i, (t, source, cells, to) in enumerate(left):
                # more cells per thread only if every block stays full
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
                    # alternate: the first half of the scratch holds the larger list, the second follows it
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
        """The launch that replaces old separator tables by ratios; none if the scattering kernel divides."""
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
        """The two launches that normalise tables."""
        # tables: sequence of (int, int, int, int): Address, cells, address of the sum (a double), and the distance in
        #     doubles from there to the partial sums, of which a table needs `partial_sums`
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
        """A launch that occupies the stream, so that launches queued after it run without gaps."""
        jobs = np.zeros(1, JOB)
        jobs["total"] = nanoseconds
        return [self._step("common/hold", "hold", 1, jobs, [1])]

    # To the device --------------------------------------------------------------------------------------------

    @property
    def n_bytes(self) -> int:
        """Device memory of the job lists, in bytes."""
        return self._n_jobs * JOB.itemsize + self._n_maps * MAP.itemsize

    def send(self, stream: Any) -> None:
        """Copy all job lists to the device; no launch can be added afterwards."""
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
        """The launches of steps; after `send`."""
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
        """Free the job lists."""
        if self._memory is not None:
            self._memory.free()
        self._memory = None


def partial_sums(cells: int) -> int:
    """Doubles of partial sums that the normalisation of a table of `cells` cells needs."""
    return min(_SUM_BLOCKS, -(-cells // _SUM_CELLS))
