"""Joint posteriors of any set of variables, and conditional tables, in one of two ways.

*By cases*: every configuration of all but one of the variables is a case of a table, and one call of the backend gives
its probability and the posterior of the last variable: P(a, b | e) = P(a, e) P(b | a, e) / P(e). It runs on the tree as
it is, on every backend; each case is small, for so much is observed in it.

*Together*: a plan is made whose junction tree has the set in one clique (``net.plan(together=...)``); with that clique
as the root, the set is eliminated last and what remains is the table. This is variable elimination (Zhang and Poole,
Exploiting causal independence in Bayesian network inference, 1996, section 2) in NumPy, whatever the backend. It wins
where the set has many configurations and its variables lie near each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence
from ...backends.reference import contract
from ...errors import EvidenceError, ImpossibleEvidence, TableTooLarge, format_bytes
from ...model.network import BayesianNetwork, DiscreteModel
from ...plans.compiler import make_plan, model_factors
from ...util.system import free_memory
from ..results.tables import Conditional, Joint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.compiler import NetworkPlan
    from ...plans.plan import Plan
    from ..compiled import CompiledModel
    from ..interventions import Settled

__all__ = ["JointCost", "conditional", "joint", "joint_cost", "scope_of"]

MAX_TABLE = 100_000_000  # entries of an answer, or of a table on the way
MOST_AXES = 32  # of an answer
MEMORY_SHARE = 0.8  # of what is free
LITTLE = 1 << 22  # bytes that are always free; to ask takes as long as a small answer
FEW = 256  # cases that are answered without a look at what else could be done
CHEAP = 300_000_000  # operations of a table of cases, 60 ms on two cores, for which no other plan is made
SLOWER = 8  # times that an operation takes in NumPy, beside compiled loops on two cores
CASE = 1000  # operations that take as long as to hand a case over and back
LANES = 64  # cases that share what does not depend on them
MOST_CELLS = 1 << 24  # of a table of cases at once
MOST_PLANS = 16  # kept in a tree


@dataclass(frozen=True)
class JointCost:
    """What a joint posterior takes.

    Attributes
    ----------
    how : str
        ``"cases"`` or ``"together"``.
    entries : int
        Configurations of the variables: entries of the answer.
    cases : int
        Cases that the backend answers; 0 for ``"together"``.
    operations : int
        Multiplications and additions, an estimate for ``"cases"``.
    largest : int
        Entries of the largest table made on the way, the answer included.
    bytes : int
        Memory of the answer and of the tables made on the way, of float64; what the tree has is not counted.
    """

    how: str
    entries: int
    cases: int
    operations: int
    largest: int
    bytes: int


def scope_of(model: DiscreteModel, variables: str | int | Iterable[str | int], what: str = "question") -> list[int]:
    """Numbers of the variables of a question.

    Raises
    ------
    UnknownVariable
    EvidenceError
        For none, or one that stands twice.
    """
    if isinstance(variables, (str, int, np.integer)):
        variables = [variables]
    scope = [model.index(v) for v in variables]
    if not scope:
        raise EvidenceError(f"the {what} names no variable")
    for i, v in enumerate(scope):
        if v in scope[:i]:
            raise EvidenceError(f"the {what} names the variable {model.variables[v]!r} twice")
    return scope


# What users ask -----------------------------------------------------------------------------------------------------


def joint(
    tree: CompiledModel,
    variables: Iterable[str | int],
    settled: Settled,
    how: str = "auto",
    max_table: int | None = None,
) -> Joint:
    """See `jtgpu.JunctionTree.joint`."""
    scope = scope_of(tree.model, variables)
    limit = MAX_TABLE if max_table is None else max_table
    last = _widest(tree.model, scope, settled)
    cost = _choose(tree, scope, last, settled, how, limit)
    if cost.how == "together":
        table, log_evidence = _together(tree, scope, settled)
    else:
        cells, log_evidence = _cells(tree, scope, settled, last)
        table = np.exp(cells - log_evidence, out=cells)
    total = table.sum()
    if not total > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    names, states = _labels(tree.model, scope)
    return Joint(names, states, table / total, log_evidence + settled.log_shift)


def joint_cost(tree: CompiledModel, variables: Iterable[str | int], settled: Settled, how: str = "auto") -> JointCost:
    """See `jtgpu.JunctionTree.joint_cost`."""
    scope = scope_of(tree.model, variables)
    return _choose(tree, scope, _widest(tree.model, scope, settled), settled, how, None)


def conditional(
    tree: CompiledModel, variables: str | int | Iterable[str | int], given: Iterable[str | int], settled: Settled
) -> Conditional:
    """See `jtgpu.JunctionTree.conditional`."""
    model = tree.model
    targets = scope_of(model, variables)
    conditions = scope_of(model, given, "condition")
    both = scope_of(model, [*conditions, *targets])
    last = _widest(model, targets, settled)
    cost = _choose(tree, both, last, settled, "auto", MAX_TABLE)
    axes = tuple(range(len(conditions), len(both)))
    if cost.how == "together":
        table, _ = _together(tree, both, settled)
    else:  # rows are normalised by themselves: one of probability 1e-320 is as good as any
        cells, _ = _cells(tree, both, settled, last)
        top = cells.max(axis=axes, keepdims=True)
        table = np.exp(cells - np.where(np.isneginf(top), 0.0, top))
    sums = table.sum(axis=axes, keepdims=True)
    possible = sums > 0
    table = np.divide(table, sums, out=np.zeros_like(table), where=possible)
    names, states = _labels(model, both)
    n = len(conditions)
    return Conditional(names[:n], names[n:], states, table, possible.reshape(possible.shape[:n]))


def _labels(model: DiscreteModel, scope: Sequence[int]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return tuple(model.variables[v] for v in scope), tuple(model.states(v) for v in scope)


# Which way ----------------------------------------------------------------------------------------------------------


def _choose(
    tree: CompiledModel, scope: list[int], last: int, settled: Settled, how: str, limit: int | None
) -> JointCost:
    """The cheaper way, or the one asked for; `limit`: None where nothing shall be refused.

    Raises
    ------
    TableTooLarge
    """
    if how not in ("auto", "cases", "together"):
        raise ValueError(f"how is 'auto', 'cases' or 'together', not {how!r}")
    entries = _size(tree.model, scope)
    if limit is not None and (entries > limit or len(scope) > MOST_AXES):
        raise TableTooLarge(
            f"the joint table of {len(scope)} variables would have {entries:,} entries ({format_bytes(8 * entries)}); "
            f"the limits are {limit:,} (max_table) and {MOST_AXES} variables; ask for fewer of them, or for samples",
            entries,
            8 * entries,
            -1,
        )
    if how == "together":
        return _checked(_cost_together(tree, scope, settled), limit)
    cases = _cost_cases(tree, scope, last, settled)
    if how == "cases" or cases.cases <= FEW or cases.operations <= CHEAP:
        return _checked(cases, limit)
    try:
        together = _checked(_cost_together(tree, scope, settled), MAX_TABLE if limit is None else limit)
    except TableTooLarge:
        return _checked(cases, limit)
    return together if SLOWER * together.operations < cases.operations else _checked(cases, limit)


def _size(model: DiscreteModel, scope: Iterable[int]) -> int:
    return math.prod(int(model.cardinality[v]) for v in scope)


def _checked(cost: JointCost, limit: int | None) -> JointCost:
    if limit is None or (cost.largest <= limit and cost.bytes <= LITTLE):
        return cost
    free = int(MEMORY_SHARE * free_memory())
    if cost.largest > limit or cost.bytes > free:
        other = "cases" if cost.how == "together" else "together"
        raise TableTooLarge(
            f"this joint table takes {format_bytes(cost.bytes)}, and tables of up to {cost.largest:,} entries, by "
            f"how={cost.how!r}; the limits are {format_bytes(free)} (80 % of what is free) and {limit:,} entries "
            f"(max_table); how={other!r} may need less, and so do fewer variables",
            cost.largest,
            cost.bytes,
            free,
        )
    return cost


def _cost_cases(tree: CompiledModel, scope: list[int], last: int, settled: Settled) -> JointCost:
    model, state = tree.model, settled.case.state
    entries = _size(model, scope)
    others = [v for v in scope if v != last]
    cases = _size(model, [v for v in others if state[v] < 0])
    if cases <= FEW:
        operations = cases * (tree.plan.cost().flops + CASE)
    else:
        each, shared = _operations(tree.plan.whole, settled, others, last)
        operations = cases * (each + CASE) + -(-cases // LANES) * shared
    block = min(cases, _block(model))
    memory = 8 * (2 * entries + block * int(model.cardinality[last])) + 4 * block * len(model)
    return JointCost("cases", entries, cases, operations, entries, memory)


def _operations(plan: Plan, settled: Settled, seen: Sequence[int], target: int) -> tuple[int, int]:
    """Operations of a case in which these are observed too: those of its own, and those that all cases share."""
    from ...plans.specialise import FREE, HARD, SOFT, conditional_heads, reduce, skeleton  # imports numba

    sk = skeleton(plan, conditional_heads(settled.factors, plan.factor_scopes, plan.n_variables))
    sk.card[-1] = 2  # any number of cases: tables that depend on them have that axis
    pattern = np.full(plan.n_variables, FREE, np.uint8)
    pattern[list(settled.case.likelihood)] = SOFT
    pattern[settled.case.state >= 0] = HARD
    pattern[list(seen)] = HARD
    wanted = np.zeros(plan.n_variables, np.bool_)
    wanted[target] = True
    by_rank = np.argsort(plan.axis_rank)
    left = reduce(sk, pattern[by_rank], wanted[by_rank])
    axis = len(sk.card) - 1
    each = shared = 0
    for i, out in enumerate(sk.op_out.tolist()):
        if not left.needed[out] or left.stands_for[out] != out:
            continue
        ins = [t for t in left.use[sk.op_in_ptr[i] : sk.op_in_ptr[i + 1]].tolist() if t >= 0]
        union = {v for t in ins for v in left.scope[sk.table_ptr[t] : sk.table_ptr[t] + left.length[t]].tolist()}
        work = len(ins) * math.prod(int(sk.card[v]) for v in union if v != axis)
        if axis in union:
            each += work
        else:
            shared += work
    return each, shared


# By cases -----------------------------------------------------------------------------------------------------------


def _block(model: DiscreteModel) -> int:
    """Rows of a table that is made at once."""
    return max(LANES, MOST_CELLS // max(len(model), 1))


def _widest(model: DiscreteModel, scope: Sequence[int], settled: Settled) -> int:
    """The variable that needs no cases: the one with most states among those that are not observed."""
    return max(scope, key=lambda v: (settled.case.state[v] < 0, int(model.cardinality[v]), -v))


def _cells(tree: CompiledModel, scope: list[int], settled: Settled, last: int) -> tuple[NDArray[np.float64], float]:
    """ln P(configuration, evidence), an axis a variable, -inf where impossible; and ln P(evidence).

    Raises
    ------
    ImpossibleEvidence
    """
    model, state = tree.model, settled.case.state
    others = [v for v in scope if v != last]
    allowed: list[NDArray[Any]] = [
        np.arange(int(model.cardinality[v])) if state[v] < 0 else state[v : v + 1] for v in others
    ]
    if math.prod(len(a) for a in allowed) > FEW:  # states without probability make no cases
        first, ptr = tree.answer(settled.backend.run, settled.case, others), tree.plan.posterior_ptr
        allowed = [np.flatnonzero(first.posterior[ptr[v] : ptr[v + 1]]) for v in others]
    cells = np.full([int(model.cardinality[v]) for v in (*others, last)], -np.inf)
    parts = []
    for rows in _grid(allowed, _block(model)):
        log_case, posterior = _ask(settled, model, others, rows, last)
        parts.append(log_case)
        with np.errstate(divide="ignore"):
            cells[tuple(rows.T)] = log_case[:, None] + np.log(posterior)
    log_cases = np.concatenate(parts)
    top = float(log_cases.max())
    if top == -math.inf:
        tree.answer(settled.backend.run, settled.case, [])  # raises, naming it
        raise ImpossibleEvidence("the evidence has probability 0")
    log_evidence = top + math.log(float(np.exp(log_cases - top).sum()))
    return np.moveaxis(cells, -1, scope.index(last)), log_evidence


def _grid(allowed: Sequence[NDArray[Any]], block: int) -> Iterator[NDArray[np.int64]]:
    """Every configuration, some rows at a time: (rows, variables)."""
    shape = tuple(len(a) for a in allowed)
    n = math.prod(shape)
    for first in range(0, n, block):
        rows = np.zeros((min(block, n - first), len(shape)), np.int64)
        for column, i in enumerate(np.unravel_index(np.arange(first, first + len(rows)), shape) if shape else ()):
            rows[:, column] = allowed[column][i]
        yield rows


def _ask(
    settled: Settled, model: DiscreteModel, others: Sequence[int], rows: NDArray[np.int64], last: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    case = settled.case
    states = np.tile(case.state, (len(rows), 1))
    states[:, others] = rows
    weights = {v: np.tile(w, (len(rows), 1)) for v, w in case.likelihood.items()}
    found = settled.backend.run_batch(np.ascontiguousarray(states, np.int32), weights, [last])
    return found.log_evidence, found.posterior


# Together -----------------------------------------------------------------------------------------------------------


def _together(tree: CompiledModel, scope: list[int], settled: Settled) -> tuple[NDArray[np.float64], float]:
    """The table of a set, up to a factor, and ln P(evidence)."""
    cards = tree.model.cardinality
    tables = list(_tables(tree.model, scope, settled))
    exponent = 0
    for v in _elimination(_plan_of(tree, scope), scope, settled.case):
        mine = [t for t in tables if v in t[0]]
        if mine:
            made, shift = _scaled(*_product(mine, without=v))
            tables = [*(t for t in tables if v not in t[0]), made]
            exponent += shift
    free = [v for v in scope if settled.case.state[v] < 0]
    tables.append((tuple(free), np.ones([int(cards[v]) for v in free])))
    (axes, table), shift = _scaled(*_product(tables))
    table = table.transpose([axes.index(v) for v in free])
    log_evidence = math.log(float(table.sum())) + (exponent + shift) * math.log(2.0)
    full = np.zeros([int(cards[v]) for v in scope])
    full[tuple(slice(None) if settled.case.state[v] < 0 else int(settled.case.state[v]) for v in scope)] = table
    return full, log_evidence


_Scoped = tuple[tuple[int, ...], Any]  # a table's variables and its numbers


def _tables(model: DiscreteModel, scope: Sequence[int], settled: Settled) -> Iterator[_Scoped]:
    """The factors that matter, cut to what is observed, and the weights."""
    case = settled.case
    for v, w in sorted(case.likelihood.items()):
        yield ((v,), w) if case.state[v] < 0 else ((), w[case.state[v]])
    factors = model_factors(model)
    matters = _ancestors(model, [*scope, *case.likelihood, *np.flatnonzero(case.state >= 0).tolist()])
    for f, table in enumerate(settled.factors):
        if f in matters:
            axes = factors[f].scope
            at = tuple(slice(None) if case.state[v] < 0 else int(case.state[v]) for v in axes)
            yield tuple(v for v in axes if case.state[v] < 0), table[at]


def _ancestors(model: DiscreteModel, variables: Iterable[int]) -> set[int]:
    """Numbers of the factors that are not barren: those of the variables and of their ancestors."""
    if not isinstance(model, BayesianNetwork):  # which of its factors sum to one nobody said
        return set(range(len(model) + len(model.factors)))
    found = dict.fromkeys(variables)
    for v in (queue := list(found)):
        for u in model.factors[v].scope:
            if u not in found:
                found[u] = None
                queue.append(u)
    return set(found)


def _product(tables: Sequence[_Scoped], without: int = -1) -> _Scoped:
    """The product of tables, the smallest two first, one variable summed out."""
    left = sorted(tables, key=_by_size)
    while len(left) > 2:
        (a, x), (b, y) = left[0], left[1]
        union = tuple(sorted({*a, *b}))
        left = sorted([(union, contract([x, y], [a, b], union)), *left[2:]], key=_by_size)
    out = tuple(v for v in sorted({v for s, _ in left for v in s}) if v != without)
    return out, contract([np.asarray(t) for _, t in left], [s for s, _ in left], out)


def _by_size(table: _Scoped) -> tuple[int, tuple[int, ...]]:
    return np.size(table[1]), table[0]


def _scaled(scope: tuple[int, ...], table: NDArray[np.float64]) -> tuple[_Scoped, int]:
    """The table divided by a power of two near its largest entry, and the exponent."""
    top = float(table.max(initial=0.0))
    if not top > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    shift = math.frexp(top)[1]
    return (scope, np.ldexp(table, -shift)), shift


def _plan_of(tree: CompiledModel, scope: Sequence[int]) -> NetworkPlan:
    """A plan whose junction tree has the set in one clique; the last ones are kept in the tree."""
    key = tuple(sorted(scope))
    return tree.cached(
        "joint_plans", key,
        lambda: make_plan(tree.model, "auto", together=[key], max_table=None, memory_limit=math.inf), MOST_PLANS,
    )  # fmt: skip


def _elimination(made: NetworkPlan, scope: Sequence[int], case: Evidence) -> list[int]:
    """All variables but the set and what is observed, leaf cliques first, the clique of the set last: with no more
    fill than the plan has."""
    plan = made.plan
    members = [set(c) for c in plan.cliques]
    neighbours: list[list[int]] = [[] for _ in members]
    for c, up in enumerate(plan.clique_parent.tolist()):
        if up >= 0:
            neighbours[c].append(up)
            neighbours[up].append(c)
    home = next(c for c, clique in enumerate(members) if clique.issuperset(scope))
    seen: dict[int, int] = {}
    for root in (home, *range(len(members))):
        if root in seen:
            continue
        seen[root] = -1
        for c in (queue := [root]):
            for d in sorted(neighbours[c]):
                if d not in seen:
                    seen[d] = c
                    queue.append(d)
    kept = set(scope)
    order = []
    for c, up in reversed(list(seen.items())):
        own = members[c] - (members[up] if up >= 0 else set()) - kept
        order += sorted(v for v in own if case.state[v] < 0)
    return order


def _cost_together(tree: CompiledModel, scope: list[int], settled: Settled) -> JointCost:
    """The same steps as `_together`, with scopes alone."""
    cards = tree.model.cardinality.tolist()

    def size(variables: Iterable[int]) -> int:
        return math.prod(cards[v] for v in variables)

    tables = [frozenset(s) for s, _ in _tables(tree.model, scope, settled)]
    operations = largest = cells = 0
    free = frozenset(v for v in scope if settled.case.state[v] < 0)
    for v in [*_elimination(_plan_of(tree, scope), scope, settled.case), -1]:
        mine = [t for t in tables if v in t] if v >= 0 else [*tables, free]
        if not mine:
            continue
        tables = [t for t in tables if v not in t] if v >= 0 else []
        while len(mine) > 2:
            mine.sort(key=lambda t: (size(t), sorted(t)))
            union = mine[0] | mine[1]
            operations, largest, cells = operations + 2 * size(union), max(largest, size(union)), cells + size(union)
            mine = [union, *mine[2:]]
        union = frozenset().union(*mine)
        made = union - {v}
        operations, largest, cells = operations + 2 * size(union), max(largest, size(made)), cells + size(made)
        tables.append(made)
    entries = size(scope)
    return JointCost("together", entries, 0, operations, max(largest, entries), 8 * (cells + entries))


