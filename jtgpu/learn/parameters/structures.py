"""The structure to fit: a network, a mapping, a graph, or an object of another library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import NetworkError, closest
from ...interop import from_pgmpy, from_pyagrum
from ...model.network import BayesianNetwork
from ...util.arguments import several


class GivenStructure(NamedTuple):
    """The parents of every variable, and the network if the structure has numbers."""

    parents: dict[str, tuple[str, ...]]
    network: BayesianNetwork | None


def read_structure(structure: Any) -> GivenStructure:
    """Read a structure."""
    # structure: BayesianNetwork, mapping, networkx.DiGraph, or object of pgmpy or pyAgrum: A mapping gives the parents
    #     of each child; variables that are parents only need no entry. An object with a method ``to_networkx`` or
    #     ``graph`` is converted by it.
    # raises NetworkError: If it is nothing of that kind.
    if isinstance(structure, BayesianNetwork):
        return GivenStructure({v: structure.parents(v) for v in structure}, structure)
    if isinstance(structure, Mapping):
        return GivenStructure(_of_mapping(structure), None)
    if callable(getattr(structure, "idFromName", None)):  # pyAgrum
        network = from_pyagrum(structure)
        return GivenStructure({v: network.parents(v) for v in network}, network)
    if hasattr(structure, "nodes") and callable(getattr(structure, "is_directed", None)):
        return _of_graph(structure)
    if callable(getattr(structure, "to_networkx", None)):
        return _of_graph(structure.to_networkx())
    raise NetworkError(
        "the structure must be a BayesianNetwork, a mapping from child to parents such as {'xray': ['lung']}, a "
        f"networkx.DiGraph, or a network of pgmpy or pyAgrum, not {type(structure).__name__}"
    )


def _of_mapping(given: Mapping[Any, Any]) -> dict[str, tuple[str, ...]]:
    parents: dict[str, tuple[str, ...]] = {}
    for child, above in given.items():
        names = several(above)
        if names is None:
            raise NetworkError(f"variable {child!r}: its parents must be a list of names, not {above!r}")
        parents[str(child)] = tuple(map(str, names))
    for p in [p for above in parents.values() for p in above]:
        hint = closest(p, parents, 1) if p not in parents else ""
        if hint and p.casefold().strip() in (v.casefold().strip() for v in parents):
            raise NetworkError(f"the structure has the variables {p!r} and one of almost the same name{hint}")
        parents.setdefault(p, ())
    return parents


def _of_graph(graph: Any) -> GivenStructure:
    """Of a directed graph of networkx, or of pgmpy's, which derive from it."""
    if not graph.is_directed():
        raise NetworkError("the structure must be a directed graph; this one has no directions")
    nodes = list(graph.nodes)
    cpds = graph.get_cpds() if callable(getattr(graph, "get_cpds", None)) else []
    if nodes and cpds and len(cpds) == len(nodes):
        network = from_pgmpy(graph)
        if not isinstance(network, BayesianNetwork):
            raise NetworkError("the structure must be a Bayesian network, not a Markov network")
        return GivenStructure({v: network.parents(v) for v in network}, network)
    data = dict(graph.nodes(data=True))
    if nodes and all("states" in data[n] and "cpt" in data[n] for n in nodes):
        network = BayesianNetwork.from_networkx(graph)
        return GivenStructure({v: network.parents(v) for v in network}, network)
    return GivenStructure({str(n): tuple(map(str, graph.predecessors(n))) for n in nodes}, None)
