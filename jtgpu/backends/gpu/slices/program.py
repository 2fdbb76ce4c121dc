"""The program of a slice for many sequences: arrays for cuda/batch/slices.cu. Knows no device.

Contractions are those of the plan that the answers need. Variables that every row observes have one state. A factor is
loaded for each sequence where evidence or a message enters it, or an observed variable is in it; what does not depend
on evidence is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..batch.tiling import SHAPES, TileMaker, flat_factors
from ..program.records import NONE, OUT, A, B, Step, binary_program, loops_of, offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan
    from ...slices import Side

CONST_A, CONST_B = 16, 32  # bits of a contraction's shape
TILE_WORDS = 20  # of a tile: mask, then its cells
DIGITS = 64.0  # powers of two between the least number that is computed with all digits and what may be neglected
LOWEST = -1022.0
RUNNING, KEPT = 1, 2  # the message of the group, or one of those that were kept


class Pattern(NamedTuple):
    """Which variables have evidence."""

    always: tuple[bool, ...]  # (V,) observed in every row, and no weights
    column: tuple[int, ...]  # (V,) column of codes, -1: never observed
    weight: tuple[int, ...]  # (V,) first column of weights, -1: none


class Way(NamedTuple):
    """How a message passes a slice, and what else is computed."""

    source: Side
    target: Side
    ahead: bool
    others: tuple[int, ...] = ()  # variables whose distributions the slice gives
    columns: tuple[int, ...] = ()  # of each, the first one


@dataclass(frozen=True)
class SliceArrays:
    """A program as arrays; addresses count numbers of an arena with `lanes` sequences, constants first."""

    ops: NDArray[np.uint32]  # (n, 6) struct Contraction
    tiles: NDArray[np.uint32]  # (n, TILE_WORDS)
    steps: NDArray[np.uint32]  # (n, 2)
    loads: NDArray[np.uint32]  # (n, 9) struct Load
    observed: NDArray[np.uint32]  # (n, 5) struct Observed
    targets: NDArray[np.uint32]  # (n, 4) struct Target: other answers, then roots of other components
    pool: NDArray[np.uint32]
    consts: NDArray[np.float64]
    values: NDArray[np.float64]
    least: float
    words: tuple[int, ...]  # the numbers behind the addresses in struct SliceProgram
    lanes: int
    n_cells: int  # of the arena, constants included
    most_tiles: int  # of a contraction


class _Axes(NamedTuple):
    """The part of a plan that `loops_of` needs."""

    cardinality: NDArray[np.int64]
    axis_rank: NDArray[np.int64]


@dataclass(frozen=True)
class _Load:
    """A factor that is loaded."""

    factor: int
    fixed: tuple[int, ...]
    axes: tuple[int, ...]
    message: int


@dataclass
class _Part:
    """The contractions of some answers."""

    loads: list[_Load]
    steps: list[Step]
    phase: list[int]
    cell: dict[int, int]  # first cell of each table of a sequence
    size: int  # cells of a sequence
    answers: list[int]  # tables


class SliceMaker:
    """The contractions of a plan's slice for one pattern of evidence."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], pattern: Pattern):
        self.plan, self.pattern = plan, pattern
        self.flat = flat_factors(plan, factors)
        binary = binary_program(plan)
        self.steps, self.scopes = binary.steps, binary.scopes
        self.cards = np.where(np.array(pattern.always), 1, plan.cardinality)
        self.axes = _Axes(self.cards, plan.axis_rank)
        self.component = self._components()
        top = sum(max(0.0, math.log2(float(f.max()))) + math.log2(max(len(f), 1)) for f in self.flat if f.max() > 0)
        self.least = 2.0 ** min(LOWEST + DIGITS + top, 0.0)

    def size(self, table: int) -> int:
        """Cells of a table of a sequence."""
        return math.prod(int(self.cards[v]) for v in self.scopes[table])

    def loops(self, step: Step) -> tuple[Any, ...]:
        """The joint axes of a contraction."""
        plan: Any = self.axes
        return loops_of(plan, self.scopes, step)

    def _components(self) -> dict[int, int]:
        """The root of each table that it is computed from."""
        maker = {s.out: s for s in self.steps}
        component: dict[int, int] = {}
        for root in self.plan.root_table.tolist():
            stack = [root]
            while stack:
                t = stack.pop()
                component[t] = root
                stack += maker[t].ins if t in maker else ()
        return component

    def other_roots(self, side: Side) -> list[int]:
        """Tables of P(e) of the components that a side is not in."""
        own = self.component[int(self.plan.evidence_factor[side.number])]
        return [t for t in self.plan.root_table.tolist() if t != own]

    def cells(self, factor: int) -> NDArray[np.int64]:
        """The cell of the whole factor of each cell that is left when observed variables are in state 0."""
        at = np.zeros(1, np.int64)
        strides = self.strides(factor)
        for v in self.plan.table_scopes[factor]:
            if not self.pattern.always[v]:
                at = np.add.outer(at, np.arange(int(self.plan.cardinality[v])) * strides[v]).ravel()
        return at

    def strides(self, factor: int) -> dict[int, int]:
        """Of a whole factor."""
        strides, at = {}, 1
        for v in reversed(self.plan.table_scopes[factor]):
            strides[v] = at
            at *= int(self.plan.cardinality[v])
        return strides

    def load(self, factor: int, message: int) -> _Load | None:
        """How a factor is loaded; None if all sequences share it."""
        p, scope = self.pattern, self.plan.table_scopes[factor]
        fixed = tuple(v for v in scope if p.always[v] and int(self.plan.cardinality[v]) > 1)
        axes = tuple(
            v for v in scope
            if self.plan.evidence_factor[v] == factor and not p.always[v] and (p.column[v] >= 0 or p.weight[v] >= 0)
        )  # fmt: skip
        return _Load(factor, fixed, axes, message) if fixed or axes or message else None

    def part(self, messages: dict[int, int], answers: Sequence[int], first_cell: int) -> tuple[_Part, dict[int, Any]]:
        """The contractions of some tables, in phases, and the tables that are constant."""
        # messages: Factor to `RUNNING` or `KEPT`
        # first_cell: Of a sequence that tables may use
        loads = {f: self.load(f, messages.get(f, 0)) for f in range(self.plan.n_factors)}
        consts = {f: self.flat[f][self.cells(f)] for f, x in loads.items() if x is None}
        alias: dict[int, int] = {}
        left: list[Step] = []
        for s in self._needed(answers):
            ins = [alias.get(t, t) for t in s.ins]
            if len(ins) == 2:
                ins = self._without_ones(ins, consts)
            step = Step(s.out, tuple(ins), False)
            if all(t in consts for t in ins):
                consts[s.out] = self._folded(step, consts)
            elif len(ins) == 1 and self._axes_of(s.out) == self._axes_of(ins[0]):
                alias[s.out] = ins[0]
            else:
                left.append(step)
        tables = [alias.get(t, t) for t in answers]
        used = {t for s in left for t in s.ins} | set(tables)
        mine = [x for f, x in loads.items() if x is not None and f in used]
        level = {x.factor: 0 for x in mine}
        running = {x.factor for x in mine if x.message == RUNNING and not x.axes and (self.flat[x.factor] == 1.0).all()}
        for s in left:
            level[s.out] = 1 + max(level.get(t, 0) for t in s.ins)
        left.sort(key=lambda s: level[s.out])
        mine = [x for x in mine if x.factor not in running]  # the message itself, at the beginning of the arena
        part = _Part(mine, left, [level[s.out] for s in left], dict.fromkeys(running, 0), 0, tables)
        self._place(part, level, consts, first_cell)
        return part, {t: consts[t] for t in used if t in consts}

    def _axes_of(self, table: int) -> list[int]:
        return [v for v in self.scopes[table] if self.cards[v] > 1]

    def _needed(self, answers: Sequence[int]) -> list[Step]:
        """The plan's contractions that some tables depend on."""
        maker = {s.out: i for i, s in enumerate(self.steps)}
        wanted, stack = set[int](), list(answers)
        while stack:
            t = stack.pop()
            if t in maker and maker[t] not in wanted:
                wanted.add(maker[t])
                stack += self.steps[maker[t]].ins
        return [self.steps[i] for i in sorted(wanted)]

    def _without_ones(self, ins: list[int], consts: dict[int, Any]) -> list[int]:
        """Two inputs, or one where the other is a table of ones about no other variables."""
        for mine, other in (ins, ins[::-1]):
            is_one = mine in consts and bool((consts[mine] == 1.0).all())
            if is_one and set(self._axes_of(mine)) <= set(self._axes_of(other)):
                return [other]
        return ins

    def _folded(self, step: Step, consts: dict[int, Any]) -> NDArray[np.float64]:
        """A contraction of constants."""
        loops = self.loops(step)
        x = consts[step.ins[0]][offsets(loops, A)]
        if len(step.ins) == 2:
            x = x * consts[step.ins[1]][offsets(loops, B)]
        folded: NDArray[np.float64] = np.bincount(offsets(loops, OUT), x, self.size(step.out)).astype(np.float64)
        return folded

    def _place(self, part: _Part, level: dict[int, int], consts: dict[int, Any], first: int) -> None:
        """Cells of each table: free ones from its own phase on, until the phase after the last that reads it."""
        end = {t: level[t] for t in level}
        for s in part.steps:
            for t in s.ins:
                end[t] = max(end.get(t, 0), level[s.out])
        for t in part.answers:
            end[t] = max(level.values(), default=0) + 1
        made: list[tuple[int, int, int]] = []  # first cell, behind the last, last phase
        part.size = first
        tables = [x.factor for x in part.loads] + [s.out for s in part.steps]
        for t in tables:
            if t in part.cell:
                continue
            at, size = first, self.size(t)
            for begin, behind, last in sorted(made):
                if last >= level[t] and begin < at + size and behind > at:
                    at = behind
            made.append((at, at + size, end[t]))
            part.cell[t] = at
            part.size = max(part.size, at + size)


