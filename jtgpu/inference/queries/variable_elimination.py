"""Joint tables by variable elimination, in NumPy whatever the backend.

A plan is made whose junction tree has all variables of the query in one clique (``net.plan(together=...)``). With that
clique as the root, they are eliminated last, and the remaining table is the result (Zhang and Poole, Exploiting causal
independence in Bayesian network inference, 1996, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...backends.base import Evidence, slice_of
from ...backends.reference import Extended, contract, contract_extended
from ...errors import ImpossibleEvidence
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ...plans.compiler import model_factors
from ...util.arrays import Cell, Floats, Ints
from ..network_plan import NetworkPlan
from ..planning import make_plan
from ..results.rankings import JointCost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..compiled import CompiledModel
    from ..interventions import ResolvedEvidence

MAX_PLANS = 16  # cached for each compiled model

LEAST = -1000  # log2 of products, far from where doubles lose digits


class _ScopeTable(NamedTuple):
    scope: tuple[int, ...]
    cells: Floats
    low: int  # log2 of a number below all entries above 0
    top: int = 0  # log2 of a number above all entries


class _LosesDigitsError(Exception):
    """A product may be too small for a float64 where another one is not."""


def joint_table(tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence) -> tuple[Floats, Ints, float]:
    """P(configuration, evidence) up to a factor, one axis for each variable, as for `relative`; and ln P(evidence)."""
    cards, state = tree.model.cardinality, resolved.case.state
    order = _elimination_order(_plan_of(tree, scope), scope, resolved.case)
    free = [v for v in scope if state[v] < 0]
    given = [*_tables(tree, scope, resolved), _ScopeTable(tuple(free), np.ones([int(cards[v]) for v in free]), 0)]
    exponents = np.zeros((), np.int64)
    try:
        (axes, cells, *_), top = _eliminated(given, order)
    except _LosesDigitsError:
        axes, table = _eliminated_extended(given, order)
        top = table.top
        cells, exponents = table.mantissa, table.exponent - top
    log_evidence = math.log(float(np.ldexp(cells, exponents).sum())) + top * math.log(2.0)
    at = tuple(slice(None) if state[v] < 0 else int(state[v]) for v in scope)

    def full(part: NDArray[Cell]) -> NDArray[Cell]:
        result = np.zeros([int(cards[v]) for v in scope], part.dtype)
        result[at] = part.transpose([axes.index(v) for v in free])
        return result

    return full(cells), full(exponents) if exponents.ndim else exponents, log_evidence


def relative(cells: Floats, exponents: Ints, axes: tuple[int, ...] | None = None) -> Floats:
    """Numbers ``cells * 2**exponents``, (): 0, divided by a power of two, or those of each part with some axes by
    another, so that the largest is near 1."""
    if not exponents.ndim:
        return cells
    top = exponents.max(axis=axes, keepdims=True, where=cells > 0, initial=-(1 << 40))
    return np.asarray(np.ldexp(cells, np.where(cells > 0, exponents - top, 0)))


def _eliminated(tables: list[_ScopeTable], order: Sequence[int]) -> tuple[_ScopeTable, int]:
    """The product of all tables without the variables of `order`, and the exponent of its factor."""
    exponent = 0
    if sum(max(t.top, 0) for t in tables) > -LEAST:
        raise _LosesDigitsError
    for v in [*order, -1]:
        bucket = [t for t in tables if v < 0 or v in t.scope]
        if bucket:
            made, shift = _scaled(_product(bucket, without=v))
            tables = [*(t for t in tables if v not in t.scope and v >= 0), made]
            exponent += shift
    return tables[0], exponent


def _eliminated_extended(given: Sequence[_ScopeTable], order: Sequence[int]) -> tuple[tuple[int, ...], Extended]:
    """The same in extended numbers."""
    tables = [(t.scope, Extended.of(t.cells)) for t in given]
    for v in [*order, -1]:
        bucket = sorted((t for t in tables if v < 0 or v in t[0]), key=lambda t: (t[1].mantissa.size, t[0]))
        tables = [t for t in tables if v >= 0 and v not in t[0]]
        while bucket:
            some, bucket = bucket[:2], bucket[2:]
            union = {u for scope, _ in some for u in scope}
            out = tuple(sorted(union if bucket else union - {v}))
            made = contract_extended([t for _, t in some], [scope for scope, _ in some], out)
            if not made.mantissa.any():
                raise ImpossibleEvidence("the evidence has probability 0")
            if not bucket:
                tables.append((out, made))
                break
            bucket = sorted([(out, made), *bucket], key=lambda t: (t[1].mantissa.size, t[0]))
    return tables[0]


def cost(tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence) -> JointCost:
    """Cost of `joint_table`: the same steps on scopes instead of tables."""
    cards = tree.model.cardinality.tolist()

    def size(variables: Iterable[int]) -> int:
        return math.prod(cards[v] for v in variables)

    tables = [frozenset(t.scope) for t in _tables(tree, scope, resolved)]
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


def _tables(tree: CompiledModel, scope: Sequence[int], resolved: ResolvedEvidence) -> Iterator[_ScopeTable]:
    """The relevant factors, restricted to the observed states, and the likelihoods."""
    case, model, sets = resolved.case, tree.model, tree.plan.sets
    weighed: set[int] = set()
    for v, w in sorted(case.likelihood.items()):
        axes = sets.scopes[v - sets.first] if v >= sets.first else (v,)
        weighed.update(axes)
        table = np.reshape(w, [int(model.cardinality[u]) for u in axes])
        yield _ScopeTable(tuple(u for u in axes if case.state[u] < 0), table[slice_of(axes, case.state)], *_span(table))
    factors = model_factors(model)
    relevant = ancestors(model, [*scope, *weighed, *np.flatnonzero(case.state >= 0).tolist()])
    spans = tree.cached("spans", id(resolved.factors), lambda: (resolved.factors, [*map(_span, resolved.factors)]))[1]
    for f, table in enumerate(resolved.factors[: len(factors)]):
        if f in relevant:
            axes = factors[f].scope
            yield _ScopeTable(tuple(v for v in axes if case.state[v] < 0), table[slice_of(axes, case.state)], *spans[f])


def _span(table: Floats) -> tuple[int, int]:
    """log2 of a number below all entries above 0, and of one above all entries."""
    least = float(np.min(table, where=table > 0, initial=math.inf))
    return math.frexp(least)[1] - 1, math.frexp(float(np.max(table, initial=0.0)))[1]


def ancestors(model: DiscreteModel, variables: Iterable[int]) -> set[int]:
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


def _combined(tables: Sequence[_ScopeTable], out: tuple[int, ...]) -> _ScopeTable:
    """`contract`; the smallest entries are looked for only where a bound does not tell."""
    low = sum(t.low for t in tables)
    if low < LEAST and (low := sum(_span(np.asarray(t.cells))[0] for t in tables)) < LEAST:
        raise _LosesDigitsError
    return _ScopeTable(out, contract([np.asarray(t.cells) for t in tables], [t.scope for t in tables], out), low)


def _product(tables: Sequence[_ScopeTable], without: int = -1) -> _ScopeTable:
    """Product of tables, the two smallest first; one variable is summed out."""
    left = sorted(tables, key=_by_size)
    while len(left) > 2:
        union = tuple(sorted({*left[0].scope, *left[1].scope}))
        left = sorted([_combined(left[:2], union), *left[2:]], key=_by_size)
    return _combined(left, tuple(v for v in sorted({v for t in left for v in t.scope}) if v != without))


def _by_size(table: _ScopeTable) -> tuple[int, tuple[int, ...]]:
    return np.size(table.cells), table.scope


def _scaled(table: _ScopeTable) -> tuple[_ScopeTable, int]:
    """The table divided by a power of two near its largest entry, and the exponent."""
    top = float(table.cells.max(initial=0.0))
    if not top > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    shift = math.frexp(top)[1]
    return _ScopeTable(table.scope, np.ldexp(table.cells, -shift), table.low - shift), shift


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
