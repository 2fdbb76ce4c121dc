"""Joint posteriors of any set of variables, and conditional tables.

There are two methods. ``"cases"`` (see `enumeration`) observes each configuration of all but one of the variables; it
runs on the compiled tree, on every backend. ``"together"`` (see `variable_elimination`) plans a tree with all the
variables in one clique and eliminates the others in NumPy; it wins if the set has many configurations and its variables
are close to each other. By default the cheaper one is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...backends.table import Table
from ...errors import ImpossibleEvidence, TableTooLarge, format_bytes
from ...model.discrete import DiscreteModel
from ...plans.program import posterior_program
from ...plans.specialise import FREE, HARD, SOFT, conditional_heads, flatten, reduce
from ...util.arguments import choice, number
from ...util.arrays import Floats, Ints
from ...util.system import free_memory
from ..results.rankings import JointCost
from ..results.tables import Conditional, Joint
from . import variable_elimination
from .posteriors import n_configurations, scope_of
from .reduced import reduced, searched

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ...util.options import JointMethod
    from ..compiled import CompiledModel
    from ..evidence import EvidenceOptions, Findings
    from ..interventions import ResolvedEvidence

# Joint tables by enumeration: one case for each configuration of all but one of the variables.
#
# P(a, b | e) = P(a, e) P(b | a, e) / P(e): one call of the backend with a table of cases gives the probability of each
# configuration a and the posterior of the last variable b. It runs on the compiled tree, on every backend. Each case is
# cheap, since so much is observed in it.

FEW = 256  # cases below which alternatives are not considered
PER_CASE = 1000  # operations that take as long as passing one case to the backend and back
LANES = 64  # cases that share the operations which do not depend on them
MAX_CELLS = 1 << 24  # of a table of cases that is passed at once


def widest(model: DiscreteModel, scope: Sequence[int], resolved: ResolvedEvidence) -> int:
    """The variable that is not enumerated: of those that are not observed, the one with the most states."""
    return max(scope, key=lambda v: (resolved.case.state[v] < 0, int(model.cardinality[v]), -v))


def cost(tree: CompiledModel, scope: list[int], last: int, resolved: ResolvedEvidence) -> JointCost:
    """Cost of `log_joint_table`."""
    model, state = tree.model, resolved.case.state
    entries = n_configurations(model, scope)
    others = [v for v in scope if v != last]
    cases = n_configurations(model, [v for v in others if state[v] < 0])
    if cases <= FEW:
        operations = cases * (tree.plan.cost().flops + PER_CASE)
    else:
        each, shared = _operations(tree.plan.whole, resolved, others, last)
        operations = cases * (each + PER_CASE) + -(-cases // LANES) * shared
    block = min(cases, _block(model))
    memory = 8 * (2 * entries + block * int(model.cardinality[last])) + 4 * block * len(model)
    return JointCost("cases", entries, cases, operations, entries, memory)


def _operations(plan: Plan, resolved: ResolvedEvidence, observed: Sequence[int], target: int) -> tuple[int, int]:
    """Operations of a case with additional observed variables: those of each case, and those that all cases share."""
    heads = conditional_heads(resolved.factors, plan.factor_scopes, plan.n_variables)
    program = posterior_program(plan)
    sk = flatten(program, heads)
    sk.card[-1] = 2  # any number of cases: tables that depend on the case have this axis
    pattern = np.full(program.n_variables, FREE, np.uint8)
    pattern[list(resolved.case.likelihood)] = SOFT
    pattern[np.flatnonzero(resolved.case.state >= 0)] = HARD
    pattern[list(observed)] = HARD
    wanted = np.zeros(program.n_variables, np.bool_)
    wanted[target] = True
    left = reduce(sk, pattern[program.by_rank], wanted[program.by_rank])
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


def _block(model: DiscreteModel) -> int:
    """Rows of a table of cases that is passed at once."""
    return max(LANES, MAX_CELLS // max(len(model), 1))


def log_joint_table(
    tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence, last: int
) -> tuple[Floats, float]:
    """ln P(configuration, evidence), one axis for each variable, -inf if impossible; and ln P(evidence)."""
    model, state = tree.model, resolved.case.state
    others = [v for v in scope if v != last]
    allowed: list[NDArray[np.integer]] = [
        np.arange(int(model.cardinality[v])) if state[v] < 0 else state[v : v + 1] for v in others
    ]
    if math.prod(len(a) for a in allowed) > FEW:  # leave out states of probability 0
        first, ptr = tree.answer(resolved.backend.run_case, resolved.case, others), tree.plan.posterior_ptr
        allowed = [_possible(resolved, v, first.posterior[ptr[v] : ptr[v + 1]]) for v in others]
    table = np.full([int(model.cardinality[v]) for v in (*others, last)], -np.inf)
    parts = []
    for rows in _configurations(allowed, _block(model)):
        log_case, posterior = _run(resolved, others, rows, last)
        parts.append(log_case)
        with np.errstate(divide="ignore"):
            table[tuple(rows.T)] = log_case[:, None] + np.log(posterior)
    log_cases = np.concatenate(parts)
    top = float(log_cases.max())
    if top == -math.inf:
        tree.answer(resolved.backend.run_case, resolved.case, [])  # raises and names the evidence
        raise ImpossibleEvidence("the evidence has probability 0")
    log_evidence = top + math.log(float(np.exp(log_cases - top).sum()))
    return np.moveaxis(table, -1, scope.index(last)), log_evidence


def _possible(resolved: ResolvedEvidence, v: int, posterior: Floats) -> Ints:
    """States of a variable that are possible, those among them whose probability is too small for a number."""
    possible = posterior > 0
    unknown = np.flatnonzero(~possible)
    if len(unknown) and resolved.case.state[v] < 0:
        possible[unknown] = _run(resolved, [v], unknown[:, None], v)[0] > -np.inf
    return np.flatnonzero(possible)


def _configurations(allowed: Sequence[NDArray[np.generic]], block: int) -> Iterator[Ints]:
    """All configurations of the allowed states, in blocks of rows, each (rows, variables)."""
    shape = tuple(len(a) for a in allowed)
    n = math.prod(shape)
    for first in range(0, n, block):
        rows = np.zeros((min(block, n - first), len(shape)), np.int64)
        for column, i in enumerate(np.unravel_index(np.arange(first, first + len(rows)), shape) if shape else ()):
            rows[:, column] = allowed[column][i]
        yield rows


def _run(resolved: ResolvedEvidence, others: Sequence[int], rows: Ints, last: int) -> tuple[Floats, Floats]:
    """ln P(case), and the posterior of the last variable, for each row of states of the other variables."""
    case = resolved.case
    states = np.tile(case.state, (len(rows), 1))
    states[:, others] = rows
    weights = {v: np.tile(w, (len(rows), 1)) for v, w in case.likelihood.items()}
    result = resolved.backend.run(Table.of(states, weights, [last]))
    return result.log_evidence, result.posterior


MAX_TABLE = 100_000_000  # entries of the result, or of an intermediate table
MAX_AXES = 32  # of the result: NumPy's limit before version 2
MEMORY_SHARE = 0.8  # of the free memory
ALWAYS_FREE = 1 << 22  # bytes; reading the free memory takes as long as a small query
CHEAP = 300_000_000  # operations of a table of cases, 60 ms on two cores, below which no other plan is made
NUMPY_FACTOR = 8  # time of an operation in NumPy relative to the compiled loops on two cores


def joint(
    self: CompiledModel, variables: Iterable[str | int], evidence: Findings | None = None, *, how: JointMethod = "auto",
    max_table: int | None = None, **more: Unpack[EvidenceOptions],
) -> Joint:  # fmt: skip
    """Compute the joint posterior P(variables | evidence) of any set of variables.

    Parameters
    ----------
    variables : iterable of str or int
        The variables, in the order of the result's axes.
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    how : {"auto", "cases", "together"}
        The method. ``"cases"``: one case for each configuration of all but one variable, on this tree.
        ``"together"``: a second plan with the variables in one clique, in NumPy on the CPU. ``"auto"``: the cheaper
        one; see `joint_cost`.
    max_table : int, optional
        Largest number of entries of the result and of intermediate tables. Default: 100,000,000.

    Returns
    -------
    Joint

    Raises
    ------
    TableTooLarge
        If a table is too large; raised before memory is allocated.
    """
    tree = self.for_sets(more.get("likelihood"))
    return joint_of(tree, variables, tree.resolve(evidence, **more), how, max_table)


def joint_of(
    tree: CompiledModel, variables: Iterable[str | int], resolved: ResolvedEvidence, how: str = "auto",
    max_table: float | None = None,
) -> Joint:  # fmt: skip
    """The same as `joint`, of resolved evidence."""
    scope = scope_of(tree.model, variables)
    limit = MAX_TABLE if max_table is None else number("max_table", max_table, above=0)
    choice("how", how, ("auto", "cases", "together"))
    if not tree.whole:
        return _joint_of_question(tree, scope, resolved, how, limit)
    last = widest(tree.model, scope, resolved)
    cost = _choose(tree, scope, last, resolved, how, limit)
    if cost.how == "together":
        cells, exponents, log_evidence = variable_elimination.joint_table(tree, scope, resolved)
        table = variable_elimination.relative(cells, exponents)
    else:
        log_table, log_evidence = log_joint_table(tree, scope, resolved, last)
        table = np.exp(log_table - log_evidence, out=log_table)
    total = table.sum()
    if not total > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    names, states = _labels(tree.model, scope)
    return Joint(names, states, table / total, log_evidence + resolved.log_shift)


def _joint_of_question(
    tree: CompiledModel, scope: list[int], resolved: ResolvedEvidence, how: str, limit: float
) -> Joint:  # fmt: skip
    """The same, of a tree whose questions are planned one by one: from the joint posterior of what is left."""
    _check_entries(tree.model, scope, limit)
    try:
        left, sub, names = reduced(tree, scope, resolved)
    except TableTooLarge as error:
        if how != "auto":
            raise
        cells, log_evidence = searched(tree, scope, resolved, error)
        return Joint(*_labels(tree.model, scope), cells, log_evidence + resolved.log_shift)
    cells, log_evidence = np.ones(1), 0.0
    if sub is not None and names:
        joint = joint_of(sub, names, sub.resolve(), how, limit)
        cells, log_evidence = joint.probabilities, joint.log_evidence
    elif sub is not None:
        log_evidence = sub.answer(sub.resolve().backend.run_case, sub.resolve().case, []).log_evidence
    shift = left.log_constant + resolved.log_shift
    return Joint(*_labels(tree.model, scope), left.table(scope, cells), log_evidence + shift)


def joint_cost(
    self: CompiledModel, variables: Iterable[str | int], evidence: Findings | None = None, *, how: JointMethod = "auto",
    **more: Unpack[EvidenceOptions],
) -> JointCost:  # fmt: skip
    """Estimate the cost of `joint` without computing it.

    Parameters
    ----------
    variables, evidence, how, likelihood, soft, do
        See `joint`.
    """
    self = self.for_sets(more.get("likelihood"))
    return joint_cost_of(self, variables, self.resolve(evidence, **more), how)


def joint_cost_of(
    tree: CompiledModel, variables: Iterable[str | int], resolved: ResolvedEvidence, how: str = "auto"
) -> JointCost:
    """The same as `joint_cost`, of resolved evidence."""
    scope = scope_of(tree.model, variables)
    choice("how", how, ("auto", "cases", "together"))
    if not tree.whole:
        _, sub, names = reduced(tree, scope, resolved)
        entries = n_configurations(tree.model, scope)
        if sub is None or not names:
            return JointCost("cases", entries, 1, PER_CASE, entries, 16 * entries)
        return replace(joint_cost_of(sub, names, sub.resolve(), how), entries=entries)
    return _choose(tree, scope, widest(tree.model, scope, resolved), resolved, how, None)


def conditional(
    self: CompiledModel, variables: str | int | Iterable[str | int], given: Iterable[str | int],
    evidence: Findings | None = None, **more: Unpack[EvidenceOptions],
) -> Conditional:  # fmt: skip
    """Compute the conditional table P(variables | given, evidence).

    Parameters
    ----------
    variables : str, int, or iterable of these
    given : iterable of str or int
        The variables that are conditioned on; they need not be parents. Their axes are the first ones.
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.

    Returns
    -------
    Conditional
        The row of a configuration of `given` that has probability zero contains zeros, and ``.possible`` is False
        there.
    """
    self = self.for_sets(more.get("likelihood"))
    resolved, model = self.resolve(evidence, **more), self.model
    targets = scope_of(model, variables)
    conditions = scope_of(model, given, "given")
    both = scope_of(model, [*conditions, *targets], "variables and given")
    axes = tuple(range(len(conditions), len(both)))
    if self.whole:
        table = _rows(self, both, targets, resolved, axes)
    else:
        table = _rows_of_question(self, both, targets, resolved)
    sums = table.sum(axis=axes, keepdims=True)
    possible = sums > 0
    table = np.divide(table, sums, out=np.zeros_like(table), where=possible)
    names, states = _labels(model, both)
    n = len(conditions)
    return Conditional(names[:n], names[n:], states, table, possible.reshape(possible.shape[:n]))


def _rows(
    tree: CompiledModel, scope: list[int], targets: Sequence[int], resolved: ResolvedEvidence, axes: tuple[int, ...]
) -> Floats:
    """Numbers proportional to P(configuration, evidence) along the axes of the targets."""
    last = widest(tree.model, targets, resolved)
    if _choose(tree, scope, last, resolved, "auto", MAX_TABLE).how == "together":
        cells, exponents, _ = variable_elimination.joint_table(tree, scope, resolved)
        return variable_elimination.relative(cells, exponents, axes)
    # each row is normalised on its own: a row of probability 1e-320 is as accurate as any
    log_table, _ = log_joint_table(tree, scope, resolved, last)
    top = log_table.max(axis=axes, keepdims=True)
    return np.asarray(np.exp(log_table - np.where(np.isneginf(top), 0.0, top)))


def _rows_of_question(
    tree: CompiledModel, scope: list[int], targets: Sequence[int], resolved: ResolvedEvidence
) -> Floats:
    """The same, of a tree whose questions are planned one by one."""
    _check_entries(tree.model, scope, MAX_TABLE)
    try:
        left, sub, free = reduced(tree, scope, resolved)
    except TableTooLarge as error:
        return searched(tree, scope, resolved, error)[0]
    cells, targeted = np.ones(1), [i for i, v in enumerate(free) if tree.model.index(v) in targets]
    if sub is not None and free:
        inner = scope_of(sub.model, free)
        last = [inner[i] for i in targeted] or inner
        cells = _rows(sub, inner, last, sub.resolve(), tuple(targeted))
    return left.table(scope, cells)


def _labels(model: DiscreteModel, scope: Sequence[int]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return tuple(model.variables[v] for v in scope), tuple(model.states(v) for v in scope)


def _check_entries(model: DiscreteModel, scope: Sequence[int], limit: float) -> None:
    """Raise `TableTooLarge` for a joint table of too many entries or variables."""
    entries = n_configurations(model, scope)
    if entries > limit or len(scope) > MAX_AXES:
        raise TableTooLarge(
            f"the joint table of {len(scope)} variables has {entries:,} entries ({format_bytes(8 * entries)}), more "
            f"than the limits of {limit:,} entries (max_table) and {MAX_AXES} variables; query fewer variables, or "
            "use tree.sample",
            entries,
            8 * entries,
            -1,
        )


def _choose(
    tree: CompiledModel, scope: list[int], last: int, resolved: ResolvedEvidence, how: str, limit: float | None
) -> JointCost:
    """Cost of the requested method, or of the cheaper one."""
    # last: The variable that method ``"cases"`` does not enumerate
    # limit: Entries that a table may have; None: any number, in any amount of memory
    choice("how", how, ("auto", "cases", "together"))
    if limit is not None:
        _check_entries(tree.model, scope, limit)
    if how == "together":
        return _checked(variable_elimination.cost(tree, scope, resolved), limit)
    cases = cost(tree, scope, last, resolved)
    if how == "cases" or cases.cases <= FEW or cases.operations <= CHEAP:
        return _checked(cases, limit)
    try:
        together = _checked(
            variable_elimination.cost(tree, scope, resolved), MAX_TABLE if limit is None else limit
        )
    except TableTooLarge:
        return _checked(cases, limit)
    return together if NUMPY_FACTOR * together.operations < cases.operations else _checked(cases, limit)


def _checked(cost: JointCost, limit: float | None) -> JointCost:
    """`cost`, if its tables are within the limit and the free memory."""
    if limit is None or (cost.largest <= limit and cost.bytes <= ALWAYS_FREE):
        return cost
    free = int(MEMORY_SHARE * free_memory())
    if cost.largest > limit or cost.bytes > free:
        other = "cases" if cost.how == "together" else "together"
        raise TableTooLarge(
            f"this joint table needs {format_bytes(cost.bytes)} and tables of up to {cost.largest:,} entries with "
            f"how={cost.how!r}; the limits are {format_bytes(free)} (80 % of the free memory) and {limit:,} entries "
            f"(max_table); how={other!r} or fewer variables may need less",
            cost.largest,
            cost.bytes,
            free,
        )
    return cost
