"""Kernels for cases that all observe certain variables: no table has an axis of these.

A *fixed* variable has one state in the plan, whichever the cases observe: each case reads the part of every factor
that belongs to its own state (``batch_enter`` of cuda/batch/batch.cu). So Barley's tables become a sixth for cases that
observe one variable of ten states. `jtgpu.backends.gpu.batch.variants` says which cases have such kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....plans.plan import Plan
from ..program.layout import Places
from ..program.records import CASE_FACTOR, KNOWN, Binary
from .sparsity import Sparsity

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRIES = 32  # of an evidence factor, that a warp enters
PRODUCT = 0.125  # cost of a multiply-add, in cells read or written


def with_fixed(plan: Plan, fixed: frozenset[int]) -> Plan:
    """The plan with one state for each fixed variable; its program is lowered again by the caller."""
    cardinality = plan.cardinality.copy()
    cardinality[list(fixed)] = 1
    return replace(plan, cardinality=cardinality)


def with_any_state(
    plan: Plan, factors: Sequence[NDArray[np.float64]], fixed: frozenset[int]
) -> list[NDArray[np.float64]]:
    """Factors of `with_fixed` for the search of structural zeros: the largest entry of all states."""
    made = []
    for table, scope in zip(factors, plan.factor_scopes, strict=True):
        axes = tuple(i for i, v in enumerate(scope) if v in fixed)
        made.append(table.max(axis=axes, keepdims=True) if axes else table)
    return made


def case_factors(
    s: Places, where: NDArray[np.int64], sparsity: Sparsity | None
) -> NDArray[Any]:
    """Records of the evidence factors, of which every case has its own: `ENTRIES` entries each, all or those used."""
    made = [np.zeros(0, CASE_FACTOR)]
    for factor in s.chunks[s.chunks["from"] == 0]:
        t = int(factor["table"])
        known = int(factor["known"]), int(factor["n_known"]), 0
        made.append(_entries(t, int(factor["cell"]), known, s, where, sparsity))
    return np.concatenate(made)


def cut_factors(
    plan: Plan, fixed: frozenset[int], cardinality: NDArray[np.int64], s: Places, where: NDArray[np.int64],
    sparsity: Sparsity | None,
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    """`case_factors` of a plan with fixed variables, and their axes (KNOWN)."""
    # cardinality: (V,) with all states
    made, known, whole = [np.zeros(0, CASE_FACTOR)], [(0, 0, 0, 0)], s.factor_cells
    for f in range(plan.n_factors):
        if where[f] < 0:
            continue
        scope, size, first = plan.table_scopes[f], int(s.table_size[f]), len(known)
        cell, inner, axes = int(s.table_cell[f]), size, []
        for v in reversed([v for v in scope if v in fixed]):
            axes.append((v, inner, int(cardinality[v]), int(plan.evidence_factor[v] == f)))
            inner *= int(cardinality[v])
        if axes:
            cell, whole = whole, whole + inner
        known += axes
        for i, v in enumerate(scope):
            if v not in fixed and plan.evidence_factor[v] == f:
                known.append((v, plan.size(scope[i + 1 :]), int(plan.cardinality[v]), 0))
        made.append(_entries(f, cell, (first, len(known) - first, len(axes)), s, where, sparsity))
    return np.concatenate(made), np.array(known, KNOWN)


def _entries(
    t: int, cell: int, known: tuple[int, int, int], s: Places, where: NDArray[np.int64], sparsity: Sparsity | None
) -> NDArray[Any]:
    """Records of one factor; `known`: its first axis, how many there are, and how many of them choose entries."""
    n = int(s.table_size[t])
    bits = np.zeros(-(-n // ENTRIES) * ENTRIES, np.bool_)
    bits[:n] = True if sparsity is None else sparsity.used(t)
    records = np.zeros(len(bits) // ENTRIES, CASE_FACTOR)
    records["table"], (records["known"], records["n_known"], records["n_cut"]) = t, known
    records["from"] = np.arange(0, n, ENTRIES)
    records["cell"], records["to"] = cell + records["from"], where[t] + records["from"]
    records["used"] = np.packbits(bits, bitorder="little").view("<u4")
    kept: NDArray[Any] = records[(records["used"] != 0) | (records["from"] == 0)]
    return kept


class Costs(NamedTuple):
    """Cost of a case, in cells of tables that are read and written: products of the states of some variables."""

    ptr: NDArray[np.int64]  # (K+1,) where the variables of each summand begin
    variable: NDArray[np.int64]
    cells: NDArray[np.float64]  # (K,)

    def of_each(self, cardinality: NDArray[np.int64], fixed: frozenset[int]) -> tuple[float, NDArray[np.float64]]:
        """The cost with fixed variables, and (V,) what it is if one more is fixed."""
        shrink = np.zeros(len(cardinality))
        shrink[list(fixed)] = np.log(cardinality[list(fixed)])
        of = np.repeat(np.arange(len(self.cells)), np.diff(self.ptr))
        cells = self.cells * np.exp(-np.bincount(of, shrink[self.variable], len(self.cells)))
        less = np.bincount(self.variable, cells[of], len(cardinality)) * (1.0 - 1.0 / cardinality)
        less[list(fixed)] = 0.0
        total = float(cells.sum())
        return total, total - less


def costs_of(plan: Plan, program: Binary, where: NDArray[np.int64], sparsity: Sparsity | None) -> Costs:
    """The costs of contractions."""
    used = [int(sparsity.used(t).sum()) if sparsity else plan.size(s) for t, s in enumerate(program.scopes)]
    scopes: list[tuple[int, ...]] = []
    cells: list[float] = []
    for i, x in enumerate(program.steps):
        for t in (x.out, *x.ins):
            if where[t] >= 0:
                scopes.append(program.scopes[t])
                cells.append(used[t])
        joint = tuple(sorted(set().union(*(program.scopes[t] for t in x.ins))))
        scopes.append(joint)
        cells.append(PRODUCT * float(sparsity.count[i] if sparsity else plan.size(joint)))
    ptr = np.cumsum([0, *map(len, scopes)])
    return Costs(ptr, np.array([v for s in scopes for v in s], np.int64), np.array(cells))
