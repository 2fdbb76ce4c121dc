"""Expected counts by records: every case has a copy of every table (cuda/batch/batch.cu, cuda/batch/counts.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels
from ....plans.lowering import SLIM, relowered
from ....plans.plan import Plan
from ....plans.program import UNIT
from ..batch.buffers import GROUP, THREADS
from ..batch.levels import Level, LevelKernels, level_tiles, most_cases
from ..batch.records import CLEAR_BLOCKS, LOOK, case_factors
from ..batch.sparsity import find_sparsity
from ..program.layout import SECTOR, Places, evidence_chunks, load_factors, word_of
from ..program.records import ANSWER, CHECK, SLOT
from .chunk import CODES_KERNELS, CountChunk, CountKernels, enter_codes, fold
from .generated import CountProgram, FamilyCells, count_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Scratch memory that the chunks of all tables use one after another.


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


CELLS = 8  # of a family, that a warp sums
T_SHARED, D_SHARED, NO_D = 1, 2, 4
CELL_RECORD = np.dtype(
    [(n, np.uint32) for n in ("table_t", "table_d", "kind", "root", "n", "pad")]
    + [(n, np.uint32, (CELLS,)) for n in ("t", "d", "out")]
    + [("more", np.uint32, (2,))]
)
KERNELS = ("batch_clear", "batch_enter", "batch_level", "batch_slim", "batch_finish")


@dataclass(frozen=True)
class RecordLayout:
    """The records of a count program: only tables that differ between cases have cells for every case."""

    places: Places
    n_cells: int  # of one case
    factors: NDArray[Any]  # CASE_FACTOR
    roots: NDArray[np.uint32]  # (components, 3) cell, table, whether shared
    tiles: NDArray[np.uint32]
    products: NDArray[np.uint32]
    steps: NDArray[np.uint32]
    levels: tuple[Level, ...]
    cells: NDArray[Any]  # CELL_RECORD


def record_layout(plan: Plan, factors: Sequence[NDArray[np.float64]], families: FamilyCells) -> RecordLayout:
    """The records of a plan's expected counts; structural zeros of the factors are left out."""
    program = count_program(plan, split=True)
    sparsity = None
    if plan.cost().flops <= LOOK:
        sparsity = find_sparsity(plan, factors, program.binary, [*program.roots, *program.family])
    s = _places(plan, program)
    where = np.full(s.n_tables, -1, np.int64)
    own = {int(t) for t in plan.evidence_factor} | {x.out for x in program.messages.steps}
    at = 0
    for t in sorted(own):
        where[t] = at
        at += int(s.table_size[t])
    tiles, products, steps, levels = level_tiles(plan, program.messages, sparsity, s, where)
    roots = [(int(s.table_cell[t]) if where[t] < 0 else where[t], t, where[t] < 0) for t in program.roots]
    return RecordLayout(
        s, at, case_factors(s, where, sparsity), np.array(roots, np.uint32).reshape(-1, 3),
        tiles, products, steps, levels, _cells(plan, program, families, s, where),
    )  # fmt: skip


