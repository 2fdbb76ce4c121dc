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
from ....plans.plan import Plan
from ..program.layout import Places, load_factors, make_places
from ..program.records import ANSWER, CASE_FACTOR, SLOT, Binary, Step, binary_program, levels_of, loops_of
from .buffers import GROUP, THREADS, TRANSPOSING, Bound, Chunk, answers_to_rows, enter_evidence
from .tiling import A_SHARED, B_SHARED, FIRST, SHAPES, WORDS, Sparsity, TileMaker, Tiles, find_sparsity

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


LEVEL_WARPS = 4  # of a block of the levels' kernel
CLEAR_BLOCKS = 1024
MOST_CASES = 1 << 14  # of a chunk
MOST_BLOCKS = 2**31 - 1
CASE_CHECK = np.dtype([(n, np.uint32) for n in ("cell", "card", "table", "root")])
LOOK = 40_000_000  # most multiply-adds of a propagation for which structural zeros are searched


@dataclass(frozen=True)
class BatchLayout:
    """The records of a plan: only tables that differ between cases have cells for every case."""

    places: Places
    n_cells: int  # of one case
    factors: NDArray[Any]  # evidence factors
    table_cell: NDArray[np.int64]  # (T,) in a case's arena; -1: shared by all cases
    roots: NDArray[np.uint32]  # (components, 3) cell, table, whether shared
    tiles: NDArray[np.uint32]  # (n, WORDS) struct Tile
    steps: NDArray[np.uint32]  # (K, 2)
    levels: tuple[tuple[int, int], ...]  # first tile, tiles
    checks: NDArray[Any]  # (V,) CASE_CHECK


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
    holders = case_factors(s, where)
    roots = [(int(s.table_cell[t]) if where[t] < 0 else where[t], t, where[t] < 0) for t in plan.root_table.tolist()]
    tiles, steps, levels = level_tiles(plan, program, sparsity, s, where)
    checks = np.zeros(plan.n_variables, CASE_CHECK)
    checks["table"], checks["root"] = s.checks["table"], s.checks["root"]
    checks["cell"], checks["card"] = where[plan.posterior_table], plan.cardinality
    rooted = np.array(roots, np.uint32).reshape(-1, 3)
    return BatchLayout(s, at, holders, where, rooted, tiles, steps, levels, checks)


def case_factors(s: Places, where: NDArray[np.int64]) -> NDArray[Any]:
    """Records of the evidence factors, of which every case has its own."""
    first = s.chunks[s.chunks["from"] == 0]
    holders = np.zeros(len(first), CASE_FACTOR)
    for name in ("cell", "table", "known", "n_known"):
        holders[name] = first[name]
    holders["n"], holders["to"] = s.table_size[first["table"]], where[first["table"]]
    return holders


def level_tiles(
    plan: Plan, program: Binary, sparsity: Sparsity | None, s: Places, where: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], tuple[tuple[int, int], ...]]:
    """Records, steps and levels; contractions with long sums come first in a level."""
    maker, first_step = TileMaker(), dict[int, int]()
    made: dict[int, list[tuple[float, NDArray[np.uint32]]]] = {}
    steps: list[NDArray[np.uint32]] = [np.zeros((1, 2), np.uint32)]
    n_steps = 1
    for i, x in enumerate(program.steps):
        alone = len(x.ins) == 1
        loops = sparsity.loops[i] if sparsity is not None else loops_of(plan, program.scopes, x)
        tiles = maker.tiles(loops, alone, _used_cells(sparsity, i))
        if id(tiles) not in first_step:
            first_step[id(tiles)] = n_steps
            steps.append(tiles.steps)
            n_steps += len(tiles.steps)
        ins = (x.ins[0], s.n_tables - 1 if alone else x.ins[1])
        records = _records(tiles, ins, x.out, s, where)
        records[:, 0] += first_step[id(tiles)]
        made.setdefault(program.level[i], []).append((-float(tiles.count.max(initial=0)), records))
    levels, parts, at = [], [np.zeros((0, WORDS), np.uint32)], 0
    for level in sorted(made):
        here = [records for _, records in sorted(made[level], key=lambda m: m[0])]
        parts += here
        n = sum(map(len, here))
        levels.append((at, n))
        at += n
    return np.concatenate(parts), np.concatenate(steps), tuple(x for x in levels if x[1])


def _used_cells(sparsity: Sparsity | None, step: int) -> list[NDArray[np.bool_]] | None:
    """Used cells of the output and structurally non-zero ones of the inputs, for `TileMaker.tiles`."""
    if sparsity is None:
        return None
    s = sparsity.program.steps[step]
    second = sparsity.nonzero[s.ins[1]] if len(s.ins) == 2 else np.zeros(0, np.bool_)
    cells = [sparsity.used(s.out), sparsity.nonzero[s.ins[0]], second]
    return None if all(x.all() for x in cells) else cells


