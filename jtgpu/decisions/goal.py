"""The goal of a decision network: a chain of binary variables whose last is true with a probability that is linear in
the expected utility.

A utility u becomes a variable with P(true | parents) between 1/2 and 1, linear in u (Cooper, UAI 1988). The next one of
the chain mixes it with what came before, so that the last has the weighted mean of all: one propagation gives the
expected total, and its derivative by a policy. With ``combine="product"`` all variables of the chain must be true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError
from ..model.decisions import MAX_UTILITY
from ..model.described import DescribedModel
from ..model.discrete import Factor
from ..model.network import BayesianNetwork
from ..util.arrays import Floats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model.decisions import DecisionNetwork
    from .relevance import Information

FALSE, TRUE = 0, 1


class GoalNetwork(BayesianNetwork):
    """A Bayesian network whose tables are not checked: they are those of a decision network, or made here."""

    def __init__(self, states: Any, parents: Any, cpts: Mapping[str, Floats], name: str):
        DescribedModel.__init__(self, states, parents, name=name, attributes=None, row_report=None)
        self._cpts = tuple(np.ascontiguousarray(cpts[v]) for v in self._variables)
        scopes = ((*ids, i) for i, ids in enumerate(self._parents))
        self._factors = tuple(Factor(scope, cpt) for scope, cpt in zip(scopes, self._cpts, strict=True))


@dataclass(frozen=True)
class Goal:
    """A network whose decisions are uniform, with the goal; expected utility = offset + scale * P(goal | evidence)."""

    network: BayesianNetwork
    nodes: tuple[int, ...]  # variables that are true where the goal is reached
    offset: float
    scale: float

    def utility(self, p: Any) -> Any:
        """The expected utility where the goal has this probability, or these, without digits that rounding made."""
        digits = 12 - int(f"{abs(self.offset) + abs(self.scale):e}".partition("e")[2])
        utility = self.offset + self.scale * p
        return np.round(utility, digits) if abs(digits) < 100 else utility


def goal_network(net: DecisionNetwork, information: Information) -> Goal:
    """Chance variables, decisions without parents, and the chain of utilities."""
    # information: Policies are likelihoods over it and the decision, so the plan must keep these together
    states: dict[str, Any] = {v: net.states(v) for v in net.variables}
    parents: dict[str, Any] = {v: () if net.index(v) in information else net.parents(v) for v in net.variables}
    cpts: dict[str, Any] = {}
    for v in net.variables:
        n = len(net.states(v))
        cpts[v] = np.full(n, 1.0 / n) if net.index(v) in information else net._cpts[v]
    make = _product if net.combine == "product" else _sum
    names, offset, scale = make(net, states, parents, cpts)
    goal = GoalNetwork(states, parents, cpts, net.name)
    return Goal(goal, tuple(map(goal.index, names)), offset, scale)


def utilities_in_order(net: DecisionNetwork) -> list[str]:
    """The utilities by the last of their parents: near ones are neighbours in a chain, which keeps cliques small."""
    rank = {v: i for i, v in enumerate(net.topological_order())}
    return sorted(net.utilities, key=lambda u: max((rank[p] for p in net.parents(u)), default=-1))


def _sum(net: DecisionNetwork, states: Any, parents: Any, cpts: Any) -> tuple[list[str], float, float]:
    offset, total, last = 0.0, 0.0, ""
    for u in utilities_in_order(net):
        table = net.utility(u)
        low, width = float(table.min()), float(table.max() - table.min())
        offset += low
        if width == 0.0:
            continue
        total += width
        share = width / total
        reached = 0.5 + 0.5 * (table - low) / width
        name = f"\0{u}"
        states[name] = ("false", "true")
        if not last:
            parents[name] = net.parents(u)
            cpts[name] = np.stack([1.0 - reached, reached], axis=-1)
        else:
            before = np.array([0.0, 1.0]).reshape(2, *[1] * table.ndim)
            mixed = (1.0 - share) * before + share * reached
            parents[name] = (last, *net.parents(u))
            cpts[name] = np.stack([1.0 - mixed, mixed], axis=-1)
        last = name
    return ([last] if last else []), offset - total, 2.0 * total


def _product(net: DecisionNetwork, states: Any, parents: Any, cpts: Any) -> tuple[list[str], float, float]:
    names, scale = [], 1.0
    for u in net.utilities:
        table = net.utility(u)
        if (table < 0).any():
            raise NetworkError(f"utility {u!r} has a negative number, which combine='product' does not allow")
        top = float(table.max())
        scale *= top
        if scale > MAX_UTILITY:
            raise NetworkError(f"the product of the utilities may be {scale:g}, more than {MAX_UTILITY:g}")
        name = f"\0{u}"
        states[name], parents[name] = ("false", "true"), net.parents(u)
        reached = table / top if top > 0 else table
        cpts[name] = np.stack([1.0 - reached, reached], axis=-1)
        names.append(name)
    return names, 0.0, scale
