"""The lots of a table on one GPU: cases that the same kernels answer, with memory for their chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....errors import TableTooLarge
from .buffers import Buffers, Program, Slot
from .table import Table

if TYPE_CHECKING:
    from ....device.context import Device


@dataclass
class Lot:
    """Cases of a table up to `last`, of which this GPU answers about n."""

    last: int
    program: Program
    buffers: Buffers
    n: int
    slots: Sequence[Slot] = ()  # empty: they have no memory yet
    before: Slot | None = None  # the last one that was used

    def free(self, busy: Sequence[Slot]) -> Slot | None:
        """The next slot, unless it is busy."""
        if not self.slots:
            return None
        at = 0 if self.before is None else (self._at(self.before) + 1) % len(self.slots)
        return None if any(x is self.slots[at] for x in busy) else self.slots[at]

    def _at(self, slot: Slot) -> int:
        return next(i for i, x in enumerate(self.slots) if x is slot)

    def drop(self) -> None:
        """Free the memory."""
        self.buffers.drop()
        self.slots, self.before = (), None


def divided(lots: Sequence[Lot], rows: tuple[int, int] | None) -> Iterator[tuple[int, int, Lot]]:
    """Rows of a table by their lots."""
    first, end = rows or (0, 0)
    for lot in lots:
        last = min(lot.last, end)
        if first < last:
            yield first, last, lot
            first = last


def allocate(lots: Sequence[Lot], table: Table[Any]) -> None:
    """Give every lot memory by what its cases take. Where not all of them fit, none gets any."""
    needs = [x.n * x.program.case_bytes + 1 for x in lots]
    try:
        for i, lot in enumerate(lots):
            lot.slots = lot.buffers.slots(lot.program, table, lot.n, needs[i] / sum(needs[i:]))
    except TableTooLarge:
        for lot in lots:
            lot.drop()


class Clock:
    """Time on the GPU of chunks that may run side by side."""

    def __init__(self, device: Device, stream: Any):
        self._begin = device.event(timing=True)
        self._begin.record(stream)
        stream.synchronize()
        self._until = 0.0

    def took(self, slot: Slot) -> float:
        """Milliseconds of a chunk beyond those of chunks before it."""
        start, stop = float(slot.start.time_since(self._begin)), float(slot.stop.time_since(self._begin))
        took, self._until = max(stop - max(start, self._until), 0.0), max(stop, self._until)
        return took
