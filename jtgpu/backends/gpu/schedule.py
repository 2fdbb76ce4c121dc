"""From a plan to everything that lies on the card: records, tasks of every level, evidence chunks, answers.

Arrays only; knows no device. `jtgpu.backends.gpu.engine` uploads it, and tests run it on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import TableTooLarge
from ...plan import Plan
from .products import Listed, Products
from .records import ANSWER, CHUNK, DIGIT, INLINE_DIGITS, KNOWN, MOST_AXES, NONE, OP, ROUND, SLOT, STEP, TASK, WARPS
from .rounds import rounds_of
from .shapes import (
    HEAVY,
    LIST_MOST,
    OUT,
    A,
    B,
    Binary,
    Loop,
    Step,
    Tiling,
    batch_tiling,
    best_tiling,
    binary_program,
    list_tiling,
    loops_of,
    offsets,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Level", "Schedule", "chunks_with_tops", "load_factors", "make_schedule", "scaled_factors"]

CHUNK_ENTRIES = 2048  # eight a thread; blocks that read the same state across the bus wait for each other
EMPTY_WEIGHT, FULL_WEIGHT = 0.25, 4.0  # of the machine's time, in a level that does not fill it, or fills it often
FULL = 3.0  # times that a level's work fills the card
ALIGNMENT = 4  # cells: a memory sector of 32 bytes
MOST_CELLS = 2**32 - 2**20  # cells are numbered in 32 bits
MOST_TILES = 2**31 - 1
MOST_ROUNDS = 20_000  # of a contraction's list: they take memory, and time to make


@dataclass(frozen=True)
class Level:
    """One kernel launch."""

    first: int  # its first task
    n_blocks: int
    heavy: bool  # whether a contraction has a tile of many registers
    floor: float  # nanoseconds by the time model: of the slowest thread, or of the machine, whichever is longer


@dataclass(frozen=True)
class Schedule:
    """What the kernels read. T tables: the plan's, those made by splitting, and last a single 1."""

    n_cells: int  # of the arena
    n_tables: int
    n_factors: int
    factor_cells: int  # the factors are the arena's first cells
    table_cell: NDArray[np.uint32]  # (T,)
    table_size: NDArray[np.int64]  # (T,)
    ops: NDArray[Any]
    digits: NDArray[Any]
    steps: NDArray[Any]
    tasks: NDArray[Any]
    levels: tuple[Level, ...]
    rounds: NDArray[Any]  # of the contractions that are lists
    rows: NDArray[Any]
    n_scratch: int  # cells
    n_counters: int
    known: NDArray[Any]
    chunks: NDArray[Any]
    answers: NDArray[Any]
    roots: NDArray[np.uint32]  # (2 * components,)

    @property
    def n_bytes(self) -> int:
        """Memory on the card, in bytes."""
        records = [self.ops, self.digits, self.steps, self.tasks, self.known, self.chunks, self.answers, self.roots]
        records += [self.rounds, self.rows]
        return 8 * (self.n_cells + self.factor_cells + self.n_scratch) + sum(r.nbytes for r in records)


