"""Launches of the kernels in cuda/screen, and the device memory that an engine owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device.context import Device, Launch
from ...device.memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 256  # threads of a block
SLOTS = 256  # parameters that may be queued at the same time
SLOT_BYTES = 256


class Launcher:
    """A stream of a device, and memory that is freed together. Used inside ``device.active()``."""

    def __init__(self, device: Device):
        self.device = device
        self.memory = Memory(device)
        self.stream: Any = device.stream()
        self._slots = self.memory.empty(SLOTS * SLOT_BYTES)
        self._next = 0

    def launch(
        self, file: str, name: str, blocks: int, job: np.dtype[Any], fields: Mapping[str, Any], *,
        threads: int = BLOCK, ways: int = 16,
    ) -> None:  # fmt: skip
        """Queue a kernel with a struct of parameters."""
        if not blocks:
            return
        record = np.zeros(1, job)
        for field, value in fields.items():
            record[field] = value
        if self._next == SLOTS:
            self.stream.synchronize()
            self._next = 0
        address = self._slots + self._next * SLOT_BYTES
        self._next += 1
        self.device.upload(address, record.view(np.uint8), self.stream)
        function = self.device.function(file, name, ways=ways)
        self.device.launch(Launch(function, (blocks, 1, 1), (threads, 1, 1), address, 0), self.stream)

    def put(self, array: NDArray[Any]) -> int:
        """Copy an array to new device memory; its address."""
        return self.memory.put(array, self.stream)

    def get(self, address: int, n: int, dtype: Any) -> NDArray[Any]:
        """Copy n numbers to the host, after what is queued."""
        found = np.empty(n, dtype)
        if n:
            self.device.download(found, address, self.stream)
        self.stream.synchronize()
        self._next = 0
        return found

    def close(self) -> None:
        """Wait for what is queued and free everything."""
        self.stream.synchronize()
        self.memory.close()
        self.stream = None  # it must be destroyed while the context is current


class Buffers:
    """Device memory for the rows of a search."""
    # size: Rows that fit, a multiple of 32

    def __init__(self, launcher: Launcher, size: int, n_numbers: int, n_words: int):
        self._launcher, self.size = launcher, size
        self._memory = Memory(launcher.device)
        widths = {
            "numbers": 8 * n_numbers, "words": 8 * n_words, "new_numbers": 8 * n_numbers, "new_words": 8 * n_words,
            "rows": 4, "cuts": 8, "divisors": 8, "weights": 8,
        }  # fmt: skip
        try:
            self._at = {name: self._memory.empty(width * size) for name, width in widths.items()}
            self._at["pairs"] = self._memory.empty(8)
        except BaseException:
            self._memory.close()
            raise

    def __getitem__(self, name: str) -> int:
        return self._at[name]

    def put(self, name: str, array: NDArray[Any]) -> int:
        """Copy an array to the memory of that name; its address."""
        if array.size:
            self._launcher.device.upload(self._at[name], np.ascontiguousarray(array), self._launcher.stream)
            self._launcher.stream.synchronize()
        return self._at[name]

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()
