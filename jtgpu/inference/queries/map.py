"""Marginal MAP: the most probable configuration of some variables, all others summed out.

The problem is NP^PP-complete (Park and Darwiche, Complexity results and approximation strategies for MAP explanations,
JAIR 21, 2004): all other variables must be eliminated before the first of the query's, and such an elimination order
may have far larger tables than the tree (see `map_program`). The cost is known before any memory
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
from ..results.explanations import Explanation
from ..results.rankings import MapCost
from .joint import joint_cost_of, joint_of
from .map_program import map_program
from .mpe import check_k, evidence_of, explanations
from .posteriors import messages_of, n_configurations, named, scope_of
from .reduced import reduced

if TYPE_CHECKING:
    from typing import Unpack

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
        states, log_joint = left.state[None].copy(), np.array([log_evidence()])
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
