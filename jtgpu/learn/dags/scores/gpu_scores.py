"""Scores of families on GPUs.

The scores agree with those of the CPU to the rounding of sums: counts are exact, the functions of a count are the CPU's
tables, and only the order of the additions differs. They do not depend on the number of GPUs.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....device.context import Device, Memory, open_devices
from ....errors import TableTooLarge, format_bytes
from .gpu_device import CountProblem, DeviceScores, count_problem
from .ranks import n_parent_sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .coded import CodedTable
    from .rules import CellFunctions, ScoreRule

SHARE = 0.9  # of a device's free memory that may be used


class Filler(Protocol):
    """Scores of all families on one GPU."""

    device: Device
    memory: Memory
    stream: Any

    def fill(self, address: int, first_child: int, n_children: int) -> None:
        """Compute the scores of some children, (n_children, M) float64, at an address."""


def gpu_scores(
    coded: CodedTable, rule: ScoreRule, functions: CellFunctions, max_parents: int, max_cells: int, *,
    devices: Any = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Scores of all families, as `jtgpu.learn.dags.scores.score_table.score_families` computes them, on GPUs."""
    # devices: "all" or sequence of int: Default: one GPU, that of the highest compute capability
    # returns (n, M)
    problem = count_problem(coded, rule, functions, max_parents, max_cells)
    opened = open_devices(devices)
    scores = np.empty((problem.n, n_parent_sets(problem.n, max_parents)))
    workers: list[DeviceScores] = []
    try:
        for device in opened:
            with device.active():
                _require_memory(device, problem, scores.shape[1])
                workers.append(DeviceScores(device, problem))
        with ThreadPoolExecutor(len(workers), "jtgpu-learn-gpu") as pool:
            for size in range(2, max_parents + 2):
                _count_together(problem, workers, size, pool)
        fill_together(workers, scores)
    finally:
        for worker in workers:
            with worker.device.active():
                worker.close()
    return scores


def _require_memory(device: Device, problem: CountProblem, n_scores: int) -> None:
    needed = problem.value_bytes() + 8 * n_scores + problem.planes.words.nbytes + problem.planes.lasts.nbytes
    needed += problem.functions.values.nbytes
    limit = int(SHARE * device.free_memory())
    if needed > limit:
        raise TableTooLarge(
            f"the values of {math.comb(problem.n, problem.max_parents + 1):,} sets of variables need "
            f"{format_bytes(needed)}, more than {device.name} has free ({format_bytes(limit)}); lower max_parents",
            math.comb(problem.n, problem.max_parents + 1),
            needed,
            limit,
        )


def _count_together(
    problem: CountProblem, workers: Sequence[DeviceScores], size: int, pool: ThreadPoolExecutor
) -> None:
    """Count the sets of a size, each GPU a share, and give all values to all GPUs."""
    n, n_sets = len(workers), math.comb(problem.n, size)

    def count(i: int) -> tuple[int, int]:
        with workers[i].device.active():
            return workers[i].count(size, (i, n))

    ranges = list(pool.map(count, range(n)))
    if n == 1:
        return
    values = np.empty((problem.n_values, n_sets))

    def download(i: int) -> None:
        worker, (first, last) = workers[i], ranges[i]
        with worker.device.active():
            for k in range(problem.n_values):
                if last > first:
                    worker.device.download(
                        values[k, first:last], worker.values[size] + 8 * (k * n_sets + first), worker.stream
                    )
            worker.stream.synchronize()

    def upload(i: int) -> None:
        worker = workers[i]
        with worker.device.active():
            worker.device.upload(worker.values[size], values, worker.stream)
            worker.stream.synchronize()

    list(pool.map(download, range(n)))
    list(pool.map(upload, range(n)))


def fill_together(workers: Sequence[Filler], scores: NDArray[np.float64]) -> None:
    """Compute the scores of all children, each GPU a range of them."""
    shares = [len(scores) * i // len(workers) for i in range(len(workers) + 1)]
    with ThreadPoolExecutor(len(workers), "jtgpu-learn-gpu") as pool:
        list(pool.map(_fill_share, workers, shares[:-1], shares[1:], [scores] * len(workers)))


def _fill_share(worker: Filler, begin: int, end: int, scores: NDArray[np.float64]) -> None:
    """Compute the scores of the children begin to end - 1, as many at a time as fit the device."""
    device = worker.device
    with device.active():
        one = 8 * scores.shape[1]
        at_once = max(min(end - begin, int(SHARE * device.free_memory()) // one), 1)
        address = worker.memory.empty(one * at_once)
        for first in range(begin, end, at_once):
            last = min(first + at_once, end)
            worker.fill(address, first, last - first)
            device.download(scores[first:last], address, worker.stream)
            worker.stream.synchronize()
