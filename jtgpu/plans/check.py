"""The rules that every plan satisfies, one function per group of rules; `check` tests all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError
from .arrays import PlanArrays


def check(plan: PlanArrays) -> None:
    """Raise `PlanError`, naming the first rule that `plan` violates."""
    _check_shapes(plan)
    _check_tree(plan)
    _check_program(plan)
    _check_arena(plan)


def _need(holds: bool, rule: str) -> None:
    if not holds:
        raise PlanError(rule)


def _within(values: NDArray[np.int64], low: int, high: int) -> bool:
    return bool(values.size == 0 or (values.min() >= low and values.max() < high))


def _check_csr(name: str, ptr: NDArray[np.int64], values: NDArray[np.int64], n: int, high: int) -> None:
    _need(
        len(ptr) == n + 1 and ptr[0] == 0 and ptr[-1] == len(values) and bool((np.diff(ptr) >= 0).all()),
        f"{name}: the bounds do not match the values",
    )
    _need(_within(values, 0, high), f"{name}: a value is outside 0..{high - 1}")


def _check_shapes(plan: PlanArrays) -> None:
    n, n_factors, n_cliques = plan.n_variables, plan.n_factors, plan.n_cliques
    n_tables, n_ops = len(plan.table_off), len(plan.op_out)
    _need(n_factors >= 0, "factor_ptr is empty")
    _need(bool((plan.cardinality >= 1).all()), "a variable has no states")
    _check_csr("factors", plan.factor_ptr, plan.factor_var, n_factors, n)
    _check_csr("cliques", plan.clique_ptr, plan.clique_var, n_cliques, n)
    _check_csr("separators", plan.separator_ptr, plan.separator_var, n_cliques, n)
    _check_csr("tables", plan.table_ptr, plan.table_var, n_tables, n)
    _check_csr("inputs of contractions", plan.op_in_ptr, plan.op_in, n_ops, n_tables)
    for name, length, low, high in (
        ("elimination_order", n, 0, n),
        ("axis_rank", n, 0, n),
        ("evidence_factor", n, 0, n_factors),
        ("posterior_table", n, 0, n_tables),
        ("clique_parent", n_cliques, -1, n_cliques),
        ("clique_depth", n_cliques, 0, max(n_cliques, 1)),
        ("factor_clique", n_factors, 0, n_cliques),
        ("op_out", n_ops, n_factors, n_tables),
        ("op_level", n_ops, 1, n_ops + 1),
        ("op_kind", n_ops, 0, 3),
    ):
        array = getattr(plan, name)
        _need(array.shape == (length,) and _within(array, low, high), f"{name} has a wrong length or value")
    for name in ("elimination_order", "axis_rank"):
        _need(sorted(getattr(plan, name).tolist()) == list(range(n)), f"{name} is not a permutation of the variables")
    _need(plan.arena_cells.shape == (1,), "arena_cells is not a single number")


def _check_axis_order(plan: PlanArrays, scopes: Sequence[Sequence[int]], what: str) -> None:
    rank = plan.axis_rank.tolist()
    for i, scope in enumerate(scopes):
        _need(
            all(rank[a] < rank[b] for a, b in pairwise(scope)),
            f"{what} {i}: its variables are not in axis order, or one is repeated",
        )


def _check_tree(plan: PlanArrays) -> None:
    cliques = [frozenset(c) for c in plan.cliques]
    parents = plan.clique_parent.tolist()
    _check_axis_order(plan, plan.cliques, "clique")
    _check_axis_order(plan, plan.separators, "separator")
    started: dict[int, int] = {}
    for c, up in enumerate(parents):
        above = cliques[up] if up >= 0 else frozenset()
        _need(
            int(plan.clique_depth[c]) == (int(plan.clique_depth[up]) + 1 if up >= 0 else 0),
            f"clique {c}: its depth is not one more than its parent's",
        )
        _need(frozenset(plan.separators[c]) == cliques[c] & above, f"separator {c} is not an intersection")
        for v in sorted(cliques[c] - above):
            _need(v not in started, f"running intersection fails for variable {v}")
            started[v] = c
    _need(len(started) == plan.n_variables, "a variable is in no clique")
    for f, scope in enumerate(plan.factor_scopes):
        _need(len(set(scope)) == len(scope), f"factor {f}: a variable is repeated")
        _need(set(scope) <= cliques[int(plan.factor_clique[f])], f"factor {f} is not contained in its clique")


def _check_program(plan: PlanArrays) -> None:
    scopes = plan.table_scopes
    n_factors = plan.n_factors
    _check_axis_order(plan, scopes, "table")
    for f, scope in enumerate(plan.factor_scopes):
        _need(sorted(scope) == sorted(scopes[f]), f"table {f} is not over the variables of factor {f}")
    for v, f in enumerate(plan.evidence_factor.tolist()):
        _need(v in scopes[f], f"evidence on variable {v} is multiplied into a factor that does not contain it")
    level = dict.fromkeys(range(n_factors), 0)
    _need(bool((np.diff(plan.op_level) >= 0).all()), "the levels of the contractions are not ascending")
    for i, (out, ins) in enumerate(zip(plan.op_out.tolist(), plan.op_inputs, strict=True)):
        _need(len(ins) > 0, f"contraction {i} has no inputs")
        _need(out not in level, f"table {out} is written twice")
        for t in ins:
            _need(level.get(t, plan.op_level[i]) < plan.op_level[i], f"contraction {i} reads table {t} too early")
        read = {v for t in ins for v in scopes[t]}
        _need(set(scopes[out]) <= read, f"the output of contraction {i} has variables that its inputs do not have")
        level[out] = int(plan.op_level[i])
    _need(len(level) == len(scopes), "a table is never written")
    for v, t in enumerate(plan.posterior_table.tolist()):
        _need(scopes[t] == (v,), f"the posterior table of variable {v} is not over that variable")
    for t in plan.root_table.tolist():
        _need(0 <= t < len(scopes) and scopes[t] == (), "a root table does not have empty scope")


def _check_arena(plan: PlanArrays) -> None:
    start = plan.table_off
    size = np.array([plan.size(s) for s in plan.table_scopes], np.int64)
    by_start = np.argsort(start, kind="stable")
    ends = (start + size)[by_start]
    _need(
        bool(start.size == 0 or start.min() >= 0) and bool((ends[:-1] <= start[by_start][1:]).all()),
        "tables overlap in the arena",
    )
    _need(int(ends.max(initial=0)) <= int(plan.arena_cells[0]), "a table exceeds the arena")
