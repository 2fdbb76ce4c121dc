"""Marginal MAP: the most probable configuration of some variables, all others summed out.

Sum and maximum do not change places, so every other variable has to go before the first of these does: an elimination
order with a constraint, whose tables may be far larger than those of the tree (the question is NP^PP-complete; Park and
Darwiche, Complexity results and approximation strategies for MAP explanations, JAIR 21, 2004). The order is found in
parts, without giving anything away by the constraint:

* what is neither asked for nor observed and has no descendant that is, is barren and falls away;
* where observed and asked variables are taken out, the others fall into pieces; summing out a piece joins all its
  neighbours anyway, so an order of the piece and its neighbours, these joined from the beginning, may as well end with
  the neighbours: any perfect elimination order of its triangulation that does has the same cliques;
* what remains is a model over the variables asked for, whose order is free.

Each part is searched by `jtgpu.plans.ordering`. What it comes to is known before any memory is taken: `map_cost`. Where that
is much and the variables have few configurations, their joint posterior (`jtgpu.inference.queries.joint`) may take less; then the
answer is its largest entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ...backends.forest import Forest
from ...errors import EvidenceError, TableTooLarge, format_bytes
from ...util.system import free_memory, parse_bytes
from ..results.configurations import Explanation
from .joint import joint, joint_cost
from .messages import messages_of, named
from .mpe import check_k, evidence_of, explanations

if TYPE_CHECKING:
    from ...backends.base import Evidence
    from ...plans.plan import Plan
    from ..compiled import CompiledModel
    from ..interventions import Settled

__all__ = ["MapCost", "map_cost", "map_forest", "marginal_map"]

MAX_TABLE = 100_000_000  # entries of a table on the way
MEMORY_SHARE = 0.8  # of what is free
MOST_FORESTS = 16  # kept in a tree
CHEAP = 1_000_000_000  # operations up to which no other way is looked at
MOST_JOINT = 1_000_000  # entries of a joint posterior
MOST_PAIRED = 8  # tables with a variable up to which all pairs are compared


@dataclass(frozen=True)
class MapCost:
    """What a marginal MAP takes.

    Attributes
    ----------
    how : str
        ``"order"``, or ``"joint"``: from the joint posterior of the variables.
    variables, summed, barren : int
        Variables that are chosen, that are summed out, and that fall away; observed ones are none of them.
    largest : int
        Entries of the largest table made on the way.
    table_entries : int
        Entries of all tables, the model's included.
    operations : int
        Multiplications, additions and comparisons.
    bytes : int
        Memory of all tables, of float64.
    """

    how: str
    variables: int
    summed: int
    barren: int
    largest: int
    table_entries: int
    operations: int
    bytes: int

    def __str__(self) -> str:
        way = "an elimination order" if self.how == "order" else "the joint posterior"
        return (
            f"by {way}: {self.variables} variables chosen, {self.summed} summed out, {self.barren} without influence; "
            f"{self.operations:,} operations, largest table {self.largest:,} entries, memory {format_bytes(self.bytes)}"
        )


class _Builder:
    """A contraction forest while it is built: tables nobody has used yet, and contractions of them."""

    def __init__(self, plan: Plan, kept: Iterable[int], observed: frozenset[int]):
        self.scopes: list[tuple[int, ...]] = list(plan.table_scopes[: plan.n_factors])
        self.cards, self.rank = plan.cardinality.tolist(), plan.axis_rank.tolist()
        self.live: dict[int, frozenset[int]] = {}  # table -> what of its scope is not observed
        self.holders: list[set[int]] = [set() for _ in self.cards]  # tables by variable
        self.outs: list[int] = []
        self.ins: list[tuple[int, ...]] = []
        self.maximal: list[bool] = []
        self.operations = 0
        for f in kept:
            self._add(f, frozenset(plan.factor_scopes[f]) - observed)

    def size(self, scope: Iterable[int]) -> int:
        return math.prod(self.cards[v] for v in scope)

    def _add(self, table: int, scope: frozenset[int]) -> None:
        self.live[table] = scope
        for v in scope:
            self.holders[v].add(table)

    def contract(self, tables: Sequence[int], gone: frozenset[int], maximal: bool) -> int:
        """A new table; takes out the variables of `gone` that no other table has."""
        joint = frozenset().union(*(self.live[t] for t in tables))
        for t in tables:
            for v in self.live.pop(t):
                self.holders[v].discard(t)
        kept = frozenset(v for v in joint if v not in gone or self.holders[v])
        out = len(self.scopes)
        self.scopes.append(tuple(sorted(kept, key=self.rank.__getitem__)))
        self._add(out, kept)
        self.outs.append(out)
        self.ins.append(tuple(tables))
        self.maximal.append(maximal)
        self.operations += len(tables) * self.size(joint)
        return out

    def eliminate(self, order: Sequence[int], gone: frozenset[int], maximal: bool) -> None:
        """Take variables out one after the other; each with a product of two tables at a time, the smallest first."""
        for v in order:
            while len(bucket := sorted(self.holders[v], key=self._by_size)) > 1:
                # among many, the two smallest; else the two that make the smallest
                pairs = combinations(bucket if len(bucket) <= MOST_PAIRED else bucket[:2], 2)
                self.contract(min(pairs, key=self._by_union), gone, maximal)
            if bucket:  # else it went with one before
                self.contract(bucket, gone, maximal)

    def _by_size(self, table: int) -> tuple[int, int]:
        return self.size(self.live[table]), table

    def _by_union(self, pair: Sequence[int]) -> tuple[int, Sequence[int]]:
        return self.size(self.live[pair[0]] | self.live[pair[1]]), pair


def map_forest(
    plan: Plan, heads: Sequence[int], chosen: frozenset[int], case: Evidence
) -> tuple[Forest, MapCost]:
    """The contractions of a marginal MAP.

    Parameters
    ----------
    plan : Plan
    heads : (F,)
        The variable of which a factor is the conditional table, -1; see `jtgpu.plans.specialise.conditional_heads`.
    chosen : frozenset of int
        Variables that are asked for.
    case : Evidence
        Only what is observed or weighed matters, not how.
    """
    observed = frozenset(np.flatnonzero(case.state >= 0).tolist())
    kept = _without_barren(plan, heads, observed | frozenset(case.likelihood) | chosen)
    build = _Builder(plan, kept, observed)
    chosen = chosen - observed
    summed = frozenset().union(*build.live.values()) - chosen
    for piece in _pieces(list(build.live.values()), summed):
        build.eliminate(_order_of_piece(build, piece), frozenset(piece), maximal=False)
    build.eliminate(_order(build, sorted(chosen), ()), chosen, maximal=True)
    # all are numbers by now; factors of observed variables alone still have these in their scope
    roots = [build.contract([t], observed, maximal=False) if build.scopes[t] else t for t in sorted(build.live)]
    first = plan.n_factors
    tables = [build.size(s) for s in build.scopes[first:]]
    entries = sum(tables) + sum(build.size(plan.factor_scopes[f]) for f in kept)
    cost = MapCost(
        "order",
        len(chosen),
        len(summed),
        plan.n_variables - len(observed) - len(chosen) - len(summed),
        max(tables, default=1),
        entries,
        build.operations,
        8 * entries,
    )
    weighed = plan.evidence_factor.copy()  # weights go into the smallest factor that is there
    for f in sorted(kept, key=lambda f: (-build.size(plan.factor_scopes[f]), -f)):
        weighed[list(plan.factor_scopes[f])] = f
    forest = Forest(
        plan.cardinality,
        plan.axis_rank,
        weighed,
        plan.factor_scopes,
        tuple(build.scopes),
        tuple(build.outs),
        tuple(build.ins),
        tuple(build.maximal),
        tuple(roots),
        chosen=chosen | observed,
    )
    return forest, cost


def _without_barren(plan: Plan, heads: Sequence[int], matter: frozenset[int]) -> list[int]:
    """Factors but those of variables that nothing else mentions and that sum to one, again and again."""
    kept = dict.fromkeys(range(plan.n_factors))
    table = {v: f for f, v in enumerate(heads) if v >= 0}
    count = np.bincount(plan.factor_var, minlength=plan.n_variables).tolist()
    queue = [v for v in sorted(table) if count[v] == 1 and v not in matter]
    for v in queue:
        del kept[table[v]]
        for u in plan.factor_scopes[table[v]]:
            count[u] -= 1
            if count[u] == 1 and u in table and u not in matter and table[u] in kept:
                queue.append(u)
    return list(kept)


def _pieces(scopes: Sequence[frozenset[int]], summed: frozenset[int]) -> list[list[int]]:
    """Variables to be summed out, in groups that no factor joins."""
    group = {v: v for v in summed}

    def head(v: int) -> int:
        while group[v] != v:
            group[v] = v = group[group[v]]
        return v

    for scope in scopes:
        inside = sorted(scope & summed)
        for v in inside[1:]:
            a, b = sorted((head(inside[0]), head(v)))
            group[b] = a
    pieces: dict[int, list[int]] = {}
    for v in sorted(summed):
        pieces.setdefault(head(v), []).append(v)
    return [pieces[h] for h in sorted(pieces)]


def _order_of_piece(build: _Builder, piece: Sequence[int]) -> list[int]:
    """An elimination order of a piece, as good as if its neighbours did not have to stay."""
    inside = frozenset(piece)
    around = frozenset().union(*(s for s in build.live.values() if s & inside)) - inside
    return _order(build, list(piece), sorted(around))


def _order(build: _Builder, variables: Sequence[int], last: Sequence[int]) -> list[int]:
    """An elimination order of `variables`, for a graph in which those of `last` are joined and stay."""
    from ...plans.ordering import find_order  # imports numba

    both = [*variables, *last]
    number = {v: i for i, v in enumerate(both)}
    neighbours: list[set[int]] = [set() for _ in both]
    for scope in [*(s for s in build.live.values()), frozenset(last)]:
        for a, b in combinations(sorted(number[v] for v in scope if v in number), 2):
            neighbours[a].add(b)
            neighbours[b].add(a)
    found = find_order([build.cards[v] for v in both], neighbours, "auto").order.tolist()
    if last:
        found = _ending_with(neighbours, found, range(len(variables), len(both)))
    return [both[i] for i in found if i < len(variables)]


def _ending_with(neighbours: Sequence[set[int]], order: Sequence[int], last: Iterable[int]) -> list[int]:
    """A perfect elimination order of the triangulation that `order` gives, which ends with a clique of it.

    Maximum cardinality search from the clique, backwards (Tarjan and Yannakakis, SIAM Journal on Computing 13, 1984).
    """
    filled = [set(n) for n in neighbours]
    position = {v: i for i, v in enumerate(order)}
    for v in order:
        later = [u for u in filled[v] if position[u] > position[v]]
        for a, b in combinations(later, 2):
            filled[a].add(b)
            filled[b].add(a)
    weight = [0] * len(order)
    reverse: list[int] = []
    left = dict.fromkeys(range(len(order)))
    first = list(last)
    while left:
        v = first.pop() if first else max(left, key=lambda u: (weight[u], -u))
        del left[v]
        reverse.append(v)
        for u in filled[v]:
            weight[u] += 1
    return reverse[::-1]


# What users ask -----------------------------------------------------------------------------------------------------


def _forest_of(
    tree: CompiledModel, variables: Iterable[str | int], settled: Settled
) -> tuple[Forest, MapCost, list[int]]:
    """The forest of a question, kept in the tree by the pattern of what is known; its cost; the variables."""
    model = tree.model
    if isinstance(variables, (str, int, np.integer)):
        variables = [variables]
    scope = [model.index(v) for v in variables]
    if not scope:
        raise EvidenceError("the question names no variable")
    for i, v in enumerate(scope):
        if v in scope[:i]:
            raise EvidenceError(f"the question names the variable {model.variables[v]!r} twice")
    case = settled.case
    key = tuple(sorted(scope)), (case.state >= 0).tobytes(), tuple(sorted(case.likelihood))

    def make() -> tuple[Forest, MapCost]:
        from ...plans.specialise import conditional_heads  # imports numba

        plan = tree.plan.whole
        heads = conditional_heads(settled.factors, plan.factor_scopes, plan.n_variables)
        return map_forest(plan, heads, frozenset(scope), case)

    forest, cost = tree.cached("map_forests", key, make, MOST_FORESTS)
    return forest, cost, scope


def map_cost(tree: CompiledModel, variables: Iterable[str | int], settled: Settled) -> MapCost:
    """See `jtgpu.JunctionTree.map_cost`."""
    _, cost, scope = _forest_of(tree, variables, settled)
    return _cheaper(tree, scope, settled, cost, MAX_TABLE)


def _cheaper(tree: CompiledModel, scope: list[int], settled: Settled, cost: MapCost, most: int) -> MapCost:
    """The cost of the order, or of the joint posterior where that is less or the order makes too large tables."""
    free = [v for v in scope if settled.case.state[v] < 0]
    entries = math.prod(int(tree.model.cardinality[v]) for v in free)
    if not free or entries > MOST_JOINT or (cost.operations <= CHEAP and cost.largest <= most):
        return cost
    other = joint_cost(tree, free, settled)
    if other.largest > most or (cost.largest <= most and other.operations >= cost.operations):
        return cost
    return replace(
        cost, how="joint", largest=other.largest, table_entries=other.bytes // 8, operations=other.operations,
        bytes=other.bytes,
    )  # fmt: skip


def _by_joint(tree: CompiledModel, scope: list[int], settled: Settled, k: int) -> Explanation:
    """The largest entries of a joint posterior."""
    free = [v for v in scope if settled.case.state[v] < 0]
    table = joint(tree, free, settled)
    flat = table.probabilities.ravel()
    order = np.argsort(-flat, kind="stable")[:k]
    order = order[flat[order] > 0]
    states = np.full((len(order), len(tree.model)), -1, np.int32)
    states[:, scope] = settled.case.state[scope]
    states[:, free] = np.stack(np.unravel_index(order, table.shape), axis=1)
    log_joint = np.log(flat[order]) + table.log_evidence
    return explanations(tree.model, states, log_joint, lambda: table.log_evidence, scope)


def marginal_map(
    tree: CompiledModel,
    variables: Iterable[str | int],
    settled: Settled,
    k: int,
    memory_limit: int | float | str | None,
    max_table: int | None,
) -> Explanation:
    """See `jtgpu.JunctionTree.map`."""
    check_k(k)
    forest, cost, scope = _forest_of(tree, variables, settled)
    limit = int(MEMORY_SHARE * free_memory()) if memory_limit is None else parse_bytes(memory_limit)
    most = MAX_TABLE if max_table is None else max_table
    cost = _cheaper(tree, scope, settled, cost, most)
    if cost.largest > most or cost.bytes > limit:
        raise TableTooLarge(
            f"this marginal MAP takes {format_bytes(cost.bytes)}, and tables of up to {cost.largest:,} entries; the "
            f"limits are {format_bytes(limit)} (memory_limit; default: 80 % of what is free) and {most:,} entries "
            "(max_table); other variables, or more evidence, may be cheaper, and mpe(), which chooses all of them, is",
            cost.largest,
            cost.bytes,
            limit,
        )
    if cost.how == "joint":
        return _by_joint(tree, scope, settled, k)
    key = "map", *sorted(scope), (settled.case.state >= 0).tobytes(), *sorted(settled.case.likelihood)
    sweep = messages_of(tree, settled.factors).get(key, lambda: forest)
    best = named(tree, settled.case, lambda: sweep.best(settled.case, k))
    return explanations(
        tree.model, best.states, best.log_value + settled.log_shift, evidence_of(tree, settled), scope
    )