class _Maker:
    """Collects records; equal lists of digits and of steps are kept once."""

    def __init__(self) -> None:
        self.ops: list[tuple[int, ...]] = []
        self.digits: list[tuple[int, ...]] = []
        self.steps: list[NDArray[Any]] = []
        self.n_steps = 0
        self.rounds: list[tuple[int, int]] = []
        self.rows: list[NDArray[Any]] = []
        self.n_rows = 0
        self.n_scratch = 0
        self.n_counters = 0
        self._digits_at: dict[tuple[tuple[int, ...], ...], int] = {}
        self._steps_at: dict[tuple[Loop, ...], int] = {}

    def add(self, loops: tuple[Loop, ...], tiling: Tiling, cells: Sequence[int], tables: Sequence[int]) -> None:
        """The record of a contraction; `cells` and `tables` of the inputs A and B and of the output."""
        sides = {tiling.m_axis: tiling.shape[0], tiling.n_axis: tiling.shape[1]}
        order = [i for i in reversed(range(len(loops))) if loops[i][1][OUT]]
        places: dict[int, int] = {}
        digits: list[tuple[int, ...]] = []
        for i in order:
            n, s = loops[i]
            extent = -(-n // sides[i]) if i in sides else n
            if extent > 1:
                places[i] = len(digits)
                digits.append((extent, *_magic(extent), *s))
        summed = tuple(x for x in loops if not x[1][OUT])
        log, groups = tiling.log_lanes, tiling.n_units // tiling.splits
        row = [*cells, *tables, tiling.n_tiles, math.prod(n for n, _ in summed), self._summed(summed)]
        row += [self._kept(tuple(digits[INLINE_DIGITS:])), len(digits), tiling.shape[0] * 8 + tiling.shape[1]]
        row += [log, int(tiling.wide)]
        row += [tiling.splits, self.n_scratch, self.n_counters]
        if tiling.splits > 1:
            self.n_scratch += tiling.n_units * (32 >> log) * tiling.shape[0] * tiling.shape[1]
            self.n_counters += groups
        for axis in (tiling.m_axis, tiling.n_axis):
            row.append(-(-loops[axis][0] // sides[axis]) * loops[axis][1][OUT] if axis >= 0 else 0)
        row.append(0)
        for axis, table in ((tiling.m_axis, A), (tiling.n_axis, B)):
            if axis < 0:
                row += [NONE, 1, 1, 0]
            else:
                n = loops[axis][0]
                row += [places.get(axis, NONE), n, -(-n // sides[axis]), loops[axis][1][table]]
        for d in range(INLINE_DIGITS):
            row += digits[d] if d < len(digits) else (1, 0, 0, 0, 0, 0)
        self.ops.append(tuple(row))

    def add_list(self, p: Products, two: bool, cells: Sequence[int], tables: Sequence[int], ones: int) -> None:
        """The record of a contraction that is a list; `ones`: the cell that holds 1, before one that holds 0."""
        a, b, out = cells
        first = len(self.rounds)
        where, count = np.unique(p.o, return_counts=True)
        at = np.stack([a + p.a.astype(np.int64), b + p.b.astype(np.int64) if two else np.full(len(p.o), ones)], axis=1)
        r = rounds_of(count, LIST_MOST)
        start = np.cumsum(r.n_rows + 1) - (r.n_rows + 1)
        made = np.full((int((r.n_rows + 1).sum()), 32, 2), ones + 1, np.uint32)
        made[start] = NONE
        made[start[r.out_round], r.out_lane, 0] = out + where
        made[start[r.round] + 1 + r.row, r.lane] = at
        self.rounds += zip((self.n_rows + start).tolist(), (r.n_rows | r.log << 16).tolist(), strict=True)
        self.rows.append(made.reshape(-1, 2))
        self.n_rows += len(made)
        row = [0, 0, 0, *tables, len(self.rounds) - first, 0, first, 0, 0, 0, 5]
        self.ops.append((*row, *[0] * (len(OP.names or ()) - len(row))))

    def _kept(self, digits: tuple[tuple[int, ...], ...]) -> int:
        if digits not in self._digits_at:
            self._digits_at[digits] = len(self.digits)
            self.digits += digits
        return self._digits_at[digits]

    def _summed(self, summed: tuple[Loop, ...]) -> int:
        key = tuple((n, (0, *s[1:])) for n, s in summed)
        if key not in self._steps_at:
            self._steps_at[key] = self.n_steps
            made = np.zeros(math.prod(n for n, _ in summed), STEP)
            made["a"], made["b"] = offsets(summed, A), offsets(summed, B)
            self.steps.append(made)
            self.n_steps += len(made)
        return self._steps_at[key]


def _magic(extent: int) -> tuple[int, int]:
    """n // extent == (n * magic >> 32) >> shift for 0 <= n < 2^31 and extent >= 2 (Granlund and Montgomery 1994)."""
    log = (extent - 1).bit_length()
    return (1 << 31 + log) // extent + 1, log - 1


def _mirrored(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    return tuple((n, (s[OUT], s[B], s[A])) for n, s in loops)


Choice = tuple[tuple[Loop, ...], tuple[int, ...], Tiling]  # axes, inputs in the order A, B, threads
LIST = (0, 0)  # the shape of a contraction that is a list


def _choose(loops: tuple[Loop, ...], step: Step, kind: str, weight: float = 1.0) -> Choice:
    """The tiling of a contraction for one kind of kernel, with the better of both orders of the inputs."""
    two = len(step.ins) == 2
    pick = batch_tiling if kind == "batch" else (lambda x: best_tiling(x, two, weight))
    one = pick(loops)
    if two:
        other = pick(_mirrored(loops))
        if other.cost(weight) < one.cost(weight):
            return _mirrored(loops), step.ins[::-1], other
    return loops, step.ins, one


def _choose_all(plan: Plan, program: Binary, kind: str, listed: Listed | None) -> list[Choice]:
    """Tilings of all contractions; those of a level that leaves the card half empty may take more of it, those of a
    level that fills it several times take less."""
    loops = [loops_of(plan, program.scopes, step) for step in program.steps]
    made = [_choose(x, step, kind) for x, step in zip(loops, program.steps, strict=True)]
    if kind != "levels":
        return made
    lists = [list_tiling(np.unique(p.o, return_counts=True)[1], True) for p in listed.products] if listed else []

    def better(i: int, dense: Choice, weight: float) -> Choice:
        if lists and 0 < lists[i].n_tiles < MOST_ROUNDS and lists[i].cost(weight) < dense[2].cost(weight):
            return loops[i], program.steps[i].ins, lists[i]
        return dense

    made = [better(i, choice, 1.0) for i, choice in enumerate(made)]
    by_level: dict[int, list[int]] = {}
    for i, level in enumerate(program.level):
        by_level.setdefault(level, []).append(i)
    for members in by_level.values():
        filled = sum(made[i][2].share for i in members) / max(made[i][2].latency for i in members)
        if not 1.0 <= filled <= FULL:
            weight = EMPTY_WEIGHT if filled < 1.0 else FULL_WEIGHT
            for i in members:
                made[i] = better(i, _choose(loops[i], program.steps[i], kind, weight), weight)
    return made


def make_schedule(
    plan: Plan, kind: str = "levels", program: Binary | None = None, listed: Listed | None = None
) -> Schedule:
    """Everything that a plan needs on the card.

    Parameters
    ----------
    plan : Plan
    kind : {"levels", "batch"}
        For a kernel a level, or for many cases at once.
    program : Binary, optional
        The contractions; default: the plan's.
    listed : Listed, optional
        The products that are needed: contractions of few run as lists, where the time model says so.

    Raises
    ------
    TableTooLarge
        When cells could not be numbered in 32 bits.
    """
    program = binary_program(plan) if program is None else program
    sizes = [plan.size(s) for s in program.scopes] + [1]
    cells = [int(x) for x in plan.table_off]
    at = int(plan.arena_cells[0])
    for n in sizes[len(cells) :]:
        cells.append(at)
        at += -(-n // ALIGNMENT) * ALIGNMENT
    _check_cells(at, sizes)
    ones = len(sizes) - 1
    maker = _Maker()
    multiple = WARPS if kind == "levels" else 1
    by_level: dict[int, list[tuple[int, Tiling]]] = {}
    chosen = _choose_all(plan, program, kind, listed)
    for i, (step, (loops, ins, tiling)) in enumerate(zip(program.steps, chosen, strict=True)):
        tables = (*(*ins, ones)[:2], step.out)
        if listed and tiling.shape == LIST:
            maker.add_list(listed.products[i], len(ins) == 2, [cells[t] for t in tables], tables, cells[ones])
        else:
            maker.add(loops, tiling, [cells[t] for t in tables], tables)
        by_level.setdefault(program.level[i], []).append((i, tiling))
    tasks: list[NDArray[Any]] = []
    levels: list[Level] = []
    for _, members in sorted(by_level.items()):
        made = _tiles_of(members) if kind == "batch" else _tasks_of(members, multiple)
        levels.append(_level_of(members, sum(len(t) for t in tasks), len(made) // multiple))
        tasks.append(made)
    known, chunks = _evidence(plan, cells, sizes)
    factor_cells = max((cells[f] + sizes[f] for f in range(plan.n_factors)), default=0)
    return Schedule(
        n_cells=at,
        n_tables=len(sizes),
        n_factors=plan.n_factors,
        factor_cells=factor_cells,
        table_cell=np.array(cells, np.uint32),
        table_size=np.array(sizes, np.int64),
        ops=np.array(maker.ops, OP),
        digits=np.array(maker.digits, DIGIT),
        steps=np.concatenate(maker.steps) if maker.steps else np.zeros(0, STEP),
        tasks=np.concatenate(tasks) if tasks else np.zeros(0, TASK),
        levels=tuple(levels),
        rounds=np.array(maker.rounds, ROUND),
        rows=np.concatenate(maker.rows) if maker.rows else np.zeros((0, 2), np.uint32),
        n_scratch=maker.n_scratch,
        n_counters=maker.n_counters,
        known=known,
        chunks=chunks,
        answers=np.array(
            [
                (cells[t], int(plan.cardinality[v]), int(plan.posterior_ptr[v]))
                for v, t in enumerate(plan.posterior_table.tolist())
            ],
            ANSWER,
        ),
        roots=np.array([x for t in plan.root_table.tolist() for x in (cells[t], t)], np.uint32),
    )


def _check_cells(n_cells: int, sizes: Sequence[int]) -> None:
    if n_cells > MOST_CELLS or max(sizes) > MOST_TILES:
        raise TableTooLarge(
            f"the GPU engine numbers cells in 32 bits; this plan has {n_cells:,} in all, {max(sizes):,} in one table",
            max(sizes),
            8 * n_cells,
            8 * MOST_CELLS,
        )


def _tasks_of(members: Sequence[tuple[int, Tiling]], multiple: int) -> NDArray[Any]:
    """Tasks of one level, a block's worth after another: the slowest first, so that short ones fill the gaps.
    Their number is a multiple of `multiple`."""
    made: list[NDArray[Any]] = []
    ordered = sorted(members, key=lambda m: (-m[1].latency, m[0]))
    for op, tiling in (m for m in ordered if m[1].wide):
        block = np.zeros(tiling.n_units * WARPS, TASK)
        block["op"], block["unit"] = op, np.repeat(np.arange(tiling.n_units), WARPS)
        made.append(block)
    for op, tiling in (m for m in ordered if not m[1].wide):
        warps = np.zeros(tiling.n_units, TASK)
        warps["op"], warps["unit"] = op, np.arange(tiling.n_units)
        made.append(warps)
    idle = np.zeros(-sum(len(m) for m in made) % multiple, TASK)
    idle["op"] = NONE
    return np.concatenate([*made, idle])


def _tiles_of(members: Sequence[tuple[int, Tiling]]) -> NDArray[Any]:
    """Tasks of one level of a batch: a tile each."""
    made = np.zeros(sum(t.n_tiles for _, t in members), TASK)
    made["op"] = np.repeat([op for op, _ in members], [t.n_tiles for _, t in members])
    made["unit"] = np.concatenate([np.arange(t.n_tiles) for _, t in members])
    return made


def _level_of(members: Sequence[tuple[int, Tiling]], first: int, n_blocks: int) -> Level:
    floor = max(max(t.latency for _, t in members), sum(t.share for _, t in members))
    return Level(first, n_blocks, any(t.shape in HEAVY for _, t in members), floor)


def _evidence(plan: Plan, cells: Sequence[int], sizes: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The factors that evidence is multiplied into, cut into chunks."""
    variables: dict[int, list[int]] = {}
    for v, f in enumerate(plan.evidence_factor.tolist()):
        variables.setdefault(f, []).append(v)
    known: list[tuple[int, ...]] = []
    chunks: list[tuple[int, ...]] = []
    for f, members in sorted(variables.items()):
        if len(members) > MOST_AXES:  # 2^64 entries at least, or variables of one state
            members = [v for v in members if plan.cardinality[v] > 1]
        scope = plan.table_scopes[f]
        first_known = len(known)
        for v in members:
            inner = plan.size(scope[scope.index(v) + 1 :])
            known.append((v, inner, int(plan.cardinality[v]), int(plan.posterior_ptr[v])))
        for start in range(0, sizes[f], CHUNK_ENTRIES):
            n = min(CHUNK_ENTRIES, sizes[f] - start)
            chunks.append((cells[f], start, n, f, first_known, len(members), 0, 0))
    return np.array(known, KNOWN), np.array(chunks, CHUNK)


def load_factors(
    plan: Plan, schedule: Schedule, factors: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """The factors as the arena holds them, and every table's slot before a run.

    A factor whose largest entry lies far from 1 is divided by a power of two, which the slot remembers.

    Returns
    -------
    pristine : (factor_cells,) float64
    slots : (T,) SLOT
    """
    pristine = np.zeros(schedule.factor_cells)
    slots = np.zeros(schedule.n_tables, SLOT)
    for f, (table, shift) in enumerate(scaled_factors(plan, factors)):
        cell = int(schedule.table_cell[f])
        pristine[cell : cell + len(table)] = table
        slots[f] = (_high_word(float(table.max(initial=0.0))), shift)
    slots[-1] = (_high_word(1.0), 0)
    return pristine, slots


def scaled_factors(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Iterator[tuple[NDArray[np.float64], int]]:
    """Every factor in the plan's axis order, flat, and the power of two that was taken out of it: 0 unless its
    largest entry lies far from 1."""
    for f, (table, scope) in enumerate(zip(factors, plan.factor_scopes, strict=True)):
        turned = np.transpose(table, [scope.index(v) for v in plan.table_scopes[f]]).ravel()
        top = float(turned.max(initial=0.0))
        shift = math.frexp(top)[1] if top > 0 and not 1e-30 < top < 1e30 else 0
        yield np.ldexp(turned, -shift), shift


def chunks_with_tops(schedule: Schedule, pristine: NDArray[np.float64]) -> NDArray[Any]:
    """The chunks with the largest entry of each."""
    made = schedule.chunks.copy()
    for chunk in made:
        first = int(chunk["cell"]) + int(chunk["from"])
        chunk["top"] = _high_word(float(pristine[first : first + int(chunk["n"])].max(initial=0.0)))
    return made


def _high_word(x: float) -> int:
    return int(np.float64(x).view(np.int64) >> 32)
