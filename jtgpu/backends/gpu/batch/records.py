"""Tables of cases by records: every case has a copy of every table, a kernel computes a level (cuda/batch/batch.cu).

The fallback of generated kernels: it takes any network and any weights, since tables are scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, loaded_kernels
from ....device.structs import filled, struct
from ....plans.lowering import SLIM, relowered
from ....plans.plan import Plan
from ..lower import Lowered, lowered, placed, split_sums
from ..program.layout import TablePlaces, load_factors, make_places
from .buffers import GROUP, THREADS, Bound, Chunk
from .levels import Level, LevelKernels, level_tiles, most_cases
from .sparsity import Sparsity, find_sparsity

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERNELS = ("batch_clear", "batch_enter", "batch_level", "batch_slim", "batch_finish", "batch_check")
CLEAR_BLOCKS = 1024
LOOK = 1_000_000_000  # most multiply-adds of a propagation for which structural zeros are searched
ENTRIES = 32  # of an evidence factor, that a warp enters
PRODUCT = 0.125  # cost of a multiply-add, in cells read or written
BATCH = struct("batch/batch.cuh", "Batch")
FACTOR = struct("batch/batch.cuh", "Factor")
ANSWER = struct("batch/batch.cuh", "Answer")
CHECK = struct("batch/batch.cu", "Check")


@dataclass(frozen=True)
class RecordLayout:
    """The records of some contractions: only tables that differ between cases have cells for every case."""

    program: Lowered
    places: TablePlaces
    n_cells: int  # of one case
    factors: NDArray[Any]  # (n,) FACTOR: evidence factors
    table_cell: NDArray[np.int64]  # (T,) in a case's arena; -1: shared by all cases
    roots: NDArray[np.uint32]  # (components, 3) cell, table, whether shared
    tiles: NDArray[Any]  # (n,) TILE
    products: NDArray[Any]  # (n,) PRODUCT
    steps: NDArray[np.uint32]  # (K, 2)
    levels: tuple[Level, ...]

    def cell(self, table: int) -> tuple[int, bool]:
        """First cell of a table, and whether all cases share it."""
        at = int(self.table_cell[table])
        return (int(self.places.table_cell[table]), True) if at < 0 else (at, False)


def record_layout(program: Lowered, sparsity: Sparsity | None, places: TablePlaces) -> RecordLayout:
    """The records of some contractions; what `sparsity` finds to be zero is left out."""
    where = np.full(places.n_tables, -1, np.int64)
    own = sorted({int(t) for t in program.plan.evidence_factor} | {x.out for x in program.steps})
    where[own], n_cells = placed(places.table_size[own].tolist())
    factors = _factors(places, where, sparsity)
    roots = [(places.table_cell[t] if where[t] < 0 else where[t], t, where[t] < 0) for t in program.roots]
    rooted = np.array(roots, np.uint32).reshape(-1, 3)
    tiled = level_tiles(program, sparsity, places, where)
    return RecordLayout(program, places, n_cells, factors, where, rooted, *tiled)


def _factors(s: TablePlaces, where: NDArray[np.int64], sparsity: Sparsity | None) -> NDArray[Any]:
    """Records of the evidence factors, of which every case has its own: `ENTRIES` entries each, all or those used."""
    made = [np.zeros(0, FACTOR)]
    for factor in s.chunks[s.chunks["from"] == 0]:
        t = int(factor["table"])
        n = int(s.table_size[t])
        bits = np.zeros(-(-n // ENTRIES) * ENTRIES, np.bool_)
        bits[:n] = True if sparsity is None else sparsity.used(t)
        records = np.zeros(len(bits) // ENTRIES, FACTOR)
        records["table"], records["axes"], records["n_axes"] = t, factor["known"], factor["n_known"]
        records["from"] = np.arange(0, n, ENTRIES)
        records["cell"], records["to"] = int(factor["cell"]) + records["from"], where[t] + records["from"]
        records["used"] = np.packbits(bits, bitorder="little").view("<u4")
        made.append(records[(records["used"] != 0) | (records["from"] == 0)])
    return np.concatenate(made)


def _cost_of(program: Lowered, where: NDArray[np.int64], sparsity: Sparsity | None) -> float:
    """Cells of tables that a case reads and writes, and its products."""
    used = program.sizes if sparsity is None else [int(sparsity.used(t).sum()) for t in range(len(program.scopes))]
    cost = 0.0
    for i, x in enumerate(program.steps):
        cost += sum(used[t] for t in (x.out, *x.ins) if where[t] >= 0)
        joint = tuple(set().union(*(program.scopes[t] for t in x.ins)))
        cost += PRODUCT * float(sparsity.count[i] if sparsity else program.plan.size(joint))
    return cost


class RecordKernels:
    """The records of some contractions and a model's numbers on one GPU. Used inside ``device.active()``."""

    # more: Records that the kernels around the contractions read; `more_records` is their address

    kind = "tables"
    is_direct = False
    wave = GROUP  # warps start independently

    def __init__(
        self, layout: RecordLayout, more: NDArray[Any], factors: Sequence[NDArray[np.float64]], device: Device,
        memory: Memory, stream: Any,
    ):  # fmt: skip
        self.plan, self.layout, self.device = layout.program.plan, layout, device
        real = layout.places.real
        records = (layout.tiles, layout.steps, layout.factors, layout.places.known, layout.roots, more, layout.products)
        self._records = [memory.put(x, stream) for x in (*self._numbers(factors), *records)]
        self.more_records = self._records[-2]
        self._scratch_bytes = np.dtype(real).itemsize * layout.n_cells, 8 * layout.places.n_tables
        self.case_bytes, self.most_cases = sum(self._scratch_bytes), most_cases(layout.levels, len(layout.factors))
        self._kernels = loaded_kernels(device, "batch/batch", KERNELS, real=real)
        self._levels = LevelKernels(device, self._kernels, self._records[-1], layout.levels, real)

    def _numbers(self, factors: Sequence[NDArray[np.float64]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The factors' entries and the slots of all tables."""
        pristine, slots = load_factors(self.plan, self.layout.places, factors)
        return np.append(pristine, pristine.dtype.type(1.0)), slots

    def reload(self, factors: Sequence[NDArray[np.float64]], stream: Any) -> None:
        """Replace the model's numbers; no entry may be other than zero that was zero when this was made."""
        for address, array in zip(self._records, self._numbers(factors), strict=False):
            self.device.upload(address, np.ascontiguousarray(array), stream)
        stream.synchronize()

    def takes(self, smallest: float) -> bool:
        """Whether weights as small as this (log2) can be represented: always, since tables are scaled."""
        return True

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        """Cells and slots of so many cases; zeros, since structural zeros are never written."""
        cells, slots = (memory.empty(n * size) for n in self._scratch_bytes)
        for address, n in zip((cells, slots), self._scratch_bytes, strict=True):
            if n:
                arguments = Arguments(np.array([address], np.uint64), n * GROUP // 8, size // GROUP)
                self._kernels.launch("batch_clear", CLEAR_BLOCKS, THREADS, stream, arguments)
        stream.synchronize()
        return cells, slots

    def struct(
        self, scratch: Sequence[int], chunk: Any, posterior: int = 0, answers: int = 0, n_answers: int = 0
    ) -> NDArray[Any]:
        """struct Batch of a chunk, which has the addresses of the evidence and of ln P(e)."""
        pristine, shared, tiles, steps, factors, known, roots, *_ = self._records
        return filled(
            BATCH, arena=scratch[0], shared=pristine, slots=scratch[1], shared_slots=shared, tiles=tiles, steps=steps,
            factors=factors, axes=known, state=chunk.state, weight=chunk.weight, weight_row=chunk.weight_row,
            answers=answers, roots=roots, posterior=posterior, log_evidence=chunk.log_evidence, n_cases=chunk.size,
            n_factors=len(self.layout.factors), n_answers=n_answers, n_roots=len(self.layout.roots),
            n_cells=self.layout.n_cells, n_tables=self.layout.places.n_tables, stride=chunk.size,
        )  # fmt: skip

    def contract(self, struct: NDArray[Any], groups: int, stream: Any) -> None:
        """Queue the evidence, the contractions, and the answers, for some groups of cases."""
        n_factors = len(self.layout.factors)
        if n_factors:
            self.launch("batch_enter", n_factors * groups, stream, struct)
        self._levels.queue(struct, groups, stream)
        self.launch("batch_finish", (int(struct["n_answers"]) + 1) * groups, stream, struct)

    def launch(self, name: str, warps: int, stream: Any, *arguments: NDArray[Any] | int) -> None:
        """Queue a kernel of so many warps."""
        self._kernels.launch(name, -(-warps * GROUP // THREADS), THREADS, stream, Arguments(*arguments))

    def close(self) -> None:
        """Free the streams of the levels."""
        self._levels.close()


class RecordProgram(RecordKernels):
    """A plan and a model's numbers on one GPU, as records. Used inside ``device.active()``."""

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device, memory: Memory, stream: Any,
        real: str = "float64",
    ):  # fmt: skip
        plan = relowered(plan, lowering=SLIM)
        program = split_sums(lowered(plan))
        sparsity = find_sparsity(program, factors) if plan.cost().flops <= 2 * LOOK else None
        layout = record_layout(program, sparsity, make_places(program, real))
        self.cost = _cost_of(program, layout.table_cell, sparsity)  # of a case, in cells of tables read and written
        checks = np.zeros(plan.n_variables, CHECK)
        posteriors = program.answers[: plan.n_variables]
        checks["table"], checks["root"] = posteriors, [program.component[t] for t in posteriors]
        checks["cell"], checks["card"] = layout.table_cell[list(posteriors)], plan.cardinality
        self._n_checks = len(checks) if real == "float32" else 0
        super().__init__(layout, checks, factors, device, memory, stream)

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        cards = [int(self.plan.cardinality[v]) for v in targets]
        at, _ = placed(cards)
        cells = self.layout.table_cell[self.plan.posterior_table[list(targets)]].tolist()
        answers = np.array([(*x, 0) for x in zip(cells, cards, at, strict=True)], ANSWER)
        struct = self.struct(scratch, chunk, chunk.posterior, memory.put(answers, stream), len(answers))
        return Bound(struct, len(answers))

    def queue(self, bound: Bound, stream: Any, n: int) -> None:
        groups = -(-n // GROUP)
        struct: Any = bound.struct.copy()
        struct["n_cases"] = groups * GROUP
        self.contract(struct, groups, stream)
        if self._n_checks:
            records = np.array([self.more_records], np.uint64)
            self.launch("batch_check", self._n_checks * groups, stream, struct, records, self._n_checks)
