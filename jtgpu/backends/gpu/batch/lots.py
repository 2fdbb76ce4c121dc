"""The lots of a table on one GPU: cases that the same kernels answer, with memory for their chunks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ....device.context import Device, Memory
from ....errors import TableTooLarge
from .buffers import Buffers, Program, Slot
from .table import Table
from .variants import Room

MORE = 8  # an eighth
LEAST = 8  # an eighth of a chunk that has memory enough
MOST_FIXED = 32  # sets of fixed variables that have kernels


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


class Kernels(NamedTuple):
    """Kernels of some cases, and their memory."""

    program: Program
    buffers: Buffers
    memory: Memory  # of the records


class FixedKernels:
    """Kernels for cases that observe certain variables, those used last. Used inside ``device.active()``."""
    # make: Makes the kernels of a set of variables, or of a warp a case
    # streams: On which chunks run

    def __init__(self, device: Device, make: Callable[[Memory, frozenset[int] | Room], Program]):
        self._device, self._make = device, make
        self._made: OrderedDict[frozenset[int] | Room, Kernels] = OrderedDict()
        self.streams: list[Any] = []

    def __len__(self) -> int:
        return len(self._made)

    def lots(self, table: Table[Any], share: int, default: Program, buffers: Buffers) -> list[Lot]:
        """The parts of a table, of whose cases this GPU answers about `share`; without memory."""
        lots, first = [], 0
        for last, fixed in table.parts:
            kernels = self._of(fixed) if fixed else None
            own = (kernels.program, kernels.buffers) if kernels else (default, buffers)
            lots.append(Lot(last, *own, -(-(last - first) * share // table.n)))
            first = last
        return lots

    def _of(self, fixed: frozenset[int] | Room) -> Kernels:
        if fixed not in self._made:
            while len(self._made) >= MOST_FIXED:
                _close(self._made.popitem(last=False)[1])
            memory = Memory(self._device)
            try:
                program = self._make(memory, fixed)
            except BaseException:
                memory.close()
                raise
            at = (1 + len(self._made)) % len(self.streams)  # so that their chunks run side by side
            self._made[fixed] = Kernels(program, Buffers(self._device, self.streams[at:] + self.streams[:at]), memory)
        self._made.move_to_end(fixed)
        return self._made[fixed]

    def drop(self) -> None:
        """Free the memory of chunks."""
        for kernels in self._made.values():
            kernels.buffers.drop()

    def close(self) -> None:
        """Free all memory."""
        while self._made:
            _close(self._made.popitem()[1])
        self.streams = []


def _close(kernels: Kernels) -> None:
    kernels.buffers.drop()
    kernels.buffers.streams.clear()
    kernels.program.close()
    kernels.memory.close()


def divided(lots: Sequence[Lot], rows: tuple[int, int] | None) -> list[tuple[int, int, Lot]]:
    """Rows of a table by their lots; chunks of small lots between those of the largest, whose kernels run meanwhile."""
    first, end = rows or (0, 0)
    largest = max(lots, key=lambda x: x.n)
    pieces: tuple[list[tuple[int, int, Lot]], ...] = ([], [])
    for lot in lots:
        last = min(lot.last, end)
        step = lot.buffers.size or max(last - first, 1)
        pieces[lot is largest].extend((at, min(at + step, last), lot) for at in range(first, last, step))
        first = max(first, last)
    if not all(x.slots for x in lots):  # one lot has memory at a time
        return sorted((*pieces[0], *pieces[1]), key=lambda x: x[0])
    spread = [((i + 0.5) / len(some), piece) for some in pieces for i, piece in enumerate(some)]
    return [piece for _, piece in sorted(spread, key=lambda x: x[0])]


def fit(lots: Sequence[Lot], table: Table[Any]) -> bool:
    """Whether all lots have memory, and as few chunks as if it were new: a table like the last one differs a little."""
    return all(x.n <= x.buffers.n and x.buffers.fit(x.program, table, x.n) for x in lots)


def allocate(lots: Sequence[Lot], table: Table[Any]) -> None:
    """Give every lot memory by what its cases take, and some more. Where not all of them fit, none gets any."""
    needs = [x.n * x.program.case_bytes + 1 for x in lots]
    try:
        for i, lot in enumerate(lots):
            lot.slots = lot.buffers.slots(lot.program, table, lot.n, needs[i] / sum(needs[i:]), lot.n // MORE)
    except TableTooLarge:
        for lot in lots:
            lot.drop()


def provide(lots: Sequence[Lot], table: Table[Any], drop: Callable[[], None]) -> None:
    """Give every lot its memory; `drop` frees that of all other kernels."""
    if fit(lots, table):
        for x in lots:
            x.slots = x.buffers.slots(x.program, table, x.n)
        return
    first = lots[0]
    if table.by_warps:  # other kernels, which answer the cases that are too large, keep theirs
        allocate(lots, table)
    if not first.slots or LEAST * first.buffers.size < min(first.n, first.program.most_cases):
        drop()
        allocate(lots, table)


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
