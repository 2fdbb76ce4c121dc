"""Marginal MAP: the most probable configuration of some variables, all others summed out.

The problem is NP^PP-complete (Park and Darwiche, Complexity results and approximation strategies for MAP explanations,
JAIR 21, 2004): all other variables must be eliminated before the first of the query's, and such an elimination order
may have far larger tables than the tree (see `map_program`). The cost is known before any memory
is allocated: `map_cost`. If it is high and the variables have few configurations, their joint posterior may be cheaper;
the result is then its largest entry.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ...errors import TableTooLarge, format_bytes
from ...plans.ordering import find_order
from ...plans.program import Program, bare_program
from ...plans.specialise import conditional_heads
from ...util.arguments import number
from ...util.system import free_memory, parse_bytes
from ..results.case_states import Explanation
from ..results.rankings import MapCost
from .joint import joint_cost_of, joint_of
from .mpe import check_k, evidence_of, explanations
from .posteriors import messages_of, n_configurations, named, scope_of
from .reduced import reduced

if TYPE_CHECKING:
    from typing import Unpack

    from ...backends.base import Evidence
    from ...plans.plan import Plan
    from ..compiled import CompiledModel
    from ..evidence import EvidenceOptions, Findings
    from ..interventions import ResolvedEvidence

MAX_TABLE = 100_000_000  # entries of an intermediate table
MEMORY_SHARE = 0.8  # of the free memory
MAX_PROGRAMS = 16  # cached for each compiled model
CHEAP = 1_000_000_000  # operations below which the joint posterior is not considered
MAX_JOINT = 1_000_000  # entries of a joint posterior


def map(
    self: CompiledModel, variables: Iterable[str | int], evidence: Findings | None = None, *, k: int = 1,
    memory_limit: int | float | str | None = None, max_table: int | None = None, **more: Unpack[EvidenceOptions],
) -> Explanation:  # fmt: skip
    """Find the most probable configuration of some variables, with all others summed out (marginal MAP).

    The result is exact. In general this is far harder than `mpe`; see `map_cost`.

    Parameters
    ----------
    variables : iterable of str or int
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    k : int, default 1
        Number of distinct configurations to find; see `mpe`.
    memory_limit : int or str, optional
        Bytes, or a string such as ``"8GiB"``. Default: 80 % of the free memory.
    max_table : int, optional
        Largest number of entries of an intermediate table. Default: 100,000,000.

    Returns
    -------
    Explanation

    Raises
    ------
    TableTooLarge
        If a limit is exceeded; raised before memory is allocated.
    """
    self = self.for_sets(more.get("likelihood"))
    resolved = self.resolve(evidence, **more)
    limit = int(MEMORY_SHARE * free_memory()) if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    most = MAX_TABLE if max_table is None else number("max_table", max_table, above=0)
    if not self.whole:
        return _map_of_question(self, scope_of(self.model, variables), resolved, k, memory_limit, max_table)
    program, cost, scope = _program_of(self, variables, resolved)
    k = check_k(self.model, k, scope, resolved.case)
    cost = _cheaper(self, scope, resolved, cost, most)
    if cost.largest > most or cost.bytes > limit:
        raise TableTooLarge(
            f"this marginal MAP query needs {format_bytes(cost.bytes)} and tables of up to {cost.largest:,} entries; "
            f"the limits are {format_bytes(limit)} (memory_limit, by default 80 % of the free memory) and {most:,} "
            "entries (max_table); other variables or more evidence may need less, and mpe(), which maximises over all "
            "variables, does",
            cost.largest,
            cost.bytes,
            limit,
        )
    if cost.how == "joint":
        return _from_joint(self, scope, resolved, k)
    key = "map", *sorted(scope), (resolved.case.state >= 0).tobytes(), *sorted(resolved.case.likelihood)
    sweep = messages_of(self, resolved.factors).get(key, lambda: program)
    best = named(self, resolved.case, lambda: sweep.best(resolved.case, k))
    return explanations(
        self.model, best.states, best.log_value + resolved.log_shift, evidence_of(self, resolved), scope
    )


def _map_of_question(
    tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence, k: int, memory_limit: int | float | str | None,
    max_table: int | None,
) -> Explanation:  # fmt: skip
    """The same, of a tree whose questions are planned one by one."""
    try:
        left, sub, names = reduced(tree, scope, resolved)
    except TableTooLarge:
        return _from_joint(tree, scope, resolved, check_k(tree.model, k, scope, resolved.case))
    log_evidence = evidence_of(tree, resolved)
    if sub is None or not names:
        check_k(tree.model, k, (), resolved.case)
        states, log_joint = left.model_state[None].copy(), np.array([log_evidence()])
    else:
        best = map(sub, names, k=k, memory_limit=memory_limit, max_table=max_table).ranked
        states = left.expanded(np.stack([one.states for one in best]))
        log_joint = np.array([one.log_joint for one in best]) + left.log_constant + resolved.log_shift
    other = np.ones(len(tree.model), np.bool_)
    other[scope] = False
    states[:, other] = -1
    return explanations(tree.model, states, log_joint, log_evidence, scope)


def map_cost(
    self: CompiledModel, variables: Iterable[str | int], evidence: Findings | None = None,
    **more: Unpack[EvidenceOptions],
) -> MapCost:  # fmt: skip
    """Compute the cost of `map` without running it.

    Parameters
    ----------
    variables, evidence, likelihood, soft, do
        See `map`.
    """
    self = self.for_sets(more.get("likelihood"))
    resolved = self.resolve(evidence, **more)
    if not self.whole:
        _, sub, names = reduced(self, scope_of(self.model, variables), resolved)
        return map_cost(sub, names) if sub is not None and names else MapCost("joint", 0, 0, 0, 1, 1, 1, 8)
    _, cost, scope = _program_of(self, variables, resolved)
    return _cheaper(self, scope, resolved, cost, MAX_TABLE)


def _program_of(
    tree: CompiledModel, variables: Iterable[str | int], resolved: ResolvedEvidence
) -> tuple[Program, MapCost, list[int]]:
    """The program of a query, cached by the observed variables; its cost; the variables by number."""
    scope = scope_of(tree.model, variables)
    case = resolved.case
    key = tuple(sorted(scope)), (case.state >= 0).tobytes(), tuple(sorted(case.likelihood))

    def make() -> tuple[Program, MapCost]:
        plan = tree.plan.whole
        heads = conditional_heads(resolved.factors, plan.factor_scopes, plan.n_variables)
        return map_program(plan, heads, frozenset(scope), case)

    program, cost = tree.cached("map_programs", key, make, MAX_PROGRAMS)
    return program, cost, scope


def _cheaper(tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence, cost: MapCost, most: float) -> MapCost:
    """`cost`, or that of the joint posterior if it is cheaper or the tables of the order are too large."""
    free = [v for v in scope if resolved.case.state[v] < 0]
    entries = n_configurations(tree.model, free)
    if not free or entries > MAX_JOINT or (cost.operations <= CHEAP and cost.largest <= most):
        return cost
    other = joint_cost_of(tree, free, resolved)
    if other.largest > most or (cost.largest <= most and other.operations >= cost.operations):
        return cost
    return replace(
        cost, how="joint", largest=other.largest, table_entries=other.bytes // 8, operations=other.operations,
        bytes=other.bytes,
    )  # fmt: skip


def _from_joint(tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence, k: int) -> Explanation:
    """The k largest entries of the joint posterior."""
    free = [v for v in scope if resolved.case.state[v] < 0] or scope
    table = joint_of(tree, free, resolved)
    flat = table.probabilities.ravel()
    order = np.argsort(-flat, kind="stable")[:k]
    order = order[flat[order] > 0]
    states = np.full((len(order), len(tree.model)), -1, np.int32)
    states[:, scope] = resolved.case.state[scope]
    states[:, free] = np.stack(np.unravel_index(order, table.shape), axis=1)
    log_joint = np.log(flat[order]) + table.log_evidence
    return explanations(tree.model, states, log_joint, lambda: table.log_evidence, scope)


# Elimination orders for marginal MAP: every summed variable before every maximised one.
#
# Sums and maxima do not commute, so the order is constrained, and its tables may be far larger than those of the
# tree. Otherwise the order is as good as an unconstrained one: if the observed and the maximised variables are
# removed, the summed ones form connected components. Summing out a component connects all its neighbours in any case,
# so an order of the component and its neighbours, which are connected first, can end with the neighbours at no extra
# cost: any perfect elimination order of its triangulation that ends with them has the same cliques. The maximised
# variables that remain are ordered freely.


def components(scopes: Sequence[frozenset[int]], summed: frozenset[int]) -> list[list[int]]:
    """Connected components of the summed variables: no factor contains variables of two of them."""
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
    members: dict[int, list[int]] = {}
    for v in sorted(summed):
        members.setdefault(head(v), []).append(v)
    return [members[h] for h in sorted(members)]


def order_before(
    scopes: Iterable[frozenset[int]], cards: Sequence[int], variables: Sequence[int], last: Sequence[int]
) -> list[int]:
    """An elimination order of `variables` in a graph in which the variables of `last` are connected and remain."""
    # scopes: iterable of frozenset of int: Scopes of the factors
    # cards: sequence of int: Numbers of states
    both = [*variables, *last]
    number = {v: i for i, v in enumerate(both)}
    neighbours: list[set[int]] = [set() for _ in both]
    for scope in [*scopes, frozenset(last)]:
        for a, b in combinations(sorted(number[v] for v in scope if v in number), 2):
            neighbours[a].add(b)
            neighbours[b].add(a)
    order = find_order([cards[v] for v in both], neighbours, "auto").order.tolist()
    if last:
        order = ending_with(neighbours, order, range(len(variables), len(both)))
    return [both[i] for i in order if i < len(variables)]


def ending_with(neighbours: Sequence[set[int]], order: Sequence[int], last: Iterable[int]) -> list[int]:
    """A perfect elimination order of the triangulation given by `order` that ends with one of its cliques.

    Maximum cardinality search from the clique, reversed (Tarjan and Yannakakis, SIAM Journal on Computing 13, 1984).
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


