"""The resources of a thread on a device: a stream, memory that groups use one after another, page-locked buffers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
    """Pairs of page-locked buffers of a device, which calls share."""

    def __init__(self, device: Device):
        self._device, self._memory = device, Memory(device)
        self._free: list[tuple[NDArray[np.float64], ...]] = []

    def take(self) -> tuple[NDArray[np.float64], ...]:
        """A pair; nothing if the system cannot lock more pages."""
        with suppress(IndexError):  # another thread may have taken the last one
            return self._free.pop()
        with suppress(TableTooLarge):
            return tuple(self._memory.host(BUFFER, np.float64) for _ in range(2))
        return ()

    def put_back(self, pair: tuple[NDArray[np.float64], ...]) -> None:
        """Give a pair to others."""
        self._free.append(pair)

    def close(self) -> None:
        """Free all buffers."""
        self._free.clear()
        with self._device.active():
            self._memory.close()


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
            pair = self._buffers.take() if to.size >= LARGE and to.dtype == np.float64 else ()
            if not pair:
                self.device.download(to, address, self.stream)
                self.stream.synchronize()
                return
            try:
                self._by_buffers(to.reshape(-1), address, pair)
            finally:
                self._buffers.put_back(pair)

    def _by_buffers(self, to: NDArray[np.float64], address: int, pair: Sequence[NDArray[np.float64]]) -> None:
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
