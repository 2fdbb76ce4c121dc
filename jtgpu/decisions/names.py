"""Policies by name, over the parents of decisions, and by number, over requisite information."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..model.cpt import Axis, Cpt
from ..util.arguments import choice
from .results import Policy

if TYPE_CHECKING:
    from ..model.decisions import DecisionNetwork
    from .evaluate import Evaluator
    from .place import Policies
    from .relevance import Information
    from .solve import Solution


def decision_number(net: DecisionNetwork, name: str | int) -> int:
    """The number of a decision."""
    d = net.index(name)
    if net.variables[d] not in net.decisions:
        raise ArgumentError(f"{net.variables[d]!r} is no decision; the decisions are {list(net.decisions)}")
    return d


def named_policy(net: DecisionNetwork, information: Information, solution: Solution) -> Policy:
    """A solution by name, its tables over all parents of the decisions."""
    tables: dict[str, Cpt] = {}
    named: list[dict[str, list[dict[str, str]]]] = [{}, {}]
    for name in net.decisions:
        d = net.index(name)
        parents = tuple(map(net.index, net.parents(name)))
        scope = (*parents, d)
        own = (*information[d], d)
        table = np.transpose(solution.policies[d], [own.index(v) for v in scope if v in own])
        shape = [len(net.states(v)) for v in scope]
        table = table.reshape([n if v in own else 1 for v, n in zip(scope, shape, strict=True)])
        full = np.array(np.broadcast_to(table, shape))
        full.flags.writeable = False
        tables[name] = Cpt.of(full, [Axis(net.variables[v], net.states(v)) for v in scope])
        for place, rows in zip(named, (solution.ties, solution.unreached), strict=True):
            if rows.get(d):
                place[name] = [
                    {net.variables[v]: net.states(v)[s] for v, s in zip(information[d], row, strict=True)}
                    for row in rows[d][:1000]
                ]
    return Policy(tables, solution.expected_utility, solution.method, *named)


def policies_by_number(net: DecisionNetwork, evaluator: Evaluator, policy: Any) -> Policies:
    """Policies by number over requisite information; raises `ArgumentError` for what is no policy."""
    if isinstance(policy, str):
        choice("policy", policy, ("uniform",))
        return evaluator.uniform()
    if not isinstance(policy, Mapping):
        raise ArgumentError(f"policy must be a Policy, a mapping from decision to table, or 'uniform': {policy!r}")
    policies = evaluator.uniform()
    for name, table in policy.items():
        d = decision_number(net, name)
        parents = tuple(map(net.index, net.parents(net.variables[d])))
        full = np.asarray(table, np.float64)
        shape = tuple(len(net.states(v)) for v in (*parents, d))
        if full.shape != shape:
            raise ArgumentError(f"the policy of {net.variables[d]!r} has shape {full.shape}, expected {shape}")
        if not np.isfinite(full).all() or (full < 0).any() or not np.allclose(full.sum(axis=-1), 1.0, atol=1e-6):
            raise ArgumentError(f"the policy of {net.variables[d]!r} must have rows of probabilities that sum to 1")
        own = (*evaluator.information[d], d)
        drop = tuple(i for i, v in enumerate((*parents, d)) if v not in own)
        spread = full - full.mean(axis=drop, keepdims=True) if drop else np.zeros(1)
        if np.abs(spread).max(initial=0.0) > 1e-9:
            raise ArgumentError(
                "the policy depends on information that is not requisite; network.with_policy(policy).compile() "
                "answers queries about it"
            )
        left = [v for v in (*parents, d) if v in own]
        policies[d] = np.ascontiguousarray(np.transpose(full.mean(axis=drop), [left.index(v) for v in own]))
    return policies
