"""Expected counts by records: every case has a copy of every table (cuda/batch/batch.cu, cuda/batch/counts.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, loaded_kernels
from ....device.structs import struct
from ....plans.lowering import SLIM, relowered
from ....plans.plan import Plan
from ....plans.program import UNIT
from ..batch.buffers import GROUP, THREADS
from ..batch.records import LOOK, RecordKernels, RecordLayout, record_layout
from ..batch.sparsity import find_sparsity
from ..lower import A, Contraction, CountProgram, count_program, loops_of, offsets
from ..program.layout import make_places
from .chunk import CODES_KERNELS, CountChunk, CountKernels, enter_codes, fold
from .generated import FamilyCells

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Scratch memory that the chunks of all tables use one after another.


class ChunkScratch:
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


CELL = struct("batch/counts.cu", "Cells")
CELLS = CELL["t"].shape[0]  # of a family, that a warp sums
T_SHARED, D_SHARED, NO_D = 1, 2, 4


def _cells(program: CountProgram, families: FamilyCells, layout: RecordLayout) -> NDArray[Any]:
    """Records of the sums of warps: up to `CELLS` cells of a family each."""
    plan, scopes = program.whole.plan, program.whole.scopes
    made = []
    for f, d in enumerate(program.derivative):
        cells = np.flatnonzero(families.support[f])
        first, t_shared = layout.cell(f)
        t, kind, in_d = cells + first, T_SHARED * t_shared, np.zeros(len(cells), np.int64)
        if d == UNIT:
            kind |= NO_D
        else:
            first, d_shared = layout.cell(d)
            kind |= D_SHARED * d_shared
            # the cell of the derivative, which has some of the family's variables, for each cell of the family
            axes = loops_of(plan.cardinality, plan.axis_rank, scopes, Contraction(f, (d,)))
            in_d = offsets(axes, A)[cells].astype(np.int64) + first
        for at in range(0, len(cells), CELLS):
            record = np.zeros((), CELL)
            some = slice(at, at + CELLS)
            n = len(cells[some])
            record["table_t"], record["table_d"], record["kind"] = f, max(d, 0), kind
            record["root"], record["n"] = program.root[f], n
            record["t"][:n], record["d"][:n] = t[some], in_d[some]
            record["out"][:n] = families.first[f] + np.arange(at, at + n)
            made.append(record)
    return np.array(made, CELL)


class RecordCounts(RecordKernels):
    """A plan and a model's numbers on one GPU, as records. Used inside ``device.active()``; see `CountKernels`."""

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], families: FamilyCells, device: Device,
        memory: Memory, stream: Any,
    ):  # fmt: skip
        plan = relowered(plan, lowering=SLIM)
        program = count_program(plan, split=True)
        sparsity = find_sparsity(program.whole, factors) if plan.cost().flops <= LOOK else None
        messages = program.messages
        layout = record_layout(messages, sparsity, make_places(messages, factors_only=True))
        self._cells, self._n_out = _cells(program, families, layout), len(families.place)
        super().__init__(layout, self._cells, factors, device, memory, stream)
        self._summing = loaded_kernels(device, "batch/counts", (*CODES_KERNELS, "count_families"))

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        batch, n_cells = self.struct(scratch, chunk), len(self._cells)
        counting = chunk.struct(self.more_records, n_cells, 0, self._n_out)
        enter_codes(self._summing, chunk, self.plan.n_variables, stream)
        self.contract(batch, chunk.size // GROUP, stream)
        if n_cells:
            threads = n_cells * chunk.n_blocks * GROUP
            self._summing.launch("count_families", -(-threads // THREADS), THREADS, stream, Arguments(batch, counting))
        fold(self._summing, chunk, counting, self._n_out, stream)
