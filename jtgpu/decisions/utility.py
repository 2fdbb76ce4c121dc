"""`Utility`: the total utility under a policy: mean, parts, distribution.

The goal of a decision network: a chain of binary variables whose last is true with a probability that is linear in
the expected utility.

A utility u becomes a variable with P(true | parents) between 1/2 and 1, linear in u (Cooper, UAI 1988). The next one of
the chain mixes it with what came before, so that the last has the weighted mean of all: one propagation gives the
expected total, and its derivative by a policy. With ``combine="product"`` all variables of the chain must be true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, NetworkError, TableTooLarge
from ..model.cpts import DescribedModel
from ..model.decisions import MAX_UTILITY
from ..model.discrete import Factor
from ..model.network import BayesianNetwork
from ..util.arguments import number
from ..util.arrays import Floats
from .results import UtilityDistribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..inference.tree import JunctionTree
    from ..model.decisions import DecisionNetwork
    from .relevance import Information

FALSE, TRUE = 0, 1
DIGITS, DOUBLE = 13, 16  # after the first one of the scale, of a double
MOST_DIGITS = 300  # after or before the point: 10 ** of it is a double


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

    def utility(self, reached: Any) -> Any:
        """Expected utilities where the goal has these probabilities."""
        return self.rounded(self.offset + self.scale * reached)

    def rounded(self, utilities: Any) -> Any:
        """Utilities, or differences of them, without digits that are the rounding error of the sum."""
        if not (self.offset and self.scale):
            return utilities
        scale, offset = (Decimal(x).adjusted() for x in (self.scale, self.offset))
        digits = min(DIGITS - scale, DOUBLE - offset)
        return np.round(utilities, digits) if abs(digits) < MOST_DIGITS else utilities


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


MOST_TOTALS = 1 << 16  # configurations of the parents of utilities that are added up
MOST_VALUES, MOST_CELLS = 4096, 1 << 22  # of a running total: values, and cells of a table
SAME = 1e-12  # relative difference of totals that rounding explains


class Utility:
    """The total utility under a policy.

    Attributes
    ----------
    mean : float
    by_node : dict
        Utility to its expectation.
    """

    def __init__(self, net: DecisionNetwork, tree: JunctionTree, evidence: Mapping[str, Any]):
        self._net, self._tree, self._evidence = net, tree, evidence  # tree: of the network with the policy
        self.by_node = {u: float((self._joint(net.parents(u)) * net.utility(u)).sum()) for u in net.utilities}
        values = self.by_node.values()
        if net.combine == "sum" or len(values) < 2:
            self.mean = math.fsum(values)
        else:
            self.mean = self.distribution().mean

    def __repr__(self) -> str:
        parts = ", ".join(f"{u} {x:.6g}" for u, x in self.by_node.items())
        return f"Utility: mean {self.mean:.6g} ({parts})"

    def _joint(self, variables: tuple[str, ...]) -> NDArray[np.float64]:
        if not variables:
            return np.ones(())
        return np.asarray(self._tree.joint(list(variables), **self._evidence))

    def distribution(self, step: float | None = None) -> UtilityDistribution:
        """Compute the distribution of the total.

        It is exact: from the joint posterior of all parents of utilities where that is small, else from the running
        total, whose values are added utility by utility.

        Parameters
        ----------
        step : float, optional
            Round each utility to a multiple of this, for totals of many different values; the error is stated.

        Raises
        ------
        TableTooLarge
            If the total has too many different values.
        """
        net = self._net
        if step is not None:
            if net.combine == "product":
                raise ArgumentError("step= is for utilities that are added")
            return self._of_running_total(number("step", step, above=0))
        scope = tuple(dict.fromkeys(p for u in net.utilities for p in net.parents(u)))
        if math.prod(len(net.states(v)) for v in scope) > MOST_TOTALS:
            return self._of_running_total(None)
        joint = self._joint(scope)
        total = np.zeros(joint.shape) if net.combine == "sum" else np.ones(joint.shape)
        for u in net.utilities:
            own = net.parents(u)
            table = np.transpose(net.utility(u), [own.index(v) for v in scope if v in own])
            table = table.reshape([len(net.states(v)) if v in own else 1 for v in scope])
            total = total + table if net.combine == "sum" else total * table
        values, place = _distinct(total)
        probabilities = np.bincount(place.ravel(), joint.ravel(), len(values)).astype(np.float64)
        return _distribution(values, probabilities, 0.0)

    def _of_running_total(self, step: float | None) -> UtilityDistribution:
        """The distribution by a chain of variables: the total of the first utility, of the first two ..."""
        net, chance = self._net, self._tree.model
        assert isinstance(chance, BayesianNetwork)
        states: dict[str, Any] = {v: chance.states(v) for v in chance}
        parents: dict[str, Any] = {v: chance.parents(v) for v in chance}
        cpts: dict[str, Any] = {v: chance.cpt(v) for v in chance}
        last, error, values = "", 0.0, np.full(1, 0.0 if net.combine == "sum" else 1.0)
        for u in utilities_in_order(net):
            table = net.utility(u)
            if step is not None:
                rounded = step * np.rint(table / step)
                error += float(np.abs(table - rounded).max())
                table = rounded
            before = values.reshape(-1, *[1] * table.ndim)
            values, place = _distinct(before + table if net.combine == "sum" else before * table)
            n = len(values)
            if n > MOST_VALUES or place.size * n > MOST_CELLS:
                hint = f"steps of {step:g}: give a larger step" if step else "no steps: give step="
                raise TableTooLarge(f"the total of the utilities has {n:,} values or more with {hint}", place.size * n)
            name = f"\0{u}"
            states[name] = [str(i) for i in range(n)]
            parents[name] = ((last,) if last else ()) + tuple(net.parents(u))
            cpts[name] = np.eye(n)[place if last else place[0]]
            last = name
        if not last:
            return _distribution(values, np.ones(1), 0.0)
        posterior = BayesianNetwork(states, parents, cpts).compile("cpu").posterior(last, **self._evidence)
        return _distribution(values, np.asarray(posterior), error)


def _distinct(totals: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The different totals, ascending, and for each total the number of its value; rounding makes no other values."""
    values, place = np.unique(totals.ravel(), return_inverse=True)
    gap = SAME * float(np.abs(values).max(initial=0.0))
    group = np.concatenate([[0], np.cumsum(np.diff(values) > gap)])
    first = np.concatenate([[True], np.diff(group) > 0])
    return values[first], group[place].reshape(totals.shape)


def _distribution(values: NDArray[np.float64], probabilities: NDArray[np.float64], error: float) -> UtilityDistribution:
    kept = probabilities > 0
    return UtilityDistribution(np.asarray(values[kept], np.float64), probabilities[kept].astype(np.float64), error)
