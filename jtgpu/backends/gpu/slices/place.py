"""The resources of a thread on a device: a stream, memory that groups use one after another, page-locked buffers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....errors import TableTooLarge
from ....util.rows import thread_map

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUFFER = 1 << 22  # numbers
SHARE = 1 << 19  # that a thread copies at a time: each time takes the interpreter's lock
LARGE = 1 << 21  # numbers from which buffers pay


class CopyBuffers:
    """Page-locked buffers of a device, which calls share."""

    def __init__(self, device: Device):
        self._device, self._lock = device, threading.Lock()
        self._memory: Memory | None = None
        self._free: list[NDArray[np.float64]] = []

    def take(self, n: int) -> list[NDArray[np.float64]]:
        """Some buffers; none if the system cannot lock more pages."""
        with self._lock:
            self._memory = self._memory or Memory(self._device)
            try:
                while len(self._free) < n:
                    self._free.append(self._memory.host(BUFFER, np.float64))
            except TableTooLarge:
                return []
            taken, self._free = self._free[:n], self._free[n:]
            return taken

    def put_back(self, buffers: list[NDArray[np.float64]]) -> None:
        """Give buffers to others."""
        with self._lock:
            self._free += buffers

    def close(self) -> None:
        """Free all buffers."""
        with self._lock:
            if self._memory is not None:
                with self._device.active():
                    self._memory.close()
            self._memory, self._free = None, []


class Place:
    """A device with a stream, and blocks of memory that groups use one after another."""

    def __init__(self, device: Device, buffers: CopyBuffers):
        self.device, self._buffers = device, buffers
        self._blocks: dict[int, list[int]] = {}
        with device.active():
            self.memory, self.stream = Memory(device), device.stream()
            self.events = device.event(timing=True), device.event(timing=True)

    def take(self, n_bytes: int) -> tuple[int, int]:
        """Memory: bytes and address."""
        free = self._blocks.get(n_bytes)
        return n_bytes, free.pop() if free else self.memory.empty(n_bytes)

    def put_back(self, block: tuple[int, int]) -> None:
        self._blocks.setdefault(block[0], []).append(block[1])

    def download(self, to: NDArray[Any], address: int) -> None:
        """Copy from the device, and wait for it."""
        with self.device.active():
            pair = self._buffers.take(2) if to.size >= LARGE and to.dtype == np.float64 else []
            if not pair:
                self.device.download(to, address, self.stream)
                self.stream.synchronize()
                return
            try:
                self._by_buffers(to.reshape(-1), address, pair)
            finally:
                self._buffers.put_back(pair)

    def _by_buffers(self, to: NDArray[np.float64], address: int, pair: list[NDArray[np.float64]]) -> None:
        """One buffer is filled by the device while threads empty the other one: fresh memory is slow to touch."""
        starts = range(0, len(to), BUFFER)

        def fetch(i: int) -> None:
            n = min(BUFFER, len(to) - starts[i])
            self.device.download(pair[i % 2][:n], address + 8 * starts[i], self.stream)

        with thread_map(to.nbytes) as mapper:
            fetch(0)
            for i, start in enumerate(starts):
                self.stream.synchronize()
                if i + 1 < len(starts):
                    fetch(i + 1)
                part, source = to[start : start + BUFFER], pair[i % 2]

                def copy(at: int, part: Any = part, source: Any = source) -> None:
                    some = part[at : at + SHARE]
                    some[:] = source[at : at + len(some)]

                list(mapper(copy, range(0, len(part), SHARE)))

    def close(self) -> None:
        """Free everything."""
        with self.device.active():
            self.stream.synchronize()
            self.memory.close()
            del self.stream, self.events
