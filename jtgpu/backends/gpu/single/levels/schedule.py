"""From a plan to what the kernels of single cases read: places, and records and tasks of every level.

Arrays only; knows no device. `jtgpu.backends.gpu.single.levels.engine` uploads it, and tests run it on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from .....plans.plan import Plan
from ...program.layout import Places, make_places
from ...program.nonzero import Listed, Products
from ...program.structs import (
    DIGIT,
    INLINE_DIGITS,
    NONE,
    OP,
    ROUND,
    STEP,
    TASK,
    WARPS,
)
from ...program.tiling import (
    HEAVY,
    LIST_MOST,
    OUT,
    A,
    B,
    Binary,
    Loop,
    Step,
    Tiling,
    best_tiling,
    binary_program,
    list_tiling,
    loops_of,
    offsets,
)
from ..sparse.rounds import rounds_of
from ..specialised.shape_plan import Coded, Shaped, choose_codes, light_tiling, shaped_levels
from ..specialised.slab_code import Slab, best_region, make_slab
from ..specialised.slabs import without

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Level", "Schedule", "make_schedule"]

EMPTY_WEIGHT, FULL_WEIGHT = 0.25, 4.0  # of the machine's time, in a level that does not fill it, or fills it often
FULL = 3.0  # times that a level's work fills the card
MOST_ROUNDS = 20_000  # of a contraction's list: they take memory, and time to make


@dataclass(frozen=True)
class Level:
    """One kernel launch."""

    first: int  # its first task
    n_blocks: int
    heavy: bool  # whether a contraction has a tile of many registers
    floor: float  # nanoseconds by the time model: of the slowest thread, or of the machine, whichever is longer


@dataclass(frozen=True)
class Schedule(Places):
    """What the kernels of single cases read."""

    ops: NDArray[Any]
    digits: NDArray[Any]
    steps: NDArray[Any]
    tasks: NDArray[Any]
    levels: tuple[Level, ...]
    rounds: NDArray[Any]  # of the contractions that are lists
    rows: NDArray[Any]
    n_scratch: int  # cells
    n_counters: int
    shaped: Shaped | None = None  # contractions with code of their own: they are in no level's tasks
    slab: Slab | None = None  # contractions that are done slice by slice: they are in no level
    before_slab: int = 0  # levels that are done before it

    @property
    def n_bytes(self) -> int:
        """Memory on the card, in bytes."""
        records = [self.ops, self.digits, self.steps, self.tasks, self.known, self.chunks, self.answers, self.roots]
        records += [self.rounds, self.rows, self.checks] + ([self.shaped.jobs] if self.shaped is not None else [])
        cells = self.n_cells + self.factor_cells + self.n_scratch
        if self.slab is not None:
            cells += self.slab.n_sums
            records += self.slab.arrays
        return np.dtype(self.real).itemsize * cells + sum(r.nbytes for r in records)


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

    def leave_out(self) -> None:
        """Nothing, in the place of a contraction's record."""
        self.ops.append((0,) * len(OP.names or ()))

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


def _choose(loops: tuple[Loop, ...], step: Step, cell_bytes: int, weight: float = 1.0) -> Choice:
    """The tiling of a contraction, with the better of both orders of the inputs."""
    two = len(step.ins) == 2
    one = best_tiling(loops, two, weight, cell_bytes)
    if two:
        other = best_tiling(_mirrored(loops), two, weight, cell_bytes)
        if other.cost(weight) < one.cost(weight):
            return _mirrored(loops), step.ins[::-1], other
    return loops, step.ins, one


def _choose_all(plan: Plan, program: Binary, listed: Listed | None, cell_bytes: int) -> list[Choice]:
    """Tilings of all contractions; those of a level that leaves the card half empty may take more of it, those of a
    level that fills it several times take less."""
    loops = [loops_of(plan, program.scopes, step) for step in program.steps]
    lists = [list_tiling(p.count, True) for p in listed.products] if listed else []

    def better(i: int, weight: float) -> Choice:
        dense = _choose(loops[i], program.steps[i], cell_bytes, weight)
        if lists and 0 < lists[i].n_tiles < MOST_ROUNDS and lists[i].cost(weight) < dense[2].cost(weight):
            return loops[i], program.steps[i].ins, lists[i]
        return dense

    made = [better(i, 1.0) for i in range(len(loops))]
    for members in _by_level(program).values():
        filled = sum(made[i][2].share for i in members) / max(made[i][2].latency for i in members)
        if not 1.0 <= filled <= FULL:
            weight = EMPTY_WEIGHT if filled < 1.0 else FULL_WEIGHT
            for i in members:
                made[i] = better(i, weight)
    return made


def _by_level(program: Binary) -> dict[int, list[int]]:
    made: dict[int, list[int]] = {}
    for i, level in enumerate(program.level):
        made.setdefault(level, []).append(i)
    return made


