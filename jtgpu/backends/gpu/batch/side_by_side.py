"""Kernels that do not depend on each other on several streams, so that none waits for the last blocks of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....device.context import Device
from .buffers import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ForkedStreams:
    """Streams that are forked from one and joined to it again. Used inside ``device.active()``."""
    # n: Most works at a time

    def __init__(self, device: Device, n: int):
        self._streams = [device.stream() for _ in range(n - 1)]
        self._begun = device.event()
        self._done = [device.event() for _ in range(n - 1)]

    def queue(self, works: Sequence[Callable[[Any], None]], stream: Any) -> None:
        """Queue works, each of which queues kernels on the stream it is given; the first one on `stream` itself."""
        if len(works) > 1:
            self._begun.record(stream)
        works[0](stream)
        others = list(zip(works[1:], self._streams, self._done, strict=False))
        for work, side, done in others:
            side.wait_for_event(self._begun)
            work(side)
            done.record(side)
        for _, _, done in others:
            stream.wait_for_event(done)

    def close(self) -> None:
        """Destroy the streams."""
        self._streams.clear()
        self._done.clear()
        self._begun = None


def parts_of(struct: NDArray[Any], groups: int, n: int, cell_bytes: int) -> list[tuple[NDArray[Any], int]]:
    """A chunk of groups of cases as several: struct Batch and groups of each."""
    made = []
    for i in range(n):
        first, last = groups * i // n, groups * (i + 1) // n
        if last > first:
            part = struct.copy()
            part["arena"] = int(part["arena"]) + first * GROUP * cell_bytes * int(part["n_cells"])
            part["slots"] = int(part["slots"]) + first * GROUP * 8 * int(part["n_tables"])
            part["n_cases"] = (last - first) * GROUP
            made.append((part, last - first))
    return made
