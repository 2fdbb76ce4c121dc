"""The program of a slice as arrays for cuda/batch/slices.cu. Knows no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..batch.tiling import SHAPES, TileMaker
from ..lower import Contraction
from ..program.records import NONE
from .contractions import KEPT, RUNNING, Load, SliceMaker, SlicePart
from .sums import EqualSums, Wanted, sums_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...slices import Side

CONST_A, CONST_B = 16, 32  # bits of a contraction's shape
TILE_WORDS = 20  # of a tile: mask, then its cells


class SliceWay(NamedTuple):
    """How a message passes a slice, and what else is computed."""

    source: Side
    target: Side
    ahead: bool
    others: tuple[int, ...] = ()  # variables whose distributions the slice gives
    columns: tuple[int, ...] = ()  # of each, the first one
    adds: bool = False  # whether they are added up over slices, as tables with the axes of the model


@dataclass(frozen=True)
class SliceArrays:
    """A program as arrays; addresses count numbers of an arena with `lanes` sequences, constants first."""

    ops: NDArray[np.uint32]  # (n, 6) struct Contraction
    tiles: NDArray[np.uint32]  # (n, TILE_WORDS), at least one
    steps: NDArray[np.uint32]  # (n, 2)
    items: NDArray[np.uint32]  # (n, 8) struct Item
    observed: NDArray[np.uint32]  # (n, 5) struct Observed
    targets: NDArray[np.uint32]  # (n, 4) struct Target: other answers, then roots of other components
    pool: NDArray[np.uint32]
    consts: NDArray[np.float64]
    values: NDArray[np.float64]
    least: float
    fields: dict[str, Any]  # of struct SliceProgram, besides the arrays
    lanes: int
    n_cells: int  # of the arena, constants included
    threads: int  # for which a record has work


@dataclass(frozen=True)
class SliceParts:
    """The contractions of a message's way through a slice."""

    maker: SliceMaker
    way: SliceWay
    main: SlicePart
    second: SlicePart  # other answers

    @classmethod
    def of(cls, maker: SliceMaker, way: SliceWay) -> SliceParts:
        plan = maker.plan
        before, behind = (int(plan.evidence_factor[s.number]) for s in (way.source, way.target))
        n = len(way.source.place)
        answer = int(plan.posterior_table[way.target.number])
        roots = maker.other_roots(way.target) if way.ahead else []
        main = maker.part({before: RUNNING}, [answer, *roots], n)
        second = SlicePart(maker, [], [], [], [], {}, 0, [], {})
        if way.others:
            tables = [int(plan.posterior_table[v]) for v in way.others]
            messages = {before: RUNNING, **({} if way.ahead else {behind: KEPT})}
            second = maker.of_all.part(messages, tables, n)
        return cls(maker, way, main, second)