def _records(
    tiles: Tiles, ins: tuple[int, int], out: int, s: Places, where: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """struct Tile of one contraction, steps counted from 0."""
    a, b = ins[::-1] if tiles.swapped else ins
    tm, tn = SHAPES[tiles.shape]
    wide = max(tn, 1)
    made = np.zeros((len(tiles.a), WORDS), np.uint32)
    made[:, 0], made[:, 1], made[:, 2] = tiles.first, tiles.count, tiles.mask
    made[:, 3] = tiles.shape | (A_SHARED if where[a] < 0 else 0) | (B_SHARED if where[b] < 0 else 0)
    made[:1, 3] |= FIRST
    made[:, 4:7] = a, b, out

    def first(t: int) -> int:
        return int(s.table_cell[t]) if where[t] < 0 else int(where[t])

    at = 8
    for base, cells, n in (
        (first(a), tiles.a, tm), (first(b), tiles.b, tn), (first(out), tiles.out_m, tm), (0, tiles.out_n, wide)
    ):  # fmt: skip
        made[:, at : at + n] = cells + np.uint32(base)
        at += n
    return made


def answers_of(plan: Plan, layout: BatchLayout, targets: Sequence[int]) -> tuple[NDArray[Any], int]:
    """Records of the posteriors that are wanted, variable after variable, and the number of their cells."""
    made, at = [], 0
    for v in targets:
        card = int(plan.cardinality[v])
        made.append((int(layout.table_cell[plan.posterior_table[v]]), card, at))
        at += card
    return np.array(made, ANSWER), at


class RecordProgram:
    """A plan and a model's numbers on one GPU, as records. Used inside ``device.active()``."""

    kind = "tables"

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: Device,
        memory: Memory,
        stream: Any,
        real: str = "float64",
    ):
        self.plan = plan
        self.layout = layout = batch_layout(plan, factors if plan.cost().flops <= 2 * LOOK else None, real)
        s = self.layout.places
        pristine, slots = load_factors(plan, s, factors)
        tables = (np.append(pristine, pristine.dtype.type(1.0)), slots.astype(SLOT), layout.tiles, layout.steps)
        more = (layout.factors, s.known, layout.roots, layout.checks)
        self._records = [memory.put(x, stream) for x in (*tables, *more)]
        self._cell_bytes, self._checked = pristine.dtype.itemsize, real == "float32"
        names = ("batch_clear", "batch_enter", "batch_level", "batch_finish", "batch_check")
        self._kernels = Kernels(device, "batch/batch", (*TRANSPOSING, *names), real=real)

    @property
    def case_bytes(self) -> int:
        return self._cell_bytes * self.layout.n_cells + 8 * self.layout.places.n_tables

    @property
    def most_cases(self) -> int:
        most_tiles = max((n for _, n in self.layout.levels), default=1)
        return min(MOST_CASES, MOST_BLOCKS // most_tiles // GROUP * GROUP)

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
        pristine, shared, tiles, steps, factors, known, roots, _ = self._records
        words = [scratch[0], pristine, scratch[1], shared, tiles, steps, factors, known]
        words += [chunk.state, chunk.weight, chunk.weight_row, memory.put(answers, stream), roots]
        words += [chunk.posterior, chunk.log_evidence]
        counts = [chunk.size, len(layout.factors), len(answers), len(layout.roots), layout.n_cells]
        numbers = np.array([*counts, layout.places.n_tables], np.uint32).view(np.uint64)
        struct = np.concatenate([np.array(words, np.uint64), numbers])
        evidence = enter_evidence(chunk, self.plan.n_variables)
        return Bound(evidence, struct, chunk.size, len(answers), answers_to_rows(chunk, n_out))

    def queue(self, bound: Bound, stream: Any) -> None:
        groups, whole = bound.size // GROUP, Arguments(bound.struct)

        def call(name: str, warps: int) -> None:
            self._kernels.launch(name, -(-warps * groups * GROUP // THREADS), THREADS, stream, whole)

        bound.evidence.queue(self._kernels, stream)
        if len(self.layout.factors):
            call("batch_enter", len(self.layout.factors))
        warps = min(LEVEL_WARPS, groups)
        for first, n_tiles in self.layout.levels:
            arguments = Arguments(bound.struct, first, n_tiles)
            blocks = n_tiles * -(-groups // warps)
            self._kernels.launch("batch_level", blocks, warps * GROUP, stream, arguments)
        call("batch_finish", bound.n_answers + 1)
        if self._checked:
            n = len(self.layout.checks)
            arguments = Arguments(bound.struct, np.array([self._records[-1]], np.uint64), n)
            self._kernels.launch("batch_check", -(-n * groups * GROUP // THREADS), THREADS, stream, arguments)
        if bound.rows is not None:
            bound.rows.queue(self._kernels, stream)

    def close(self) -> None:
        self._kernels.close()
