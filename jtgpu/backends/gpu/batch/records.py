"""Tables of cases by records: every case has a copy of every table, a kernel computes a level (cuda/batch/batch.cu).

The fallback of generated kernels: it takes any network and any weights, since tables are scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels
from ....plans.lowering import SLIM, relowered
from ....plans.plan import Plan
from ..program.layout import Places, load_factors, make_places
from ..program.records import CASE_ANSWER, CASE_FACTOR, SLOT, Binary, Step, binary_program, levels_of
from .buffers import GROUP, THREADS, TRANSPOSING, Bound, Chunk, answers_to_rows, enter_evidence
from .levels import Level, LevelKernels, level_tiles, most_cases
from .side_by_side import COUNTS
from .sparsity import Sparsity, find_sparsity

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Long sums split in two: with a lane a case no other warp helps with a sum, so every sum must be short.
#
# A contraction that sums over more than twice `MOST_SUM` configurations leaves its slowest summed variables in a
# table of its own, which a second contraction sums out. A single sum of 65,536 configurations takes milliseconds, and
# the whole level waits for it; the table costs one entry for every `MOST_SUM` multiply-adds.

MOST_SUM = 128  # configurations


def split_sums(plan: Plan, program: Binary) -> Binary:
    """The same program without long sums; new tables follow the others."""
    scopes = list(program.scopes)
    steps: list[Step] = []

    def add(step: Step) -> None:
        joint = set().union(*(scopes[t] for t in step.ins))
        summed = sorted(joint - set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))
        length = plan.size(tuple(summed))
        if length <= 2 * MOST_SUM:
            steps.append(step)
            return
        left: set[int] = set()
        for v in summed:
            if length <= MOST_SUM:
                break
            left.add(v)
            length //= int(plan.cardinality[v])
        if len(step.ins) == 1 and len(left) == len(summed):  # one variable of very many states
            steps.append(step)
            return
        scopes.append(tuple(sorted(left | set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))))
        made = len(scopes) - 1
        steps.append(Step(made, step.ins, False))
        add(Step(step.out, (made,), step.posterior))

    for step in program.steps:
        add(step)
    return Binary(tuple(steps), tuple(scopes), levels_of(plan, steps))


CLEAR_BLOCKS = 1024
CASE_CHECK = np.dtype([(n, np.uint32) for n in ("cell", "card", "table", "root")])
LOOK = 1_000_000_000  # most multiply-adds of a propagation for which structural zeros are searched
ENTRIES = 32  # of an evidence factor, that a warp enters
PRODUCT = 0.125  # cost of a multiply-add, in cells read or written


@dataclass(frozen=True)
class BatchLayout:
    """The records of a plan: only tables that differ between cases have cells for every case."""

    places: Places
    n_cells: int  # of one case
    factors: NDArray[Any]  # evidence factors
    known: NDArray[Any]  # their axes
    table_cell: NDArray[np.int64]  # (T,) in a case's arena; -1: shared by all cases
    roots: NDArray[np.uint32]  # (components, 3) cell, table, whether shared
    tiles: NDArray[np.uint32]  # (n, WORDS) struct Tile
    products: NDArray[np.uint32]  # (n, PRODUCT_WORDS) struct Product
    steps: NDArray[np.uint32]  # (K, 2)
    levels: tuple[Level, ...]
    checks: NDArray[Any]  # (V,) CASE_CHECK
    cost: float  # of a case, in cells of tables that are read and written


def batch_layout(
    plan: Plan, factors: Sequence[NDArray[np.float64]] | None = None, real: str = "float64"
) -> BatchLayout:
    """The records of a plan, without those of the answers; with `factors`, structural zeros are left out."""
    program = split_sums(plan, binary_program(plan))
    sparsity = find_sparsity(plan, factors, program) if factors is not None else None
    s = make_places(plan, program, real)
    where = np.full(s.n_tables, -1, np.int64)
    at = 0
    own = sorted({int(t) for t in plan.evidence_factor} | set(range(s.n_factors, s.n_tables - 1)))
    for t in own:
        where[t] = at
        at += int(s.table_size[t])
    holders = case_factors(s, where, sparsity)
    roots = [(int(s.table_cell[t]) if where[t] < 0 else where[t], t, where[t] < 0) for t in plan.root_table.tolist()]
    tiles, products, steps, levels = level_tiles(plan, program, sparsity, s, where)
    checks = np.zeros(plan.n_variables, CASE_CHECK)
    checks["table"], checks["root"] = s.checks["table"], s.checks["root"]
    checks["cell"], checks["card"] = where[plan.posterior_table], plan.cardinality
    rooted = np.array(roots, np.uint32).reshape(-1, 3)
    cost = _cost_of(plan, program, where, sparsity)
    return BatchLayout(s, at, holders, s.known, where, rooted, tiles, products, steps, levels, checks, cost)


def case_factors(s: Places, where: NDArray[np.int64], sparsity: Sparsity | None) -> NDArray[Any]:
    """Records of the evidence factors, of which every case has its own: `ENTRIES` entries each, all or those used."""
    made = [np.zeros(0, CASE_FACTOR)]
    for factor in s.chunks[s.chunks["from"] == 0]:
        t = int(factor["table"])
        n = int(s.table_size[t])
        bits = np.zeros(-(-n // ENTRIES) * ENTRIES, np.bool_)
        bits[:n] = True if sparsity is None else sparsity.used(t)
        records = np.zeros(len(bits) // ENTRIES, CASE_FACTOR)
        records["table"], records["known"], records["n_known"] = t, factor["known"], factor["n_known"]
        records["from"] = np.arange(0, n, ENTRIES)
        records["cell"], records["to"] = int(factor["cell"]) + records["from"], where[t] + records["from"]
        records["used"] = np.packbits(bits, bitorder="little").view("<u4")
        made.append(records[(records["used"] != 0) | (records["from"] == 0)])
    return np.concatenate(made)


def _cost_of(plan: Plan, program: Binary, where: NDArray[np.int64], sparsity: Sparsity | None) -> float:
    """Cells of tables that a case reads and writes, and its products."""
    used = [int(sparsity.used(t).sum()) if sparsity else plan.size(s) for t, s in enumerate(program.scopes)]
    cost = 0.0
    for i, x in enumerate(program.steps):
        cost += sum(used[t] for t in (x.out, *x.ins) if where[t] >= 0)
        joint = tuple(set().union(*(program.scopes[t] for t in x.ins)))
        cost += PRODUCT * float(sparsity.count[i] if sparsity else plan.size(joint))
    return cost


def answers_of(plan: Plan, layout: BatchLayout, targets: Sequence[int]) -> tuple[NDArray[Any], int]:
    """Records of the posteriors that are wanted, variable after variable, and the number of their cells."""
    made, at = [], 0
    for v in targets:
        card = int(plan.cardinality[v])
        made.append((int(layout.table_cell[plan.posterior_table[v]]), card, at, 0))
        at += card
    return np.array(made, CASE_ANSWER), at


class RecordProgram:
    """A plan and a model's numbers on one GPU, as records. Used inside ``device.active()``."""

    kind = "tables"

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], device: Device, memory: Memory, stream: Any,
        real: str = "float64",
    ):  # fmt: skip
        self.plan = plan = relowered(plan, lowering=SLIM)
        self.layout = layout = batch_layout(plan, factors if plan.cost().flops <= 2 * LOOK else None, real)
        s = self.layout.places
        pristine, slots = load_factors(plan, s, factors)
        tables = (np.append(pristine, pristine.dtype.type(1.0)), slots.astype(SLOT), layout.tiles, layout.steps)
        more = (layout.factors, layout.known, layout.roots, layout.checks, layout.products)
        self._records = [memory.put(x, stream) for x in (*tables, *more)]
        self._cell_bytes, self._checked = pristine.dtype.itemsize, real == "float32"
        names = ("batch_clear", "batch_enter", "batch_level", "batch_slim", "batch_finish", "batch_check")
        self._kernels = Kernels(device, "batch/batch", (*TRANSPOSING, *names), real=real)
        self._levels = LevelKernels(device, self._kernels, self._records[-1], layout.levels, real)

    @property
    def case_bytes(self) -> int:
        return self._cell_bytes * self.layout.n_cells + 8 * self.layout.places.n_tables

    @property
    def most_cases(self) -> int:
        return most_cases(self.layout.levels, len(self.layout.factors))

    @property
    def wave(self) -> int:
        """See `Program.wave`; warps start independently."""
        return GROUP

    def takes(self, smallest: float) -> bool:
        """See `Program.takes`: tables are scaled."""
        return True

    def scratch(self, memory: Memory, stream: Any, size: int) -> tuple[int, int]:
        """See `Program.scratch`; zeros, since structural zeros are never written."""
        cells = memory.empty(self._cell_bytes * self.layout.n_cells * size)
        slots = memory.empty(8 * self.layout.places.n_tables * size)
        for address, n in ((cells, self._cell_bytes * self.layout.n_cells), (slots, 8 * self.layout.places.n_tables)):
            arguments = Arguments(np.array([address], np.uint64), n * GROUP // 8, size // GROUP)
            self._kernels.launch("batch_clear", CLEAR_BLOCKS, THREADS, stream, arguments)
        stream.synchronize()
        return cells, slots

    def bind(
        self, chunk: Chunk, scratch: tuple[int, int], targets: Sequence[int], memory: Memory, stream: Any
    ) -> Bound:
        layout = self.layout
        answers, n_out = answers_of(self.plan, layout, targets)
        pristine, shared, tiles, steps, factors, known, roots, *_ = self._records
        words = [scratch[0], pristine, scratch[1], shared, tiles, steps, factors, known]
        words += [chunk.state, chunk.weight, chunk.weight_row, memory.put(answers, stream), roots]
        words += [chunk.posterior, chunk.log_evidence]
        counts = [chunk.size, len(layout.factors), len(answers), len(layout.roots), layout.n_cells]
        numbers = np.array([*counts, layout.places.n_tables, chunk.size, 0], np.uint32).view(np.uint64)
        struct = np.concatenate([np.array(words, np.uint64), numbers])
        evidence = enter_evidence(chunk, self.plan.n_variables)
        return Bound(evidence, struct, len(answers), answers_to_rows(chunk, n_out))

    def queue(self, bound: Bound, stream: Any, n: int) -> None:
        groups, struct = -(-n // GROUP), bound.struct.copy()
        struct[COUNTS:].view(np.uint32)[0] = groups * GROUP
        whole = Arguments(struct)

        def call(name: str, warps: int) -> None:
            self._kernels.launch(name, -(-warps * groups * GROUP // THREADS), THREADS, stream, whole)

        bound.evidence.queue(self._kernels, groups, stream)
        if len(self.layout.factors):
            call("batch_enter", len(self.layout.factors))
        self._levels.queue(struct, groups, stream)
        call("batch_finish", bound.n_answers + 1)
        if self._checked:
            n = len(self.layout.checks)
            arguments = Arguments(struct, np.array([self._records[-2]], np.uint64), n)
            self._kernels.launch("batch_check", -(-n * groups * GROUP // THREADS), THREADS, stream, arguments)
        if bound.rows is not None:
            bound.rows.queue(self._kernels, groups, stream)

    def close(self) -> None:
        self._levels.close()
        self._kernels.close()
