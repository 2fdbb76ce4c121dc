"""networkx: directed graphs whose nodes have states and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from ..model.network import BayesianNetwork

if TYPE_CHECKING:
    import networkx


def from_networkx(graph: networkx.DiGraph[Any]) -> BayesianNetwork:
    """Create a Bayesian network from a directed graph; the inverse of `BayesianNetwork.to_networkx`.

    Every node needs the attributes ``states`` and ``cpt`` (axes: parents in order, then the node). ``parents`` is the
    order of the parents; nodes with at most one parent may omit it.

    Raises
    ------
    NetworkError
        If `graph` is not a directed graph, a node lacks an attribute, or the network is invalid.
    """
    if not (hasattr(graph, "predecessors") and hasattr(graph, "nodes")):
        raise NetworkError(f"expected a networkx.DiGraph, got a {type(graph).__name__}")
    return BayesianNetwork.from_networkx(graph)
