"""`SliceNetwork`: the first slice of a dynamic network as a Bayesian network, with a reference to all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .network import BayesianNetwork

if TYPE_CHECKING:
    from .dynamic import DynamicNetwork


class SliceNetwork(BayesianNetwork):
    """The variables of a slice, with the arcs and CPTs of the first one: what a server and its page are about."""

    def __init__(self, net: DynamicNetwork):
        super().__init__(
            {v: net.states(v) for v in net.variables},
            {v: [p for p, lag in net.parents(v) if not lag] for v in net.variables},
            {v: net.cpt(v, 0) for v in net.variables}, name=net.name,
        )  # fmt: skip
        self.dynamic_network = net