# The program of a marginal MAP query: sums first, then maxima, in a constrained elimination order.

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


def map_program(plan: Plan, heads: Sequence[int], chosen: frozenset[int], case: Evidence) -> tuple[Program, MapCost]:
    """Build the contractions of a marginal MAP query."""
    # heads: (F,) sequence of int: The variable whose conditional table each factor is, or -1; see
    #     `jtgpu.plans.specialise.conditional_heads`
    # chosen: frozenset of int: The variables of the query
    # case: Which variables are observed or weighted; their states and weights do not matter
    observed = frozenset(np.flatnonzero(case.state >= 0).tolist())
    sets, n = plan.sets, plan.n_variables
    weighed = frozenset(u for v in case.likelihood for u in ((v,) if v < n else sets[v - n]))
    of_sets = {int(f) for v, f in enumerate(plan.evidence_factor[n:], n) if v not in case.likelihood}  # ones
    factors = _without_barren(plan, heads, observed | weighed | chosen, of_sets)
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
    program = replace(
        bare_program(plan),
        evidence_factor=weighted,
        scopes=tuple(build.scopes),
        outs=tuple(build.outs),
        ins=tuple(build.ins),
        maximal=tuple(build.maximal),
        roots=tuple(roots),
        chosen=chosen | observed,
    )
    return program, cost


def _without_barren(
    plan: Plan, heads: Sequence[int], relevant: frozenset[int], gone: Collection[int] = ()
) -> list[int]:
    """The factors that remain when some factors of ones, then barren variables are removed, these repeatedly.

    A variable is barren if it is not relevant, only its own conditional table contains it, and that table sums to one.
    """
    kept = {f: None for f in range(plan.n_factors) if f not in gone}
    table = {v: f for f, v in enumerate(heads) if v >= 0 and f in kept}
    count = [0] * plan.n_variables
    for f in kept:
        for v in plan.factor_scopes[f]:
            count[v] += 1
    queue = [v for v in sorted(table) if count[v] == 1 and v not in relevant]
    for v in queue:
        del kept[table[v]]
        for u in plan.factor_scopes[table[v]]:
            count[u] -= 1
            if count[u] == 1 and u in table and u not in relevant and table[u] in kept:
                queue.append(u)
    return list(kept)
