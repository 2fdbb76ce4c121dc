"""The contractions of a slice for many sequences. Knows no device.

They are those of the plan that the answers need. Variables that every row observes have one state. A factor is loaded
for each sequence where evidence or a message enters it, or an observed variable is in it; what does not depend on
evidence is computed here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..lower import OUT, A, B, Contraction, flat_factors, loops_of, lowered, offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan
    from ...slices import Side

DIGITS = 64.0  # powers of two between the least number that is computed with all digits and what may be neglected
LOWEST = -1022.0
RUNNING, KEPT = 1, 2  # the message of the group, or one of those that were kept


class SlicePattern(NamedTuple):
    """Which variables have evidence."""

    always: tuple[bool, ...]  # (V,) observed in every row, and no weights
    column: tuple[int, ...]  # (V,) column of codes, -1: never observed
    weight: tuple[int, ...]  # (V,) first column of weights, -1: none


@dataclass(frozen=True)
class Load:
    """A factor that is loaded."""

    factor: int
    fixed: tuple[int, ...]
    axes: tuple[int, ...]
    message: int


@dataclass
class SlicePart:
    """The contractions of some answers."""

    maker: SliceMaker
    loads: list[Load]
    steps: list[Contraction]
    phase: list[int]
    message: list[int]  # factors that are the running message itself
    cell: dict[int, int]  # first cell of each table of a sequence
    size: int  # cells of a sequence
    answers: list[int]  # tables
    consts: dict[int, NDArray[np.float64]]  # tables that all sequences share


class SliceMaker:
    """The contractions of a plan's slice for one pattern of evidence."""

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], pattern: SlicePattern, answers: bool = True
    ):  # fmt: skip
        # answers: Whether any variable may have a posterior, else messages alone are answers: then a variable that is
        #     sometimes observed and in no other factor has one state more, "missing"
        self.plan, self.pattern, self._factors = plan, pattern, factors
        self.flat = flat_factors(plan, factors)
        self.missing = set[int]() if answers else self._add_missing()
        self.program = lowered(plan)
        self.scopes = self.program.scopes
        self.chosen = [v in self.missing or pattern.always[v] for v in range(len(pattern.always))]
        self.cards = np.where(np.array(self.chosen), 1, plan.cardinality)
        top = sum(max(0.0, math.log2(float(f.max()))) + math.log2(max(len(f), 1)) for f in self.flat if f.max() > 0)
        self.least = 2.0 ** min(LOWEST + DIGITS + top, 0.0)

    @cached_property
    def of_all(self) -> SliceMaker:
        """The contractions that give the posterior of any variable."""
        return SliceMaker(self.plan, self._factors, self.pattern) if self.missing else self

    def _add_missing(self) -> set[int]:
        plan, p = self.plan, self.pattern
        uses = Counter(v for scope in plan.table_scopes[: plan.n_factors] for v in scope)
        added = set[int]()
        for v, factor in enumerate(plan.evidence_factor[: plan.n_variables].tolist()):
            if uses[v] == 1 and p.column[v] >= 0 and p.weight[v] < 0 and not p.always[v]:
                scope = plan.table_scopes[factor]
                table = self.flat[factor].reshape([int(plan.cardinality[u]) + (u in added) for u in scope])
                whole = table.sum(axis=scope.index(v), keepdims=True)
                self.flat[factor] = np.concatenate([whole, table], axis=scope.index(v)).ravel()
                added.add(v)
        return added

    def size(self, table: int) -> int:
        """Cells of a table of a sequence."""
        return math.prod(int(self.cards[v]) for v in self._axes_of(table))

    def loops(self, step: Contraction) -> tuple[Any, ...]:
        """The joint axes of a contraction."""
        return loops_of(self.cards, self.plan.axis_rank, self.scopes, step)

    def other_roots(self, side: Side) -> list[int]:
        """Tables of P(e) of the components that a side is not in."""
        own = self.program.component[int(self.plan.evidence_factor[side.number])]
        return [t for i, t in enumerate(self.program.roots) if i != own]

    def cells(self, factor: int) -> NDArray[np.int64]:
        """The cell of the whole factor of each cell that is left when observed variables are in state 0."""
        at = np.zeros(1, np.int64)
        strides = self.strides(factor)
        for v in self.plan.table_scopes[factor]:
            if not self.chosen[v]:
                at = np.add.outer(at, np.arange(int(self.plan.cardinality[v])) * strides[v]).ravel()
        return at + sum(strides[v] for v in self.plan.table_scopes[factor] if v in self.missing)

    def strides(self, factor: int) -> dict[int, int]:
        """Of a whole factor."""
        strides, at = {}, 1
        for v in reversed(self.plan.table_scopes[factor]):
            strides[v] = at
            at *= int(self.plan.cardinality[v]) + (v in self.missing)
        return strides

    def load(self, factor: int, message: int) -> Load | None:
        """How a factor is loaded; None if all sequences share it."""
        p, scope = self.pattern, self.plan.table_scopes[factor]
        fixed = tuple(v for v in scope if self.chosen[v] and int(self.plan.cardinality[v]) > 1)
        axes = tuple(
            v for v in scope
            if self.plan.evidence_factor[v] == factor and not self.chosen[v] and (p.column[v] >= 0 or p.weight[v] >= 0)
        )  # fmt: skip
        if not message and not axes and (self.flat[factor] == 1.0).all():  # of a set
            return None
        return Load(factor, fixed, axes, message) if fixed or axes or message else None

    def part(self, messages: dict[int, int], answers: Sequence[int], first_cell: int) -> SlicePart:
        """The contractions of some tables, in phases."""
        # messages: Factor to `RUNNING` or `KEPT`
        # first_cell: Of a sequence that tables may use
        loads = {f: self.load(f, messages.get(f, 0)) for f in range(self.plan.n_factors)}
        consts = {f: self.flat[f][self.cells(f)] for f, x in loads.items() if x is None}
        alias: dict[int, int] = {}
        left: list[Contraction] = []
        for s in (self.program.steps[i] for i in sorted(self.program.needed(answers))):
            ins = [alias.get(t, t) for t in s.ins]
            if len(ins) == 2:
                ins = self._without_ones(ins, consts)
            step = Contraction(s.out, tuple(ins))
            if all(t in consts for t in ins):
                consts[s.out] = self._folded(step, consts)
            elif len(ins) == 1 and ins[0] not in messages and self._axes_of(s.out) == self._axes_of(ins[0]):
                alias[s.out] = ins[0]
            else:
                left.append(step)
        tables = [alias.get(t, t) for t in answers]
        used = {t for s in left for t in s.ins} | set(tables)
        mine = [x for f, x in loads.items() if x is not None and f in used]
        level = {x.factor: 0 for x in mine}
        running = [x.factor for x in mine if x.message == RUNNING and not x.axes and (self.flat[x.factor] == 1.0).all()]
        for s in left:
            level[s.out] = 1 + max(level.get(t, 0) for t in s.ins)
        left.sort(key=lambda s: level[s.out])
        mine = [x for x in mine if x.factor not in running]  # the message itself, at the beginning of the arena
        shared = {t: consts[t] for t in used if t in consts}
        part = SlicePart(self, mine, left, [level[s.out] for s in left], running, {}, 0, tables, shared)
        self._place(part, {t: phase for t, phase in level.items() if t not in running}, first_cell)
        return part

    def _axes_of(self, table: int) -> list[int]:
        return [v for v in self.scopes[table] if self.cards[v] > 1]

    def _without_ones(self, ins: list[int], consts: dict[int, Any]) -> list[int]:
        """Two inputs, or one where the other is a table of ones about no other variables."""
        for mine, other in (ins, ins[::-1]):
            is_one = mine in consts and bool((consts[mine] == 1.0).all())
            if is_one and set(self._axes_of(mine)) <= set(self._axes_of(other)):
                return [other]
        return ins

    def _folded(self, step: Contraction, consts: dict[int, Any]) -> NDArray[np.float64]:
        """A contraction of constants."""
        loops = self.loops(step)
        x = consts[step.ins[0]][offsets(loops, A)]
        if len(step.ins) == 2:
            x = x * consts[step.ins[1]][offsets(loops, B)]
        folded: NDArray[np.float64] = np.bincount(offsets(loops, OUT), x, self.size(step.out)).astype(np.float64)
        return folded

    def _place(self, part: SlicePart, level: dict[int, int], first: int) -> None:
        """Cells of each table: free ones from its own phase on, until the phase after the last that reads it."""
        # level: Phase of each table that is made
        end = dict(level)
        for s in part.steps:
            for t in s.ins:
                end[t] = max(end.get(t, 0), level[s.out])
        for t in part.answers:
            end[t] = max(level.values(), default=0) + 1
        made: list[tuple[int, int, int]] = []  # first cell, behind the last, last phase
        part.cell = dict.fromkeys(part.message, 0)
        part.size = first
        for t in level:
            at, size = first, self.size(t)
            for begin, behind, last in sorted(made):
                if last >= level[t] and begin < at + size and behind > at:
                    at = behind
            made.append((at, at + size, end[t]))
            part.cell[t] = at
            part.size = max(part.size, at + size)
