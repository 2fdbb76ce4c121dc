"""The program of a marginal MAP query: sums first, then maxima, in a constrained elimination order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ...plans.program import Program
from ..results.costs import MapCost
from .constrained_order import components, order_before

if TYPE_CHECKING:
    from ...backends.base import Evidence
    from ...plans.plan import Plan

MAX_PAIRED = 8  # tables that contain a variable, up to which all pairs are compared


class _Builder:
    """A program under construction: the tables that no contraction has used yet, and the contractions."""

    def __init__(self, plan: Plan, factors: Iterable[int], observed: frozenset[int]):
        self.scopes: list[tuple[int, ...]] = list(plan.table_scopes[: plan.n_factors])
        self.cards, self.rank = plan.cardinality.tolist(), plan.axis_rank.tolist()
        self.live: dict[int, frozenset[int]] = {}  # unused table -> its scope without the observed variables
        self.holders: list[set[int]] = [set() for _ in self.cards]  # unused tables that contain a variable
        self.outs: list[int] = []
        self.ins: list[tuple[int, ...]] = []
        self.maximal: list[bool] = []
        self.operations = 0
        for f in factors:
            self._add(f, frozenset(plan.factor_scopes[f]) - observed)

    def size(self, scope: Iterable[int]) -> int:
        """Entries of a table."""
        return math.prod(self.cards[v] for v in scope)

    def _add(self, table: int, scope: frozenset[int]) -> None:
        self.live[table] = scope
        for v in scope:
            self.holders[v].add(table)

    def contract(self, tables: Sequence[int], eliminated: frozenset[int], maximal: bool) -> int:
        """Add the product of some tables, without those variables of `eliminated` that no other table contains."""
        joint = frozenset().union(*(self.live[t] for t in tables))
        for t in tables:
            for v in self.live.pop(t):
                self.holders[v].discard(t)
        kept = frozenset(v for v in joint if v not in eliminated or self.holders[v])
        out = len(self.scopes)
        self.scopes.append(tuple(sorted(kept, key=self.rank.__getitem__)))
        self._add(out, kept)
        self.outs.append(out)
        self.ins.append(tuple(tables))
        self.maximal.append(maximal)
        self.operations += len(tables) * self.size(joint)
        return out

    def eliminate(self, order: Sequence[int], eliminated: frozenset[int], maximal: bool) -> None:
        """Eliminate variables one after the other, multiplying two tables at a time, the smallest first."""
        for v in order:
            while len(bucket := sorted(self.holders[v], key=self._by_size)) > 1:
                # of many tables, the two smallest; else the two with the smallest product
                pairs = combinations(bucket if len(bucket) <= MAX_PAIRED else bucket[:2], 2)
                self.contract(min(pairs, key=self._by_union), eliminated, maximal)
            if bucket:  # otherwise v was eliminated together with an earlier variable
                self.contract(bucket, eliminated, maximal)

    def _by_size(self, table: int) -> tuple[int, int]:
        return self.size(self.live[table]), table

    def _by_union(self, pair: Sequence[int]) -> tuple[int, Sequence[int]]:
        return self.size(self.live[pair[0]] | self.live[pair[1]]), pair


def map_program(
    plan: Plan, heads: Sequence[int], chosen: frozenset[int], case: Evidence
) -> tuple[Program, MapCost]:
    """Build the contractions of a marginal MAP query."""
    # heads: (F,) sequence of int: The variable whose conditional table each factor is, or -1; see
    #     `jtgpu.plans.specialise.conditional_heads`
    # chosen: frozenset of int: The variables of the query
    # case: Which variables are observed or weighted; their states and weights do not matter
    observed = frozenset(np.flatnonzero(case.state >= 0).tolist())
    factors = _without_barren(plan, heads, observed | frozenset(case.likelihood) | chosen)
    build = _Builder(plan, factors, observed)
    chosen = chosen - observed
    summed = frozenset().union(*build.live.values()) - chosen
    for component in components(list(build.live.values()), summed):
        inside = frozenset(component)
        around = frozenset().union(*(s for s in build.live.values() if s & inside)) - inside
        order = order_before(build.live.values(), build.cards, component, sorted(around))
        build.eliminate(order, inside, maximal=False)
    build.eliminate(order_before(build.live.values(), build.cards, sorted(chosen), ()), chosen, maximal=True)
    # all tables are scalars now, but factors of observed variables alone still have these in their scope
    roots = [build.contract([t], observed, maximal=False) if build.scopes[t] else t for t in sorted(build.live)]
    tables = [build.size(s) for s in build.scopes[plan.n_factors :]]
    entries = sum(tables) + sum(build.size(plan.factor_scopes[f]) for f in factors)
    cost = MapCost(
        how="order",
        variables=len(chosen),
        summed=len(summed),
        barren=plan.n_variables - len(observed) - len(chosen) - len(summed),
        largest=max(tables, default=1),
        table_entries=entries,
        operations=build.operations,
        bytes=8 * entries,
    )
    weighted = plan.evidence_factor.copy()  # weights are multiplied into the smallest remaining factor
    for f in sorted(factors, key=lambda f: (-build.size(plan.factor_scopes[f]), -f)):
        weighted[list(plan.factor_scopes[f])] = f
    program = Program(
        plan.cardinality,
        plan.axis_rank,
        weighted,
        plan.factor_scopes,
        tuple(build.scopes),
        tuple(build.outs),
        tuple(build.ins),
        tuple(build.maximal),
        tuple(roots),
        chosen=chosen | observed,
    )
    return program, cost


def _without_barren(plan: Plan, heads: Sequence[int], relevant: frozenset[int]) -> list[int]:
    """The factors that remain when barren variables are removed repeatedly.

    A variable is barren if it is not relevant, only its own conditional table contains it, and that table sums to one.
    """
    kept = dict.fromkeys(range(plan.n_factors))
    table = {v: f for f, v in enumerate(heads) if v >= 0}
    count = np.bincount(plan.factor_var, minlength=plan.n_variables).tolist()
    queue = [v for v in sorted(table) if count[v] == 1 and v not in relevant]
    for v in queue:
        del kept[table[v]]
        for u in plan.factor_scopes[table[v]]:
            count[u] -= 1
            if count[u] == 1 and u in table and u not in relevant and table[u] in kept:
                queue.append(u)
    return list(kept)