class ArrayWriter:
    """Writes the arrays of a message's way through a slice."""

    def __init__(self, parts: SliceParts, wanted: Wanted, lanes: int):
        self.given, self.lanes = parts, lanes
        self.maker, self.way = parts.maker, parts.way
        # both parts number tables alike, and what is constant in one may be loaded in the other
        shared = {x.tobytes(): x for part in (parts.main, parts.second) for x in part.consts.values()}
        self._const_cell: dict[bytes, int] = {}
        at = 0
        for key, x in shared.items():
            self._const_cell[key] = at
            at += len(x)
        self.consts = np.concatenate([*shared.values(), np.zeros(at % 2)])
        self.n_consts = at + at % 2  # pairs of sequences are aligned
        self.n = len(self.way.source.place)
        self.groups, self.singles = sums_of(wanted, self.n)
        self.tile_maker = TileMaker()
        self.parts: dict[str, list[Any]] = {k: [] for k in ("ops", "tiles", "steps", "items", "observed", "targets")}
        self.length = dict.fromkeys(self.parts, 0)
        self._pool: list[NDArray[np.int64]] = []
        self._pooled = 0
        self.values: list[NDArray[np.float64]] = []
        self._value_cell: dict[tuple[int, bool], int] = {}
        self.threads = 1

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

    def cell(self, part: SlicePart, table: int) -> int:
        """The first number of a table in the arena."""
        if table in part.consts:
            return self._const_cell[part.consts[table].tobytes()]
        return self.n_consts + part.cell[table] * self.lanes

    @property
    def n_cells(self) -> int:
        """Numbers of the arena."""
        between = 2 * self.n + sum(len(x.terms) for x in self.groups)
        return self.n_consts + max(self.given.main.size, self.given.second.size, between) * self.lanes

    def arrays(self) -> SliceArrays:
        """All of it."""
        maker, way, main, second = self.maker, self.way, self.given.main, self.given.second
        places = self.pool(way.source.place), self.pool(way.target.place)
        mine = [self.part(part) for part in (main, second)]
        columns = map(self._added, way.others, way.columns) if way.adds else way.columns
        targets = [self._target(second, t, c) for t, c in zip(second.answers, columns, strict=True)]
        roots = [self._target(main, t, 0) for t in main.answers[1:]]
        first_target = self.add("targets", targets + roots)
        answer = self._target(main, main.answers[0], 0)
        listed = [self._sums(sums) for sums in (self.groups, self.singles)]
        n_cells = self.n_cells
        fields = {
            "main": (*mine[0], 0, 0), "second": (*mine[1], first_target, len(targets)), "answer": answer,
            "source": places[0], "target": places[1], "message": self.n_consts,
            "work": self.n_consts + self.n * self.lanes, "n_consts": self.n_consts, "n_cells": n_cells,
            "n_entries": self.n, "lanes": self.lanes, "n_others": len(roots), "others": first_target + len(targets),
            "n_groups": listed[0][0], "groups": listed[0][1], "n_sums": listed[1][0], "sums": listed[1][1],
        }  # fmt: skip
        # a warp without work reads a tile, too
        made = {k: np.concatenate([np.zeros((int(k == "tiles" and not rows), w), np.int64), *rows]).astype(np.uint32)
                for (k, rows), w in zip(self.parts.items(), (6, TILE_WORDS, 2, 8, 5, 4), strict=True)}
        return SliceArrays(
            made["ops"], made["tiles"], made["steps"], made["items"], made["observed"], made["targets"],
            pool=np.concatenate(self._pool).astype(np.uint32), consts=self.consts,
            values=np.concatenate([np.zeros(0), *self.values]), least=maker.least, fields=fields,
            lanes=self.lanes, n_cells=n_cells, threads=self.threads,
        )  # fmt: skip

    def _added(self, number: int, first: int) -> int:
        """Where the distribution of a variable, or of a set, is added to: see struct Target."""
        maker, plan = self.given.second.maker, self.maker.plan
        scope = (number,) if number < plan.n_variables else plan.sets[number - plan.n_variables]
        cells, stride, codes = np.zeros(1, np.int64), 1, list[int]()
        for v in reversed(scope):
            if not maker.chosen[v]:
                cells = np.add.outer(np.arange(int(plan.cardinality[v])) * stride, cells).ravel()
            elif plan.cardinality[v] > 1:
                codes += [maker.pattern.column[v], stride]
            stride *= int(plan.cardinality[v])
        return self.pool([len(codes) // 2, first, *codes, *cells])

    def _sums(self, sums: Sequence[EqualSums]) -> tuple[int, int]:
        """The number of sums, and where they are in the pool."""
        rows = [(self.pool(terms), len(terms), x.to + i) for x in sums for i, terms in enumerate(x.terms)]
        return len(rows), self.pool(np.array(rows, np.int64).ravel())

    def _target(self, part: SlicePart, table: int, column: int) -> tuple[int, int, int, int]:
        return self.cell(part, table), int(table in part.consts), part.maker.size(table), column

    def part(self, part: SlicePart) -> tuple[int, int, int, int]:
        """Loads and contractions of a part: the first and the number of each."""
        items = [item for x in part.loads for item in self.items(part, x)]
        ops, before = [], -1
        for s, phase in zip(part.steps, part.phase, strict=True):
            ops.append(self._op(part, s, int(phase != before)))
            before = phase
        return self.add("items", items), len(items), self.add("ops", ops), len(ops)

    def value(self, part: SlicePart, factor: int) -> int:
        """The first number of a factor among the values."""
        key = factor, bool(part.maker.missing)
        if key not in self._value_cell:
            self._value_cell[key] = sum(map(len, self.values))
            self.values.append(part.maker.flat[factor])
        return self._value_cell[key]

    def items(self, part: SlicePart, x: Load) -> list[tuple[int, ...]]:
        """The cells of a factor that is loaded."""
        maker, pattern, plan = part.maker, part.maker.pattern, part.maker.plan
        strides, scope = maker.strides(x.factor), plan.table_scopes[x.factor]
        rows = []
        for v in (*x.fixed, *x.axes):
            inner = reduce(lambda n, u: n * int(maker.cards[u]), scope[scope.index(v) + 1 :], 1)
            column, weight = (NONE if k < 0 else k for k in (pattern.column[v], pattern.weight[v]))
            rows.append((column, weight, inner, int(plan.cardinality[v]), strides[v]))
        cells = maker.cells(x.factor).tolist()
        places = [*range(len(cells))]
        if x.message == KEPT:
            places = np.argsort(self.way.target.place).tolist()
        value, to, axes = self.value(part, x.factor), self.cell(part, x.factor), self.add("observed", rows)
        more = (axes, len(x.fixed), len(rows), x.message)
        return [(value + c, to + i * self.lanes, *more, places[i], i) for i, c in enumerate(cells)]

    def _op(self, part: SlicePart, step: Contraction, sync: int) -> tuple[int, ...]:
        loops = part.maker.loops(step)
        tiles = self.tile_maker.tiles(loops, len(step.ins) == 1, None)
        tm, tn = SHAPES[tiles.shape]
        wide = max(tn, 1)
        ins = [*step.ins, -1][:2]
        a, b = ins[::-1] if tiles.swapped else ins
        scale = {t: 1 if t in part.consts else self.lanes for t in (a, b)}
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
        shape = tiles.shape | (CONST_A if a in part.consts else 0) | (CONST_B if b in part.consts else 0)
        self.threads = max(self.threads, len(rows) * self.lanes // 2)
        return self.add("tiles", rows), len(rows), self.add("steps", steps), len(steps), shape, sync
