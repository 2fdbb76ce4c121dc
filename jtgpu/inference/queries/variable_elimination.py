"""Joint tables by variable elimination, in NumPy whatever the backend.

A plan is made whose junction tree has all variables of the query in one clique (``net.plan(together=...)``). With that
clique as the root, they are eliminated last, and the remaining table is the result (Zhang and Poole, Exploiting causal
independence in Bayesian network inference, 1996, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence, slice_of
from ...backends.reference import contract
from ...errors import ImpossibleEvidence
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ...plans.compiler import model_factors
from ...util.arrays import Floats
from ..network_plan import NetworkPlan
from ..planning import make_plan
from ..results.rankings import JointCost

if TYPE_CHECKING:
    from ..compiled import CompiledModel
    from ..interventions import ResolvedEvidence

MAX_PLANS = 16  # cached for each compiled model

_Scoped = tuple[tuple[int, ...], Any]  # the variables of a table, and its numbers


def joint_table(tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence) -> tuple[Floats, float]:
    """P(configuration, evidence) up to a factor, one axis for each variable; and ln P(evidence)."""
    cards = tree.model.cardinality
    tables = list(_tables(tree, scope, resolved))
    exponent = 0
    for v in _elimination_order(_plan_of(tree, scope), scope, resolved.case):
        bucket = [t for t in tables if v in t[0]]
        if bucket:
            made, shift = _scaled(*_product(bucket, without=v))
            tables = [*(t for t in tables if v not in t[0]), made]
            exponent += shift
    free = [v for v in scope if resolved.case.state[v] < 0]
    tables.append((tuple(free), np.ones([int(cards[v]) for v in free])))
    (axes, table), shift = _scaled(*_product(tables))
    table = table.transpose([axes.index(v) for v in free])
    log_evidence = math.log(float(table.sum())) + (exponent + shift) * math.log(2.0)
    full = np.zeros([int(cards[v]) for v in scope])
    full[tuple(slice(None) if resolved.case.state[v] < 0 else int(resolved.case.state[v]) for v in scope)] = table
    return full, log_evidence


def cost(tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence) -> JointCost:
    """Cost of `joint_table`: the same steps on scopes instead of tables."""
    cards = tree.model.cardinality.tolist()

    def size(variables: Iterable[int]) -> int:
        return math.prod(cards[v] for v in variables)

    tables = [frozenset(s) for s, _ in _tables(tree, scope, resolved)]
    operations = largest = cells = 0
    free = frozenset(v for v in scope if resolved.case.state[v] < 0)
    for v in [*_elimination_order(_plan_of(tree, scope), scope, resolved.case), -1]:
        bucket = [t for t in tables if v in t] if v >= 0 else [*tables, free]
        if not bucket:
            continue
        tables = [t for t in tables if v not in t] if v >= 0 else []
        while len(bucket) > 2:
            bucket.sort(key=lambda t: (size(t), sorted(t)))
            union = bucket[0] | bucket[1]
            operations, largest, cells = operations + 2 * size(union), max(largest, size(union)), cells + size(union)
            bucket = [union, *bucket[2:]]
        union = frozenset().union(*bucket)
        made = union - {v}
        operations, largest, cells = operations + 2 * size(union), max(largest, size(made)), cells + size(made)
        tables.append(made)
    entries = size(scope)
    return JointCost("together", entries, 0, operations, max(largest, entries), 8 * (cells + entries))


def _tables(tree: CompiledModel, scope: Sequence[int], resolved: ResolvedEvidence) -> Iterator[_Scoped]:
    """The relevant factors, restricted to the observed states, and the likelihoods."""
    case, model, sets = resolved.case, tree.model, tree.plan.sets
    weighed: set[int] = set()
    for v, w in sorted(case.likelihood.items()):
        axes = sets.scopes[v - sets.first] if v >= sets.first else (v,)
        weighed.update(axes)
        table = np.reshape(w, [int(model.cardinality[u]) for u in axes])
        yield tuple(u for u in axes if case.state[u] < 0), table[slice_of(axes, case.state)]
    factors = model_factors(model)
    relevant = _ancestors(model, [*scope, *weighed, *np.flatnonzero(case.state >= 0).tolist()])
    for f, table in enumerate(resolved.factors[: len(factors)]):
        if f in relevant:
            axes = factors[f].scope
            yield tuple(v for v in axes if case.state[v] < 0), table[slice_of(axes, case.state)]


def _ancestors(model: DiscreteModel, variables: Iterable[int]) -> set[int]:
    """Numbers of the factors that are not barren: those of the variables and of their ancestors."""
    if not isinstance(model, BayesianNetwork):  # it is not known which factors sum to 1
        return set(range(len(model) + len(model.factors)))
    reached = dict.fromkeys(variables)
    for v in (queue := list(reached)):
        for u in model.factors[v].scope:
            if u not in reached:
                reached[u] = None
                queue.append(u)
    return set(reached)


def _product(tables: Sequence[_Scoped], without: int = -1) -> _Scoped:
    """Product of tables, the two smallest first; one variable is summed out."""
    left = sorted(tables, key=_by_size)
    while len(left) > 2:
        (a, x), (b, y) = left[0], left[1]
        union = tuple(sorted({*a, *b}))
        left = sorted([(union, contract([x, y], [a, b], union)), *left[2:]], key=_by_size)
    out = tuple(v for v in sorted({v for s, _ in left for v in s}) if v != without)
    return out, contract([np.asarray(t) for _, t in left], [s for s, _ in left], out)


def _by_size(table: _Scoped) -> tuple[int, tuple[int, ...]]:
    return np.size(table[1]), table[0]


def _scaled(scope: tuple[int, ...], table: Floats) -> tuple[_Scoped, int]:
    """The table divided by a power of two near its largest entry, and the exponent."""
    top = float(table.max(initial=0.0))
    if not top > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    shift = math.frexp(top)[1]
    return (scope, np.ldexp(table, -shift)), shift


def _plan_of(tree: CompiledModel, scope: Sequence[int]) -> NetworkPlan:
    """A plan whose junction tree has all variables of `scope` in one clique; cached."""
    key = tuple(sorted(scope))
    return tree.cached(
        "joint_plans", key,
        lambda: make_plan(tree.model, "auto", together=[key], max_table=None, memory_limit=math.inf), MAX_PLANS,
    )  # fmt: skip


def _elimination_order(made: NetworkPlan, scope: Sequence[int], case: Evidence) -> list[int]:
    """All variables except `scope` and the observed ones: leaf cliques first, the clique of `scope` last.

    Eliminating in this order creates no more fill-in than the plan has.
    """
    plan = made.plan
    members = [set(c) for c in plan.cliques]
    neighbours: list[list[int]] = [[] for _ in members]
    for c, parent in enumerate(plan.clique_parent.tolist()):
        if parent >= 0:
            neighbours[c].append(parent)
            neighbours[parent].append(c)
    home = next(c for c, clique in enumerate(members) if clique.issuperset(scope))
    visited: dict[int, int] = {}  # clique -> its parent when `home` is the root, breadth first
    for root in (home, *range(len(members))):
        if root in visited:
            continue
        visited[root] = -1
        for c in (queue := [root]):
            for d in sorted(neighbours[c]):
                if d not in visited:
                    visited[d] = c
                    queue.append(d)
    kept = set(scope)
    order = []
    for c, parent in reversed(list(visited.items())):
        own = members[c] - (members[parent] if parent >= 0 else set()) - kept
        order += sorted(v for v in own if case.state[v] < 0)
    return order
