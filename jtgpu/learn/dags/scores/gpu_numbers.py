"""BGe scores of families of numbers on GPUs, by cuda/learn/bge.cu: sums of products go there, and scores come back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory, open_devices
from ....device.driver import Arguments, Kernels
from ....device.structs import struct
from .gpu_device import BINOMIAL_SIZES, FILL_THREADS, MAX_PARENTS
from .gpu_scores import fill_together
from .numeric_scores import BGeConstants, bge_constants, bge_matrix
from .ranks import binomial_table, n_parent_sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .numeric_table import NumericTable

FAMILIES = struct("learn/bge.cu", "Families")


class DeviceNumberScores:
    """The sums of products of all numbers in the memory of one GPU. Used inside ``device.active()``."""

    def __init__(self, device: Device, matrix: NDArray[np.float64], constants: BGeConstants):
        self.device, self._constants, self.microseconds = device, constants, 0.0
        self.memory, self.stream, self._n = Memory(device), device.stream(), len(matrix)
        self._kernels: Kernels | None = None
        try:
            self._kernels = Kernels(device, "learn/bge", tuple(f"bge_{k}" for k in range(MAX_PARENTS + 1)))
            self._families = f = np.zeros(1, FAMILIES)
            f["sums"] = self.memory.put(matrix, self.stream)
            f["binomials"] = self.memory.put(binomial_table(self._n, BINOMIAL_SIZES - 1).astype(np.uint64), self.stream)
            f["n"], f["n_scores"] = self._n, n_parent_sets(self._n, len(constants.constant) - 1)
        except BaseException:
            self.close()
            raise

    def fill(self, address: int, first_child: int, n_children: int) -> None:
        """Compute the scores of some children, (n_children, M) float64, at an address."""
        assert self._kernels is not None
        f, first = self._families, 0
        f["scores"], f["first_child"] = address, first_child
        start, stop = self.device.event(timing=True), self.device.event(timing=True)
        start.record(self.stream)
        for size, (constant, of_child) in enumerate(zip(*self._constants, strict=True)):
            n_warps = n_children * math.comb(self._n - 1, max(size - 1, 0))
            f["first"], f["n_warps"], f["constant"], f["of_child"] = first, n_warps, constant, of_child
            n_blocks = -(-n_warps // (FILL_THREADS // 32))
            self._kernels.launch(f"bge_{size}", n_blocks, FILL_THREADS, self.stream, Arguments(f))
            first += math.comb(self._n - 1, size)
        stop.record(self.stream)
        self.stream.synchronize()
        self.microseconds += stop.time_since(start) * 1e3

    def close(self) -> None:
        """Free the device's memory; may be called twice."""
        if self._kernels is not None:
            self._kernels.close()
        self._kernels = None
        self.memory.close()
        self.stream = None


def gpu_bge_scores(table: NumericTable, max_parents: int, devices: Any = None) -> NDArray[np.float64]:
    """Scores of all families, (n, M); those of the CPU to the rounding of sums, whatever the number of GPUs."""
    n, matrix, constants = len(table.names), bge_matrix(table), bge_constants(table.n_cases, max_parents)
    scores = np.empty((n, n_parent_sets(n, max_parents)))
    workers: list[DeviceNumberScores] = []
    try:
        for device in open_devices(devices):
            with device.active():
                workers.append(DeviceNumberScores(device, matrix, constants))
        fill_together(workers, scores)
    finally:
        for worker in workers:
            with worker.device.active():
                worker.close()
    return scores
