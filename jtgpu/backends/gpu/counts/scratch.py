"""Scratch memory that the chunks of all tables use one after another."""

from __future__ import annotations

from typing import Any

from ....device.context import Device
from ....device.memory import Memory
from .chunk import CountKernels


class Scratch:
    """Scratch memory for chunks of at most `size` cases. Used inside ``device.active()``."""
    # numbers: (int, int, int): Variables, weights of states a case, and sums of all blocks
    # is_full: Whether more cases would not have fitted

    def __init__(
        self, device: Device, stream: Any, kernels: CountKernels, size: int, numbers: tuple[int, int, int], *,
        is_full: bool,
    ):  # fmt: skip
        n_variables, n_weights, n_sums = numbers
        self.kernels, self.size, self.n_weights, self._is_full = kernels, size, n_weights, is_full
        self.memory = Memory(device)
        try:
            self.tables = kernels.scratch(self.memory, stream, size)
            self.state = self.memory.empty(4 * n_variables * size)
            self.weight = self.memory.empty(8 * n_weights * size)
            self.partial = self.memory.empty(8 * n_sums)
        except BaseException:
            self.memory.close()
            raise

    def serves(self, size: int, n_weights: int) -> bool:
        """Whether it serves chunks of so many cases, or has all the memory that there is."""
        return (self.size >= size or self._is_full) and self.n_weights >= n_weights
