"""Compiled networks of every kind as the server sees them: kind, names, and the junction tree that one stands on."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..decisions.tree import DecisionTree
from ..dynamic.numbers import MixedDynamicTree
from ..dynamic.tree import DynamicTree
from ..inference.tree import JunctionTree
from ..mixed.tree import MixedTree
from ..model.decisions import DecisionNetwork
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.markov import MarkovNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork

AnyTree = JunctionTree | DecisionTree | MixedTree | DynamicTree | MixedDynamicTree
OVER_TIME = DynamicTree, MixedDynamicTree
AnyNetwork = DiscreteModel | MixedNetwork | MixedDynamicNetwork
# kinds of networks, as `network_kind` names them
OF_DECISIONS = ("decision",)
OF_STATES = ("bayesian", "markov", *OF_DECISIONS)
OF_CASES = (*OF_STATES, "mixed")
OF_SEQUENCES = ("dynamic", "mixed dynamic")
_KINDS: tuple[tuple[type, str], ...] = (
    (MarkovNetwork, "markov"), (DecisionNetwork, "decision"), (DynamicNetwork, "dynamic"), (MixedNetwork, "mixed"),
    (MixedDynamicNetwork, "mixed dynamic"),
)  # fmt: skip


def has_plan(net: AnyNetwork) -> bool:
    """Whether a network is planned before it is compiled; of others, parts are."""
    return network_kind(net) in ("bayesian", "markov")


def network_of(tree: AnyTree) -> AnyNetwork:
    """The network that was compiled."""
    return tree.model if isinstance(tree, JunctionTree) else tree.network


@cache
def _kind_of(cls: type) -> str:
    return next((kind for of, kind in _KINDS if issubclass(cls, of)), "bayesian")


def network_kind(net: AnyNetwork) -> str:
    """The kind of a network, in a word."""
    cls: Any = type(net)
    return _kind_of(cls)


def numbers_of(net: AnyNetwork) -> tuple[str, ...]:
    """Names of the variables without states."""
    return net.numbers if isinstance(net, (MixedNetwork, MixedDynamicNetwork)) else ()


def states_of(net: AnyNetwork) -> DiscreteModel:
    """The variables that have states, by number and by name."""
    if isinstance(net, MixedNetwork):
        return net.discrete
    if not isinstance(net, MixedDynamicNetwork):
        return net
    made = DiscreteModel({v: net.states(v) for v in net if v not in net.numbers})  # without those that join others
    made.state_codes = net.discrete.state_codes
    return made


def core_of(tree: AnyTree) -> JunctionTree | None:
    """The junction tree that a tree stands on: with decisions under the best policy, over time that of a slice."""
    # returns None where no variable has states.
    if isinstance(tree, DecisionTree):
        return tree.under()
    if isinstance(tree, MixedTree):
        return tree.engine(()).tree
    if isinstance(tree, MixedDynamicTree):
        tree = tree.discrete
    core: Any = tree.step.tree(0) if isinstance(tree, DynamicTree) else tree
    return core  # type: ignore[no-any-return]


def where(tree: AnyTree) -> dict[str, str]:
    """The backend of a tree and its numbers."""
    core = core_of(tree)
    return {
        "backend": "cpu" if core is None else core.backend, "device": "" if core is None else core.device,
        "dtype": "float64" if core is None else core.dtype,
    }  # fmt: skip
