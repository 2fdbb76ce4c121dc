"""Joint tables by enumeration: one case for each configuration of all but one of the variables.

P(a, b | e) = P(a, e) P(b | a, e) / P(e): one call of the backend with a table of cases gives the probability of each
configuration a and the posterior of the last variable b. It runs on the compiled tree, on every backend. Each case is
cheap, since so much is observed in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ImpossibleEvidence
from ...model.discrete import DiscreteModel
from ...plans.program import posterior_program
from ...plans.specialise import FREE, HARD, SOFT, conditional_heads, flatten, reduce
from ..results.costs import JointCost
from .scope import n_configurations

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan
    from ..compiled import CompiledModel
    from ..interventions import Settled

FEW = 256  # cases below which alternatives are not considered
PER_CASE = 1000  # operations that take as long as passing one case to the backend and back
LANES = 64  # cases that share the operations which do not depend on them
MAX_CELLS = 1 << 24  # of a table of cases that is passed at once


def widest(model: DiscreteModel, scope: Sequence[int], settled: Settled) -> int:
    """The variable that is not enumerated: of those that are not observed, the one with the most states."""
    return max(scope, key=lambda v: (settled.case.state[v] < 0, int(model.cardinality[v]), -v))


def cost(tree: CompiledModel, scope: list[int], last: int, settled: Settled) -> JointCost:
    """Cost of `log_joint_table`."""
    model, state = tree.model, settled.case.state
    entries = n_configurations(model, scope)
    others = [v for v in scope if v != last]
    cases = n_configurations(model, [v for v in others if state[v] < 0])
    if cases <= FEW:
        operations = cases * (tree.plan.cost().flops + PER_CASE)
    else:
        each, shared = _operations(tree.plan.whole, settled, others, last)
        operations = cases * (each + PER_CASE) + -(-cases // LANES) * shared
    block = min(cases, _block(model))
    memory = 8 * (2 * entries + block * int(model.cardinality[last])) + 4 * block * len(model)
    return JointCost("cases", entries, cases, operations, entries, memory)


def _operations(plan: Plan, settled: Settled, observed: Sequence[int], target: int) -> tuple[int, int]:
    """Operations of a case with additional observed variables: those of each case, and those that all cases share."""
    heads = conditional_heads(settled.factors, plan.factor_scopes, plan.n_variables)
    sk = flatten(posterior_program(plan), heads)
    sk.card[-1] = 2  # any number of cases: tables that depend on the case have this axis
    pattern = np.full(plan.n_variables, FREE, np.uint8)
    pattern[list(settled.case.likelihood)] = SOFT
    pattern[settled.case.state >= 0] = HARD
    pattern[list(observed)] = HARD
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


def _block(model: DiscreteModel) -> int:
    """Rows of a table of cases that is passed at once."""
    return max(LANES, MAX_CELLS // max(len(model), 1))


def log_joint_table(
    tree: CompiledModel, scope: list[int], settled: Settled, last: int
) -> tuple[NDArray[np.float64], float]:
    """ln P(configuration, evidence), one axis for each variable, -inf if impossible; and ln P(evidence)."""
    model, state = tree.model, settled.case.state
    others = [v for v in scope if v != last]
    allowed: list[NDArray[Any]] = [
        np.arange(int(model.cardinality[v])) if state[v] < 0 else state[v : v + 1] for v in others
    ]
    if math.prod(len(a) for a in allowed) > FEW:  # leave out states of probability 0
        first, ptr = tree.answer(settled.backend.run, settled.case, others), tree.plan.posterior_ptr
        allowed = [np.flatnonzero(first.posterior[ptr[v] : ptr[v + 1]]) for v in others]
    table = np.full([int(model.cardinality[v]) for v in (*others, last)], -np.inf)
    parts = []
    for rows in _configurations(allowed, _block(model)):
        log_case, posterior = _run(settled, others, rows, last)
        parts.append(log_case)
        with np.errstate(divide="ignore"):
            table[tuple(rows.T)] = log_case[:, None] + np.log(posterior)
    log_cases = np.concatenate(parts)
    top = float(log_cases.max())
    if top == -math.inf:
        tree.answer(settled.backend.run, settled.case, [])  # raises and names the evidence
        raise ImpossibleEvidence("the evidence has probability 0")
    log_evidence = top + math.log(float(np.exp(log_cases - top).sum()))
    return np.moveaxis(table, -1, scope.index(last)), log_evidence


def _configurations(allowed: Sequence[NDArray[Any]], block: int) -> Iterator[NDArray[np.int64]]:
    """All configurations of the allowed states, in blocks of rows, each (rows, variables)."""
    shape = tuple(len(a) for a in allowed)
    n = math.prod(shape)
    for first in range(0, n, block):
        rows = np.zeros((min(block, n - first), len(shape)), np.int64)
        for column, i in enumerate(np.unravel_index(np.arange(first, first + len(rows)), shape) if shape else ()):
            rows[:, column] = allowed[column][i]
        yield rows


def _run(
    settled: Settled, others: Sequence[int], rows: NDArray[np.int64], last: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """ln P(case), and the posterior of the last variable, for each row of states of the other variables."""
    case = settled.case
    states = np.tile(case.state, (len(rows), 1))
    states[:, others] = rows
    weights = {v: np.tile(w, (len(rows), 1)) for v, w in case.likelihood.items()}
    found = settled.backend.run_batch(np.ascontiguousarray(states, np.int32), weights, [last])
    return found.log_evidence, found.posterior
