"""Structural zeros of a plan's contractions, propagated forward and backward: which multiply-adds ever matter.

An entry is used if it is structurally non-zero and some answer depends on it. The zeros of the factors decide both, and
evidence only adds zeros, so an entry that is not used is not used by any case: of its multiply-adds Water keeps 1 %,
Munin4 a quarter, Barley all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....plans.plan import Plan
from ..program.contractions import OUT, A, B, Binary, Loop, binary_program, loops_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Terms:
    """The multiply-adds of one contraction that matter, by ascending cell of the output."""

    out: NDArray[np.int32]
    a: NDArray[np.int32]
    b: NDArray[np.int32]  # empty where there is one input


@dataclass(frozen=True)
class Sparsity:
    """A plan's contractions of two tables, and which of their entries are used."""

    program: Binary
    loops: tuple[tuple[Loop, ...], ...]  # of every step
    factors: tuple[NDArray[np.float64], ...]  # flat, axes in the plan's order
    nonzero: tuple[NDArray[np.bool_], ...]  # (T,) entries of each table that evidence may leave other than zero
    needed: tuple[NDArray[np.bool_], ...]  # (T,) entries on which some answer depends
    count: NDArray[np.int64]  # (S,) multiply-adds of every step that matter

    @property
    def lower(self) -> float:
        """log2 of a bound below every number that is not zero, whatever is observed."""
        return -sum(max(0.0, -math.log2(float(f[f > 0].min()))) for f in self.factors if (f > 0).any())

    @property
    def upper(self) -> float:
        """log2 of a bound above every number: of the product of all factors summed over everything."""
        top = sum(max(0.0, math.log2(float(f.max()))) for f in self.factors if (f > 0).any())
        return top + sum(math.log2(max(len(f), 1)) for f in self.factors)

    def used(self, table: int) -> NDArray[np.bool_]:
        """Entries of a table that are structurally non-zero and needed."""
        return self.nonzero[table] & self.needed[table]

    def terms(self, step: int) -> Terms:
        """The multiply-adds of a step that matter."""
        s, loops = self.program.steps[step], self.loops[step]
        a = _offsets(loops, A)
        keep = self.nonzero[s.ins[0]][a]
        b = _offsets(loops, B) if len(s.ins) == 2 else np.zeros(0, np.int32)
        if len(s.ins) == 2:
            keep &= self.nonzero[s.ins[1]][b]
        out = _offsets(loops, OUT)
        keep &= self.needed[s.out][out]
        which = np.flatnonzero(keep)
        which = which[np.argsort(out[which], kind="stable")]
        return Terms(out[which], a[which], b[which] if len(b) else b)


def flat_factors(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], ...]:
    """The factors' entries, axes in the plan's order."""
    return tuple(
        np.transpose(table, [scope.index(v) for v in plan.table_scopes[f]]).ravel()
        for f, (table, scope) in enumerate(zip(factors, plan.factor_scopes, strict=True))
    )


def find_sparsity(
    plan: Plan, factors: Sequence[NDArray[np.float64]], program: Binary | None = None,
    wanted: Sequence[int] | None = None,
) -> Sparsity:  # fmt: skip
    """Find the entries that are used, one pass forward and one backward over all contractions."""
    # program: Default: the plan's
    # wanted: sequence of int: Tables all of whose entries are answers. Default: the plan's posteriors and roots.
    program = binary_program(plan) if program is None else program
    loops = tuple(loops_of(plan, program.scopes, s) for s in program.steps)
    flat = flat_factors(plan, factors)
    sizes = [plan.size(s) for s in program.scopes]
    nonzero = [f != 0 for f in flat] + [np.zeros(n, np.bool_) for n in sizes[len(flat) :]]
    for s, axes in zip(program.steps, loops, strict=True):
        both = _both(nonzero, s.ins, axes)
        nonzero[s.out][_offsets(axes, OUT)[both]] = True
    needed = [np.zeros(n, np.bool_) for n in sizes]
    if wanted is None:
        wanted = [*plan.posterior_table.tolist(), *plan.root_table.tolist()]
    for t in wanted:
        needed[t][:] = True
    count = np.zeros(len(loops), np.int64)
    for i in range(len(loops) - 1, -1, -1):
        s, axes = program.steps[i], loops[i]
        both = _both(nonzero, s.ins, axes)
        both &= needed[s.out][_offsets(axes, OUT)]
        count[i] = int(both.sum())
        for t, side in zip(s.ins, (A, B), strict=False):
            needed[t][_offsets(axes, side)[both]] = True
    return Sparsity(program, loops, flat, tuple(nonzero), tuple(needed), count)


def _both(nonzero: Sequence[NDArray[np.bool_]], ins: Sequence[int], loops: tuple[Loop, ...]) -> NDArray[np.bool_]:
    """Where no input is zero, for every configuration of the joint axes."""
    found = nonzero[ins[0]][_offsets(loops, A)]
    if len(ins) == 2:
        found &= nonzero[ins[1]][_offsets(loops, B)]
    return found


def _offsets(loops: Sequence[Loop], table: int) -> NDArray[np.int32]:
    """Offsets in one table of every configuration of some axes, the last axis fastest."""
    at = np.zeros(1, np.int32)
    for n, strides in loops:
        at = np.add.outer(at, np.arange(n, dtype=np.int32) * np.int32(strides[table])).ravel()
    return at
