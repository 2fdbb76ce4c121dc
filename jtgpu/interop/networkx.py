"""networkx graphs: a directed graph whose nodes hold states and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from ..model.network import BayesianNetwork

if TYPE_CHECKING:
    import networkx

__all__ = ["from_networkx"]


def from_networkx(graph: networkx.DiGraph[Any]) -> BayesianNetwork:
    """A Bayesian network from a directed graph; the opposite is `BayesianNetwork.to_networkx`.

    Every node needs ``states`` and ``cpt`` (axes: parents in order, the node last); ``parents`` names the order of
    the parents and may be left out where there is at most one.

    Raises
    ------
    NetworkError
        For what is no directed graph, a node without what it needs, and whatever `BayesianNetwork` refuses.
    """
    if not (hasattr(graph, "predecessors") and hasattr(graph, "nodes")):
        raise NetworkError(f"a directed graph of networkx is needed, not a {type(graph).__name__}")
    return BayesianNetwork.from_networkx(graph)
