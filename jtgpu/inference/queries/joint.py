"""Joint posteriors of any set of variables, and conditional tables.

There are two methods. ``"cases"`` (see `enumeration`) observes each configuration of all but one of the variables; it
runs on the compiled tree, on every backend. ``"together"`` (see `variable_elimination`) plans a tree with all the
variables in one clique and eliminates the others in NumPy; it wins if the set has many configurations and its variables
are close to each other. By default the cheaper one is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ImpossibleEvidence, TableTooLarge, format_bytes
from ...model.discrete import DiscreteModel
from ...util.arguments import choice, number
from ...util.system import free_memory
from ..results.costs import JointCost
from ..results.tables import Conditional, Joint
from . import enumeration, variable_elimination
from .scope import n_configurations, scope_of

if TYPE_CHECKING:
    from ..compiled import CompiledModel
    from ..interventions import Settled

MAX_TABLE = 100_000_000  # entries of the result, or of an intermediate table
MAX_AXES = 32  # of the result: NumPy's limit before version 2
MEMORY_SHARE = 0.8  # of the free memory
ALWAYS_FREE = 1 << 22  # bytes; reading the free memory takes as long as a small query
CHEAP = 300_000_000  # operations of a table of cases, 60 ms on two cores, below which no other plan is made
NUMPY_FACTOR = 8  # time of an operation in NumPy relative to the compiled loops on two cores


def joint(
    tree: CompiledModel,
    variables: Iterable[str | int],
    settled: Settled,
    how: str = "auto",
    max_table: int | None = None,
) -> Joint:
    scope = scope_of(tree.model, variables)
    limit = MAX_TABLE if max_table is None else number("max_table", max_table, above=0)
    last = enumeration.widest(tree.model, scope, settled)
    cost = _choose(tree, scope, last, settled, how, limit)
    if cost.how == "together":
        table, log_evidence = variable_elimination.joint_table(tree, scope, settled)
    else:
        log_table, log_evidence = enumeration.log_joint_table(tree, scope, settled, last)
        table = np.exp(log_table - log_evidence, out=log_table)
    total = table.sum()
    if not total > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    names, states = _labels(tree.model, scope)
    return Joint(names, states, table / total, log_evidence + settled.log_shift)


def joint_cost(tree: CompiledModel, variables: Iterable[str | int], settled: Settled, how: str = "auto") -> JointCost:
    scope = scope_of(tree.model, variables)
    return _choose(tree, scope, enumeration.widest(tree.model, scope, settled), settled, how, None)


def conditional(
    tree: CompiledModel, variables: str | int | Iterable[str | int], given: Iterable[str | int], settled: Settled
) -> Conditional:
    model = tree.model
    targets = scope_of(model, variables)
    conditions = scope_of(model, given, "given")
    both = scope_of(model, [*conditions, *targets], "variables and given")
    last = enumeration.widest(model, targets, settled)
    cost = _choose(tree, both, last, settled, "auto", MAX_TABLE)
    axes = tuple(range(len(conditions), len(both)))
    if cost.how == "together":
        table, _ = variable_elimination.joint_table(tree, both, settled)
    else:  # each row is normalised on its own: a row of probability 1e-320 is as accurate as any
        log_table, _ = enumeration.log_joint_table(tree, both, settled, last)
        top = log_table.max(axis=axes, keepdims=True)
        table = np.exp(log_table - np.where(np.isneginf(top), 0.0, top))
    sums = table.sum(axis=axes, keepdims=True)
    possible = sums > 0
    table = np.divide(table, sums, out=np.zeros_like(table), where=possible)
    names, states = _labels(model, both)
    n = len(conditions)
    return Conditional(names[:n], names[n:], states, table, possible.reshape(possible.shape[:n]))


def _labels(model: DiscreteModel, scope: Sequence[int]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return tuple(model.variables[v] for v in scope), tuple(model.states(v) for v in scope)


def _choose(
    tree: CompiledModel, scope: list[int], last: int, settled: Settled, how: str, limit: float | None
) -> JointCost:
    """Cost of the requested method, or of the cheaper one."""
    # last: The variable that method ``"cases"`` does not enumerate
    # limit: Entries that a table may have; None: any number, in any amount of memory
    choice("how", how, ("auto", "cases", "together"))
    entries = n_configurations(tree.model, scope)
    if limit is not None and (entries > limit or len(scope) > MAX_AXES):
        raise TableTooLarge(
            f"the joint table of {len(scope)} variables has {entries:,} entries ({format_bytes(8 * entries)}), more "
            f"than the limits of {limit:,} entries (max_table) and {MAX_AXES} variables; query fewer variables, or "
            "use tree.sample",
            entries,
            8 * entries,
            -1,
        )
    if how == "together":
        return _checked(variable_elimination.cost(tree, scope, settled), limit)
    cases = enumeration.cost(tree, scope, last, settled)
    if how == "cases" or cases.cases <= enumeration.FEW or cases.operations <= CHEAP:
        return _checked(cases, limit)
    try:
        together = _checked(
            variable_elimination.cost(tree, scope, settled), MAX_TABLE if limit is None else limit
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
