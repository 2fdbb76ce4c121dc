"""`DiscretePart`: the variables with states of a mixed network as a Bayesian network, with a reference to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UnknownVariable
from .network import BayesianNetwork

if TYPE_CHECKING:
    from .mixed import MixedNetwork

NO_STATES = "no variable has states"


class DiscretePart(BayesianNetwork):
    """The variables with states, with their CPTs: what a server and its page are about, next to the numbers."""

    def __init__(self, net: MixedNetwork):
        own = net.discrete
        if not len(own):  # plans need a variable
            own = BayesianNetwork({NO_STATES: [NO_STATES]}, {}, {NO_STATES: [1.0]})
        super().__init__(
            {v: own.states(v) for v in own}, {v: own.parents(v) for v in own}, {v: own.cpt(v) for v in own},
            name=net.name, attributes=own.attributes, row_report=own.row_report,
        )  # fmt: skip
        self.mixed_network, self.state_codes = net, own.state_codes
        self.has_states = len(net.discrete) > 0

    def index(self, variable: str | int) -> int:
        """The number of a variable; see `DiscreteModel.index`."""
        # raises UnknownVariable: If there is none, also of a number.
        if isinstance(variable, str) and variable not in self._index and variable in self.mixed_network.numbers:
            raise UnknownVariable(f"{variable!r} is a number, and this question is about variables with states")
        return super().index(variable)
