"""The first slice of a dynamic network as a Bayesian network, with a reference to all of it."""

from __future__ import annotations

from .discrete_part import DiscretePart
from .dynamic import DynamicNetwork
from .mixed import MixedNetwork
from .mixed_dynamic import MixedDynamicNetwork
from .network import BayesianNetwork


class SliceNetwork(BayesianNetwork):
    """The variables of a slice, with the arcs and CPTs of the first one: what a server and its page are about."""

    def __init__(self, net: DynamicNetwork):
        super().__init__(
            {v: net.states(v) for v in net.variables},
            {v: [p for p, lag in net.parents(v) if not lag] for v in net.variables},
            {v: net.cpt(v, 0) for v in net.variables}, name=net.name,
        )  # fmt: skip
        self.dynamic_network = self.template = net
        self.state_codes = net.state_codes


class MixedSliceNetwork(DiscretePart):
    """The same of a network with numbers: its variables with states, next to the numbers of the first slice."""

    def __init__(self, net: MixedDynamicNetwork):
        own = net.discrete
        super().__init__(MixedNetwork(
            {v: float if v in net.numbers else own.states(v) for v in net},
            {v: [p for p, lag in net.parents(v) if not lag] for v in net},
            {v: net.gaussian(v, 0) if v in net.numbers else own.cpt(v, 0) for v in net}, name=net.name,
        ))  # fmt: skip
        self.dynamic_network, self.template, self.state_codes = net, own, own.state_codes


OVER_TIME = SliceNetwork, MixedSliceNetwork


def first_slice(net: DynamicNetwork | MixedDynamicNetwork) -> SliceNetwork | MixedSliceNetwork:
    """The first slice of a dynamic network."""
    return SliceNetwork(net) if isinstance(net, DynamicNetwork) else MixedSliceNetwork(net)
