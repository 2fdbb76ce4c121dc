"""Marginal MAP: the most probable configuration of some variables, all others summed out.

The problem is NP^PP-complete (Park and Darwiche, Complexity results and approximation strategies for MAP explanations,
JAIR 21, 2004): all other variables must be eliminated before the first of the query's, and such an elimination order
may have far larger tables than the tree (see `constrained_order`, `maximisation`). The cost is known before any memory
is allocated: `map_cost`. If it is high and the variables have few configurations, their joint posterior may be cheaper;
the result is then its largest entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import TableTooLarge, format_bytes
from ...plans.program import Program
from ...plans.specialise import conditional_heads
from ...util.arguments import number
from ...util.system import free_memory, parse_bytes
from ..results.configurations import Explanation
from ..results.costs import MapCost
from .joint import joint, joint_cost
from .maximisation import map_program
from .messages import messages_of, named
from .mpe import check_k, evidence_of, explanations
from .scope import n_configurations, scope_of

if TYPE_CHECKING:
    from ..compiled import CompiledModel
    from ..interventions import Settled

MAX_TABLE = 100_000_000  # entries of an intermediate table
MEMORY_SHARE = 0.8  # of the free memory
MAX_PROGRAMS = 16  # cached for each compiled model
CHEAP = 1_000_000_000  # operations below which the joint posterior is not considered
MAX_JOINT = 1_000_000  # entries of a joint posterior


def marginal_map(
    tree: CompiledModel,
    variables: Iterable[str | int],
    settled: Settled,
    k: int,
    memory_limit: int | float | str | None,
    max_table: int | None,
) -> Explanation:
    program, cost, scope = _program_of(tree, variables, settled)
    k = check_k(tree.model, k, scope, settled.case)
    limit = int(MEMORY_SHARE * free_memory()) if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    most = MAX_TABLE if max_table is None else number("max_table", max_table, above=0)
    cost = _cheaper(tree, scope, settled, cost, most)
    if cost.largest > most or cost.bytes > limit:
        raise TableTooLarge(
            f"this marginal MAP query needs {format_bytes(cost.bytes)} and tables of up to {cost.largest:,} entries; "
            f"the limits are {format_bytes(limit)} (memory_limit; default: 80 % of the free memory) and {most:,} "
            "entries (max_table); other variables or more evidence may need less, and mpe(), which maximises over all "
            "variables, does",
            cost.largest,
            cost.bytes,
            limit,
        )
    if cost.how == "joint":
        return _from_joint(tree, scope, settled, k)
    key = "map", *sorted(scope), (settled.case.state >= 0).tobytes(), *sorted(settled.case.likelihood)
    sweep = messages_of(tree, settled.factors).get(key, lambda: program)
    best = named(tree, settled.case, lambda: sweep.best(settled.case, k))
    return explanations(
        tree.model, best.states, best.log_value + settled.log_shift, evidence_of(tree, settled), scope
    )


def map_cost(tree: CompiledModel, variables: Iterable[str | int], settled: Settled) -> MapCost:
    _, cost, scope = _program_of(tree, variables, settled)
    return _cheaper(tree, scope, settled, cost, MAX_TABLE)


def _program_of(
    tree: CompiledModel, variables: Iterable[str | int], settled: Settled
) -> tuple[Program, MapCost, list[int]]:
    """The program of a query, cached by the observed variables; its cost; the variables by number."""
    scope = scope_of(tree.model, variables)
    case = settled.case
    key = tuple(sorted(scope)), (case.state >= 0).tobytes(), tuple(sorted(case.likelihood))

    def make() -> tuple[Program, MapCost]:
        plan = tree.plan.whole
        heads = conditional_heads(settled.factors, plan.factor_scopes, plan.n_variables)
        return map_program(plan, heads, frozenset(scope), case)

    program, cost = tree.cached("map_programs", key, make, MAX_PROGRAMS)
    return program, cost, scope


def _cheaper(tree: CompiledModel, scope: list[int], settled: Settled, cost: MapCost, most: float) -> MapCost:
    """`cost`, or that of the joint posterior if it is cheaper or the tables of the order are too large."""
    free = [v for v in scope if settled.case.state[v] < 0]
    entries = n_configurations(tree.model, free)
    if not free or entries > MAX_JOINT or (cost.operations <= CHEAP and cost.largest <= most):
        return cost
    other = joint_cost(tree, free, settled)
    if other.largest > most or (cost.largest <= most and other.operations >= cost.operations):
        return cost
    return replace(
        cost, how="joint", largest=other.largest, table_entries=other.bytes // 8, operations=other.operations,
        bytes=other.bytes,
    )  # fmt: skip


def _from_joint(tree: CompiledModel, scope: list[int], settled: Settled, k: int) -> Explanation:
    """The k largest entries of the joint posterior."""
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