def slice_arrays(
    maker: SliceMaker, way: Way, pairs: Sequence[tuple[NDArray[np.int64], int]], lanes: int
) -> SliceArrays | None:
    """The arrays of a message's way through a slice; None where the answer is the message itself."""
    # pairs: Entries of the message with each state of the variables between slices that are wanted, and the column
    plan = maker.plan
    source, target = (int(plan.evidence_factor[s.number]) for s in (way.source, way.target))
    n = len(way.source.place)
    answer = int(plan.posterior_table[way.target.number])
    roots = maker.other_roots(way.target) if way.ahead else []
    main, consts = maker.part({source: RUNNING}, [answer, *roots], n)
    second = _Part([], [], [], {}, 0, [])
    if way.others:
        tables = [int(plan.posterior_table[v]) for v in way.others]
        second, more = maker.part({source: RUNNING, **({} if way.ahead else {target: KEPT})}, tables, n)
        consts |= more
    return _Writer(maker, way, lanes, consts).arrays(main, second, pairs)


class _Writer:
    """Writes the arrays of a program."""

    def __init__(self, maker: SliceMaker, way: Way, lanes: int, consts: dict[int, NDArray[np.float64]]):
        self.maker, self.way, self.lanes = maker, way, lanes
        self.const_cell: dict[int, int] = {}
        at = 0
        for t, x in consts.items():
            self.const_cell[t] = at
            at += len(x)
        self.consts = np.concatenate([np.zeros(0), *consts.values()])
        self.n_consts = at
        self.n = len(way.source.place)
        self.tile_maker = TileMaker()
        self.parts: dict[str, list[Any]] = {k: [] for k in ("ops", "tiles", "steps", "loads", "observed", "targets")}
        self.length = dict.fromkeys(self.parts, 0)
        self._pool: list[NDArray[np.int64]] = []
        self._pooled = 0
        self._values: list[NDArray[np.float64]] = []
        self._value_cell: dict[int, int] = {}
        self.most_tiles = 1

    def add(self, kind: str, rows: Any) -> int:
        """Append rows of a kind; the number of the first."""
        first = self.length[kind]
        if len(rows):
            self.parts[kind].append(np.asarray(rows, np.int64))
        self.length[kind] += len(rows)
        return first

    def pool(self, numbers: Any) -> int:
        """Append to the pool; the place of the first number."""
        first = self._pooled
        self._pool.append(np.asarray(numbers, np.int64))
        self._pooled += len(numbers)
        return first

    def cell(self, part: _Part, table: int) -> int:
        """The first number of a table in the arena."""
        if table in self.const_cell:
            return self.const_cell[table]
        return self.n_consts + part.cell[table] * self.lanes

    def arrays(
        self, main: _Part, second: _Part, pairs: Sequence[tuple[NDArray[np.int64], int]]
    ) -> SliceArrays | None:
        maker, way = self.maker, self.way
        if main.answers[0] == int(maker.plan.evidence_factor[way.source.number]):
            return None
        places = self.pool(way.source.place), self.pool(way.target.place)
        mine = [self._part(part) for part in (main, second)]
        targets = [self._target(second, t, c) for t, c in zip(second.answers, way.columns, strict=True)]
        roots = [self._target(main, t, 0) for t in main.answers[1:]]
        first_target = self.add("targets", targets + roots)
        answer = self._target(main, main.answers[0], 0)
        listed = [(self.pool(entries), len(entries), column) for entries, column in pairs]
        first_pair = self.pool(np.array(listed, np.int64).ravel())
        size = max(main.size, second.size, 2 * self.n)
        n_cells = self.n_consts + size * self.lanes
        words = [
            *mine[0], 0, 0, *mine[1], first_target, len(targets), *answer, *places, self.n_consts,
            self.n_consts + self.n * self.lanes, self.n_consts, n_cells, self.n, self.lanes,
            len(roots), first_target + len(targets), len(pairs), first_pair,
        ]  # fmt: skip
        made = {k: np.concatenate([np.zeros((0, w), np.int64), *rows]).astype(np.uint32)
                for (k, rows), w in zip(self.parts.items(), (6, TILE_WORDS, 2, 9, 5, 4), strict=True)}
        return SliceArrays(
            **made, pool=np.concatenate(self._pool).astype(np.uint32), consts=self.consts,
            values=np.concatenate([np.zeros(0), *self._values]), least=maker.least, words=tuple(words),
            lanes=self.lanes, n_cells=n_cells, most_tiles=self.most_tiles,
        )  # fmt: skip

    def _target(self, part: _Part, table: int, column: int) -> tuple[int, int, int, int]:
        return self.cell(part, table), int(table in self.const_cell), self.maker.size(table), column

    def _part(self, part: _Part) -> tuple[int, int, int, int]:
        """Loads and contractions of a part: the first and the number of each."""
        loads = [self._load(part, x) for x in part.loads]
        ops, before = [], -1
        for s, phase in zip(part.steps, part.phase, strict=True):
            ops.append(self._op(part, s, int(phase != before)))
            before = phase
        return self.add("loads", loads), len(loads), self.add("ops", ops), len(ops)

    def _load(self, part: _Part, x: _Load) -> tuple[int, ...]:
        maker, pattern, plan = self.maker, self.maker.pattern, self.maker.plan
        if x.factor not in self._value_cell:
            self._value_cell[x.factor] = sum(map(len, self._values))
            self._values.append(maker.flat[x.factor])
        strides, scope = maker.strides(x.factor), maker.plan.table_scopes[x.factor]
        rows = []
        for v in (*x.fixed, *x.axes):
            inner = reduce(lambda n, u: n * int(maker.cards[u]), scope[scope.index(v) + 1 :], 1)
            column, weight = (NONE if k < 0 else k for k in (pattern.column[v], pattern.weight[v]))
            rows.append((column, weight, inner, int(plan.cardinality[v]), strides[v]))
        places = 0
        if x.message == RUNNING:
            places = self.pool(np.arange(self.n))
        elif x.message == KEPT:
            entry = np.empty(self.n, np.int64)
            entry[self.way.target.place] = np.arange(self.n)
            places = self.pool(entry)
        cells = maker.cells(x.factor)
        return (
            self._value_cell[x.factor], self.pool(cells), len(cells), self.cell(part, x.factor),
            self.add("observed", rows), len(x.fixed), len(rows), x.message, places,
        )  # fmt: skip

    def _op(self, part: _Part, step: Step, sync: int) -> tuple[int, ...]:
        tiles = self.tile_maker.tiles(self.maker.loops(step), len(step.ins) == 1, None)
        tm, tn = SHAPES[tiles.shape]
        wide = max(tn, 1)
        ins = [*step.ins, -1][:2]
        a, b = ins[::-1] if tiles.swapped else ins
        scale = {t: 1 if t in self.const_cell else self.lanes for t in (a, b)}
        rows = np.zeros((len(tiles.a), TILE_WORDS), np.int64)
        rows[:, 0] = tiles.mask
        at = 1
        for base, cells, times in (
            (self.cell(part, a), tiles.a, scale[a]), (self.cell(part, b) if tn else 0, tiles.b, scale[b]),
            (self.cell(part, step.out), tiles.out_m, self.lanes), (0, tiles.out_n, self.lanes),
        ):  # fmt: skip
            n = cells.shape[1]
            rows[:, at : at + n] = base + cells.astype(np.int64) * times
            at += n
        assert at == 1 + 2 * tm + tn + wide
        steps = tiles.steps.astype(np.int64) * [scale[a], scale[b]]
        shape = tiles.shape | (CONST_A if a in self.const_cell else 0) | (CONST_B if b in self.const_cell else 0)
        self.most_tiles = max(self.most_tiles, len(rows))
        return self.add("tiles", rows), len(rows), self.add("steps", steps), len(steps), shape, sync