def _without_heavy(chosen: list[Choice], program: Binary, coded: Coded, cell_bytes: int) -> list[Choice]:
    """Levels with codes run what is left as `level_light` does: no tiles of many registers there."""
    made = list(chosen)
    for i, (loops, ins, tiling) in enumerate(chosen):
        if program.level[i] in coded.levels and i not in coded.codes and tiling.shape in HEAVY:
            made[i] = (loops, ins, light_tiling(loops, len(ins) == 2, cell_bytes))
    return made


def make_schedule(
    plan: Plan, listed: Listed | None = None, real: str = "float64", codes: bool = False, slabs: bool = False
) -> Schedule:
    """Everything that a plan needs on the card for single cases, a kernel a level.

    Parameters
    ----------
    plan : Plan
    listed : Listed, optional
        The products that are needed: contractions of few run as lists, where the time model says so.
    real : {"float64", "float32"}
        What the arena is made of.
    codes : bool
        Whether heavy contractions may get code of their own: `Schedule.shaped`.
    slabs : bool
        Whether those of many megabytes may be done slice by slice: `Schedule.slab`. Not with lists, nor with float32.

    Raises
    ------
    TableTooLarge
        When cells could not be numbered in 32 bits.
    """
    program = binary_program(plan)
    places = make_places(plan, program, real)
    cells = places.table_cell.tolist()
    ones = len(cells) - 1
    slab, before = None, 0
    region = best_region(plan, program) if slabs and listed is None and real == "float64" else None
    if region is not None:
        slab = make_slab(plan, program, region, cells)
        program, before = without(plan, program, region)
    cell_bytes = np.dtype(real).itemsize
    maker = _Maker()
    by_level: dict[int, list[tuple[int, Tiling]]] = {}
    chosen = _choose_all(plan, program, listed, cell_bytes)
    coded = None
    if codes:
        coded = choose_codes(chosen, _by_level(program), cell_bytes)
        chosen = _without_heavy(chosen, program, coded, cell_bytes)
    operands: list[tuple[int, ...]] = []
    for i, (step, (loops, ins, tiling)) in enumerate(zip(program.steps, chosen, strict=True)):
        tables = (*(*ins, ones)[:2], step.out)
        operands.append(tables)
        if coded and i in coded.codes:
            maker.leave_out()
            by_level.setdefault(program.level[i], [])
            continue
        if listed and tiling.shape == LIST:
            maker.add_list(listed.products[i], len(ins) == 2, [cells[t] for t in tables], tables, cells[ones])
        else:
            maker.add(loops, tiling, [cells[t] for t in tables], tables)
        by_level.setdefault(program.level[i], []).append((i, tiling))
    tasks: list[NDArray[Any]] = []
    levels: list[Level] = []
    for number, members in sorted(by_level.items()):
        made = _tasks_of(members)
        floor = coded.levels.get(number) if coded else None
        levels.append(_level_of(members, sum(len(t) for t in tasks), len(made) // WARPS, floor))
        tasks.append(made)
    shaped, n_scratch, n_counters = None, maker.n_scratch, maker.n_counters
    if coded and coded.codes:
        taken = (n_scratch, n_counters)
        shaped, n_scratch, n_counters = shaped_levels(coded, _by_level(program), operands, cells, taken)
    return Schedule(
        **{f.name: getattr(places, f.name) for f in fields(places)},
        ops=np.array(maker.ops, OP),
        digits=np.array(maker.digits, DIGIT),
        steps=np.concatenate(maker.steps) if maker.steps else np.zeros(0, STEP),
        tasks=np.concatenate(tasks) if tasks else np.zeros(0, TASK),
        levels=tuple(levels),
        rounds=np.array(maker.rounds, ROUND),
        rows=np.concatenate(maker.rows) if maker.rows else np.zeros((0, 2), np.uint32),
        n_scratch=n_scratch,
        n_counters=n_counters,
        shaped=shaped,
        slab=slab,
        before_slab=sum(number <= before for number in by_level),
    )


def _tasks_of(members: Sequence[tuple[int, Tiling]]) -> NDArray[Any]:
    """Tasks of one level, a block's worth after another: the slowest first, so that short ones fill the gaps."""
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
    idle = np.zeros(-sum(len(m) for m in made) % WARPS, TASK)
    idle["op"] = NONE
    return np.concatenate([*made, idle])


def _level_of(members: Sequence[tuple[int, Tiling]], first: int, n_blocks: int, floor: float | None = None) -> Level:
    if floor is None:
        floor = max(max(t.latency for _, t in members), sum(t.share for _, t in members))
    return Level(first, n_blocks, any(t.shape in HEAVY for _, t in members), floor)
