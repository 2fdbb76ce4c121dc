"""Expected utilities where a decision knows one more variable: one plan for all candidates, if it is small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .evaluate import Evaluator, greedy_plan_order, scopes_of
from .relevance import requisite_information
from .solve import Solver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from .place import Policies

SMALL = 1 << 14  # entries of a plan that is always shared
MOST_TIMES = 4  # how many times the entries of the plan without candidates a larger one may have


def informed_utilities(
    solver: Solver, options: Mapping[str, Any], d: int, candidates: Sequence[str], state: NDArray[np.int32],
    policies: Policies,
) -> dict[str, float]:  # fmt: skip
    """The highest expected utility where decision d knows a candidate, too; lacks candidates that change nothing."""
    # policies: Without a candidate
    net, name = solver.net, solver.net.variables[d]
    informed = {v: net.with_information({name: (*net.parents(name), v)}) for v in candidates}
    known = {v: requisite_information(other) for v, other in informed.items()}
    wanted = [v for v in candidates if known[v] != solver.information]
    network = solver.evaluator.goal.network
    shared = None
    if len(wanted) > 1 and "order" not in options:
        entries = greedy_plan_order(network, scopes_of(solver.information, *(known[v] for v in wanted)))[1]
        if entries <= SMALL or entries <= MOST_TIMES * greedy_plan_order(network, scopes_of(solver.information))[1]:
            shared = Evaluator(net, solver.information, options, [known[v] for v in wanted])
    values = {}
    for v in wanted:
        other = Solver(informed[v], options, shared)
        start = _with_more_information(policies, solver.evaluator, other.evaluator)
        values[v] = other.solve(state, start=start).expected_utility
    return values


def _with_more_information(policies: Policies, evaluator: Evaluator, other: Evaluator) -> Policies | None:
    """The same policies where decisions know more; None if one of them depends on what is no longer requisite."""
    made = {}
    for d, table in policies.items():
        own, scope, shape = evaluator.scopes[d], other.scopes[d], other.shape(d)
        if not set(own) <= set(scope):
            return None
        table = table.transpose([own.index(v) for v in scope if v in own])
        table = table.reshape([n if v in own else 1 for v, n in zip(scope, shape, strict=True)])
        made[d] = np.broadcast_to(table, shape).copy()
    return made
