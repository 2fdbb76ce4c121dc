"""Device memory and page-locked host memory of one owner, freed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .context import Device

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


class Memory:
    """Allocations of one owner. Used inside ``device.active()``."""
    # n_bytes: Bytes allocated on the device

    def __init__(self, device: Device):
        self.device = device
        self.n_bytes = 0
        self._blocks: list[Any] = []
        self._pinned: list[NDArray[Any]] = []

    def empty(self, n_bytes: int) -> int:
        """Allocate device memory; its address."""
        # raises TableTooLarge: If the device has no such block free.
        block = self.device.alloc(max(n_bytes, 16))
        self._blocks.append(block)
        self.n_bytes += max(n_bytes, 16)
        return int(block)

    def put(self, array: NDArray[Any], stream: Any) -> int:
        """Copy an array to new device memory; its address. The copy is complete when this returns."""
        address = self.empty(array.nbytes)
        if array.nbytes:
            self.device.upload(address, np.ascontiguousarray(array), stream)
            stream.synchronize()
        return address

    def host(self, cells: int, dtype: DTypeLike) -> NDArray[Any]:
        """Allocate page-locked host memory, shape (cells,), filled with zeros."""
        array = self.device.pinned(cells, dtype)
        array[:] = 0
        self._pinned.append(array)
        return array

    def close(self) -> None:
        """Free everything. May be called twice."""
        for block in self._blocks:
            block.free()
        for array in self._pinned:
            self.device.unpin(array)
        self._blocks, self._pinned = [], []
