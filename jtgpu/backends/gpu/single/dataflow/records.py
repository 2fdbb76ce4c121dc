"""Records that dataflow.cu reads: contractions, evidence, posteriors and P(e), all as struct Op of types.cuh."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...program.contractions import Loop
from ...program.records import RecordPool, contraction_record, record_array
from .tiling import BLOCKS, LONGER, DataflowTiling

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTER_SHAPE, ANSWER_SHAPE, ROOT_SHAPE = 0x80, 0x81, 0x82  # field `shape` of records that are no contraction
LONG = 0x40  # added to a tile's shape if it has the longer batches of loads
TENSOR = 0x100  # added if it is blocks for the tensor cores
ALWAYS, AWAITED = 0, 0xFFFFFFFF  # an input that never changes; one that every run writes


def shape_code(tiling: DataflowTiling) -> int:
    """The number by which the kernel knows a tile's code."""
    m, n = tiling.shape
    if tiling.blocks:
        shortest = min(unroll for *shape, unroll in BLOCKS if shape == [m, n])
        return TENSOR + m * 8 + n + LONG * (tiling.unroll > shortest)
    return m * 8 + n + LONG * ((m, n, tiling.unroll) in LONGER)


class RecordMaker:
    """Collects records. They are made in `arrays`, since of several schedules only one is used."""

    def __init__(self) -> None:
        self._ops: list[Callable[[], dict[str, int]]] = []
        self._pool = RecordPool()

    def contraction(
        self,
        loops: tuple[Loop, ...],
        tiling: DataflowTiling,
        cells: tuple[int, int, int],
        awaited: tuple[int, int],
        part_cells: int = 0,
    ) -> int:
        """Add a contraction; the number of its record."""
        # cells: (int, int, int): First cells of A, B and the output
        # awaited: (int, int): `ALWAYS` or `AWAITED`, for A and B
        # part_cells: Cells from one part's sums to the next part's

        def make() -> dict[str, int]:
            op = contraction_record(self._pool, loops, tiling, cells, blocks=tiling.blocks)
            op |= {"shape": shape_code(tiling), "scratch": part_cells}
            return op | {"slot_a": awaited[0], "slot_b": awaited[1]}

        return self._add(make)

    def enter(self, source: int, cell: int, n: int, known: tuple[int, int, int]) -> int:
        """Add a factor that evidence is multiplied into."""
        # source: Its first entry in ``pristine``
        # cell: Its first cell in the arena
        # n: Its entries
        # known: (int, int, int): First KNOWN record; its axes; axes of the source that only select a part of it
        first, n_axes, n_selected = known
        op = {"a": source, "out": cell, "n_tiles": n, "steps": first, "n_steps": n_axes, "n_digits": n_selected}
        return self._add(lambda: op | {"shape": ENTER_SHAPE})

    def answer(self, cell: int, awaited: int, card: int, at: int) -> int:
        """Add a posterior of `card` states that goes to position `at` of the answer."""
        op = {"a": cell, "slot_a": awaited, "n_tiles": card, "out": at, "shape": ANSWER_SHAPE}
        return self._add(lambda: op)

    def roots(self) -> int:
        """Add P(e) of every component."""
        return self._add(lambda: {"shape": ROOT_SHAPE})

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """All records, digits and summed offsets."""
        ops = record_array([make() for make in self._ops])
        return ops, *self._pool.arrays()

    def _add(self, make: Callable[[], dict[str, int]]) -> int:
        self._ops.append(make)
        return len(self._ops) - 1
