"""`Utility`: the total utility under a policy: mean, parts, distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, TableTooLarge
from ..model.network import BayesianNetwork
from ..util.arguments import number
from .results import UtilityDistribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..inference.tree import JunctionTree
    from ..model.decisions import DecisionNetwork

MOST_TOTALS = 1 << 22  # configurations of the parents of utilities that are added up
MOST_STEPS = 4096  # values of a running total


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

    def _joint(self, variables: tuple[str, ...]) -> NDArray[np.float64]:
        if not variables:
            return np.ones(())
        return np.asarray(self._tree.joint(list(variables), **self._evidence))

    def distribution(self, step: float | None = None) -> UtilityDistribution:
        """Compute the distribution of the total.

        Parameters
        ----------
        step : float, optional
            Round each utility to a multiple of this, for networks with many utilities; the error is stated.

        Raises
        ------
        TableTooLarge
            If the utilities depend on too many configurations together and no `step` is given.
        """
        net = self._net
        scope = tuple(dict.fromkeys(p for u in net.utilities for p in net.parents(u)))
        size = math.prod(len(net.states(v)) for v in scope)
        if step is not None:
            return self._rounded(number("step", step))
        if size > MOST_TOTALS:
            raise TableTooLarge(
                f"the utilities depend on {size:,} configurations of {len(scope)} variables, more than "
                f"{MOST_TOTALS:,}; give step=, to which each utility is rounded", size,
            )  # fmt: skip
        joint = self._joint(scope)
        total = np.zeros(joint.shape) if net.combine == "sum" else np.ones(joint.shape)
        for u in net.utilities:
            own = net.parents(u)
            table = np.transpose(net.utility(u), [own.index(v) for v in scope if v in own])
            table = table.reshape([len(net.states(v)) if v in own else 1 for v in scope])
            total = total + table if net.combine == "sum" else total * table
        values, place = np.unique(total.ravel(), return_inverse=True)
        probabilities = np.bincount(place.ravel(), joint.ravel(), len(values))
        kept = probabilities > 0
        return UtilityDistribution(np.asarray(values[kept], np.float64), probabilities[kept].astype(np.float64))

    def _rounded(self, step: float) -> UtilityDistribution:
        """The distribution of utilities that are rounded: a running total as a chain of variables."""
        net = self._net
        if net.combine == "product":
            raise ArgumentError("step= is for utilities that are added")
        if not step > 0:
            raise ArgumentError(f"step must be > 0, not {step!r}")
        chance = self._tree.model
        assert isinstance(chance, BayesianNetwork)
        states: dict[str, Any] = {v: chance.states(v) for v in chance}
        parents: dict[str, Any] = {v: chance.parents(v) for v in chance}
        cpts: dict[str, Any] = {v: chance.cpt(v) for v in chance}
        last, low, n, error = "", 0, 1, 0.0
        for u in net.utilities:
            units = np.rint(net.utility(u) / step).astype(np.int64)
            error += float(np.abs(net.utility(u) - step * units).max())
            least, most = int(units.min()), int(units.max())
            n_next = n + most - least
            if n_next > MOST_STEPS:
                raise TableTooLarge(
                    f"the total has {n_next:,} values at steps of {step:g}, more than {MOST_STEPS:,}; give a larger "
                    "step", n_next,
                )
            sums = np.arange(n).reshape(n, *[1] * units.ndim) + (units - least)
            table = np.eye(n_next)[sums]
            name = f"\0{u}"
            states[name] = [str(i) for i in range(n_next)]
            parents[name], cpts[name] = ((last,) if last else ()) + tuple(net.parents(u)), table if last else table[0]
            last, low, n = name, low + least, n_next
        if not last:
            return UtilityDistribution(np.zeros(1), np.ones(1))
        posterior = BayesianNetwork(states, parents, cpts).compile("cpu").posterior(last, **self._evidence)
        probabilities = np.asarray(posterior)
        kept = probabilities > 0
        values = (np.arange(n) + low) * step
        return UtilityDistribution(np.asarray(values[kept], np.float64), probabilities[kept], error)
