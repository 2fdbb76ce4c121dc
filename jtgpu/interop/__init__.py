"""Conversion of models to and from other libraries, which are imported on use.

Other libraries allow any objects as names and states; jtgpu converts them to strings by ``str``. Tables are copied, and
the other library's objects are not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NetworkError
from ..model.network import BayesianNetwork
from .pgmpy import from_pgmpy, to_pgmpy
from .pyagrum import from_pyagrum, to_pyagrum

if TYPE_CHECKING:
    import networkx

# networkx: directed graphs whose nodes have states and tables.

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


__all__ = ["from_networkx", "from_pgmpy", "from_pyagrum", "to_pgmpy", "to_pyagrum"]