def _places(plan: Plan, program: CountProgram) -> Places:
    """The factors in the arena that all cases share; the tables of a case have none there."""
    n_tables = len(program.binary.scopes) - len(program.family) + 1
    sizes = [plan.size(x) for x in program.binary.scopes[: n_tables - 1]] + [1]
    cells, at, unit = [0] * n_tables, 0, SECTOR // 8
    for f in range(plan.n_factors):
        cells[f] = at
        at += -(-sizes[f] // unit) * unit
    cells[-1] = at  # the constant 1
    known, chunks = evidence_chunks(plan, cells, sizes)
    return Places(
        n_cells=at + 1, n_tables=n_tables, n_factors=plan.n_factors, factor_cells=at,
        table_cell=np.array(cells, np.uint32), table_size=np.array(sizes, np.int64), known=known, chunks=chunks,
        answers=np.zeros(0, ANSWER), roots=np.zeros(0, np.uint32), checks=np.zeros(0, CHECK), real="float64",
    )  # fmt: skip


def _cells(
    plan: Plan, program: CountProgram, families: FamilyCells, s: Places, where: NDArray[np.int64]
) -> NDArray[Any]:
    """Records of the sums of warps: up to `CELLS` cells of a family each."""
    made = []
    for f, d in enumerate(program.derivative):
        t_shared = where[f] < 0
        cells = np.flatnonzero(families.support[f])
        t = cells + (int(s.table_cell[f]) if t_shared else int(where[f]))
        kind, in_d = T_SHARED if t_shared else 0, np.zeros(len(cells), np.int64)
        if d == UNIT:
            kind |= NO_D
        else:
            d_shared = where[d] < 0
            kind |= D_SHARED if d_shared else 0
            in_d = _offsets(plan, program.binary.scopes[f], program.binary.scopes[d])[cells]
            in_d = in_d + (int(s.table_cell[d]) if d_shared else int(where[d]))
        for at in range(0, len(cells), CELLS):
            record = np.zeros((), CELL_RECORD)
            some = slice(at, at + CELLS)
            n = len(cells[some])
            record["table_t"], record["table_d"], record["kind"] = f, max(d, 0), kind
            record["root"], record["n"] = program.root[f], n
            record["t"][:n], record["d"][:n] = t[some], in_d[some]
            record["out"][:n] = families.first[f] + np.arange(at, at + n)
            made.append(record)
    return np.array(made, CELL_RECORD)


def _offsets(plan: Plan, scope: tuple[int, ...], other: tuple[int, ...]) -> NDArray[np.int64]:
    """The cell of a table over some variables of `scope` for each cell over `scope`."""
    offsets = np.zeros(1, np.int64)
    for v in scope:
        stride = plan.size(other[other.index(v) + 1 :]) if v in other else 0
        offsets = np.add.outer(offsets, np.arange(int(plan.cardinality[v])) * stride).ravel()
    return offsets


class RecordCounts:
    """A plan and a model's numbers on one GPU, as records. Used inside ``device.active()``; see `CountKernels`."""

    kind = "tables"

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], families: FamilyCells, device: Device,
        memory: Memory, stream: Any,
    ):  # fmt: skip
        self.plan, self.device = (plan := relowered(plan, lowering=SLIM)), device
        self.layout = layout = record_layout(plan, factors, families)
        self._n_out = len(families.place)
        numbers = self._numbers(factors)
        records = (layout.tiles, layout.steps, layout.factors, layout.places.known, layout.roots, layout.cells)
        self._records = [memory.put(x, stream) for x in (*numbers, *records, layout.products)]
        self._kernels = Kernels(device, "batch/batch", KERNELS)
        self._levels = LevelKernels(device, self._kernels, self._records[-1], layout.levels)
        self._summing = Kernels(device, "batch/counts", (*CODES_KERNELS, "count_families"))

    def _numbers(self, factors: Sequence[NDArray[np.float64]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The factors' entries and the slots of all tables."""
        pristine, slots = load_factors(self.plan, self.layout.places, factors)
        slots[-1] = (word_of(np.float64(1.0)), 0)
        return np.append(pristine, 1.0), slots.astype(SLOT)

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        for address, array in zip(self._records, self._numbers(factors), strict=False):
            self.device.upload(address, np.ascontiguousarray(array), stream)
        stream.synchronize()

    @property
    def case_bytes(self) -> int:
        return 8 * (self.layout.n_cells + self.layout.places.n_tables)

    @property
    def most_cases(self) -> int:
        return most_cases(self.layout.levels, len(self.layout.factors))

    def takes(self, smallest: float) -> bool:
        """See `CountKernels.takes`: tables are scaled."""
        return True

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, ...]:
        """See `CountKernels.scratch`; zeros, since structural zeros are never written."""
        sizes = []
        for n in (8 * self.layout.n_cells, 8 * self.layout.places.n_tables):
            address = memory.empty(n * size)
            arguments = Arguments(np.array([address], np.uint64), n * GROUP // 8, size // GROUP)
            if n:
                self._kernels.launch("batch_clear", CLEAR_BLOCKS, THREADS, stream, arguments)
            sizes.append(address)
        stream.synchronize()
        return tuple(sizes)

    def queue(self, chunk: CountChunk, scratch: tuple[int, ...], stream: Any) -> None:
        layout, groups = self.layout, chunk.size // GROUP
        pristine, shared, tiles, steps, factors, known, roots, cells, _ = self._records
        words = [scratch[0], pristine, scratch[1], shared, tiles, steps, factors, known]
        words += [chunk.state, chunk.weight, chunk.weight_row, 0, roots, 0, chunk.log_evidence]
        counts = [chunk.size, len(layout.factors), 0, len(layout.roots), layout.n_cells, layout.places.n_tables]
        numbers = np.array([*counts, chunk.size, 0], np.uint32).view(np.uint64)
        struct = np.concatenate([np.array(words, np.uint64), numbers])
        counting = chunk.struct(cells, len(layout.cells), 0, self._n_out)
        whole = Arguments(struct)

        def call(name: str, warps: int) -> None:
            self._kernels.launch(name, -(-warps * groups * GROUP // THREADS), THREADS, stream, whole)

        enter_codes(self._summing, chunk, self.plan.n_variables, stream)
        if len(layout.factors):
            call("batch_enter", len(layout.factors))
        self._levels.queue(struct, groups, stream)
        call("batch_finish", 1)
        if len(layout.cells):
            threads = len(layout.cells) * chunk.n_blocks * GROUP
            self._summing.launch("count_families", -(-threads // THREADS), THREADS, stream, Arguments(struct, counting))
        fold(self._summing, chunk, counting, self._n_out, stream)

    def close(self) -> None:
        self._levels.close()
        self._kernels.close()
        self._summing.close()
