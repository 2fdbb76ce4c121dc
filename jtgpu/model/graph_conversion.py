"""Bayesian networks as `networkx.DiGraph`, whose nodes have the attributes ``states``, ``parents`` and ``cpt``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError
from .directed import DirectedModel

if TYPE_CHECKING:
    import networkx
    from numpy.typing import NDArray


def network_graph(model: DirectedModel, cpts: Sequence[NDArray[np.float64]]) -> networkx.DiGraph[str]:
    """The graph of a model with the CPTs of its variables."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph(name=model.name)
    for v, cpt in zip(model.variables, cpts, strict=True):
        graph.add_node(v, states=model.states(v), parents=model.parents(v), cpt=cpt)
    graph.add_edges_from(model.arcs)
    return graph


def graph_parts(graph: networkx.DiGraph[Any]) -> tuple[dict[str, Any], dict[str, list[str]], dict[str, Any]]:
    """States, parents and CPTs of a graph's nodes."""
    # raises NetworkError: If a node lacks an attribute, or its ``parents`` are not its predecessors.
    states: dict[str, Any] = {}
    parents: dict[str, list[str]] = {}
    cpts: dict[str, Any] = {}
    for node, data in graph.nodes(data=True):
        name = str(node)
        if name in states:
            raise NetworkError(f"two nodes of the graph have the name {name!r}")
        for needed in ("states", "cpt"):
            if needed not in data:
                raise NetworkError(f"node {name!r} of the graph has no attribute {needed!r}")
        before = [str(p) for p in graph.predecessors(node)]
        given = [str(p) for p in data.get("parents", before)]
        if sorted(given) != sorted(before):
            raise NetworkError(
                f"node {name!r}: its attribute 'parents' is {given}, but the graph's arcs come from {before}"
            )
        if len(before) > 1 and "parents" not in data:
            raise NetworkError(
                f"node {name!r} has several parents, so it needs an attribute 'parents' that orders them"
            )
        states[name], parents[name], cpts[name] = data["states"], given, data["cpt"]
    return states, parents, cpts
