"""The networkx backend ``"jtgpu"``: exact betweenness without another package.

>>> import networkx as nx
>>> nx.betweenness_centrality(nx.path_graph(3), backend="jtgpu")
{0: 0.0, 1: 1.0, 2: 0.0}
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import JtgpuError
from .centrality import centralities
from .inputs import Arcs, EdgeList, arcs_of, read_graph

if TYPE_CHECKING:
    import networkx

# Where the arguments are that decide whether a function can run
POSITIONS = {
    "betweenness_centrality": {"G": 0, "k": 1, "weight": 3, "seed": 5},
    "edge_betweenness_centrality": {"G": 0, "k": 1, "weight": 3, "seed": 4},
}
MIN_WORK = 1_000_000  # vertices times arcs; networkx is fast enough below


class ConvertedGraph:
    """A networkx graph that is converted once, on first use, for each attribute that is used as a weight."""

    __networkx_backend__ = "jtgpu"

    def __init__(self, graph: networkx.Graph[Any]):
        self.original = graph
        self.graph = graph.graph
        self._read: dict[str | None, tuple[EdgeList, Arcs]] = {}

    def is_directed(self) -> bool:
        """Whether edges have a direction."""
        return bool(self.original.is_directed())

    def is_multigraph(self) -> bool:
        """Whether there can be parallel edges."""
        return bool(self.original.is_multigraph())

    def __len__(self) -> int:
        return len(self.original)

    def read(self, weight: str | None) -> tuple[EdgeList, Arcs]:
        """The edges and the arcs, with the lengths in an attribute."""
        if weight not in self._read:
            edges = read_graph(self.original, weight=weight)
            self._read[weight] = edges, arcs_of(edges)
        return self._read[weight]


def _sources(graph: ConvertedGraph, k: int | None, seed: Any) -> list[int] | None:
    """Numbers of the vertices that networkx samples."""
    if k is None:
        return None
    if k == 0:
        raise ZeroDivisionError("k is the number of sources to sample; there is no estimate from none")
    from networkx.utils import create_py_random_state

    return list(create_py_random_state(seed).sample(range(len(graph)), k))


def _reason_against(graph: Any, weight: object, edges: bool) -> str:
    """Why a function cannot run; an empty string if it can."""
    if weight is not None and not isinstance(weight, str):
        what = "a function" if callable(weight) else f"the {type(weight).__name__} {weight!r}"
        return f"weight is {what}; jtgpu supports names of edge attributes that are texts"
    if edges and graph.is_multigraph():
        return "jtgpu does not support the edge betweenness of multigraphs"
    return ""


def _compute(graph: Any, weight: Any, edges: bool) -> tuple[ConvertedGraph, EdgeList, Arcs]:
    if not isinstance(graph, ConvertedGraph):
        graph = ConvertedGraph(graph)
    reason = _reason_against(graph, weight, edges)
    if reason:
        raise NotImplementedError(reason)
    try:
        return (graph, *graph.read(weight))
    except JtgpuError as error:
        raise NotImplementedError(str(error)) from None


def betweenness_centrality(
    G: object, k: int | None = None, normalized: bool = True, weight: object = None, endpoints: bool = False,
    seed: object = None,
) -> dict[Any, float]:  # fmt: skip
    """Betweenness of nodes; see `networkx.betweenness_centrality`."""
    graph, edges, arcs = _compute(G, weight, False)
    sources = None if k == len(graph) else _sources(graph, k, seed)
    values = centralities(arcs, sources, normalized=normalized, endpoints=endpoints, edges=False)
    return dict(zip(edges.names or (), values.tolist(), strict=True))


def edge_betweenness_centrality(
    G: object, k: int | None = None, normalized: bool = True, weight: object = None, seed: object = None
) -> dict[tuple[Any, Any], float]:
    """Betweenness of edges; see `networkx.edge_betweenness_centrality`."""
    graph, _, arcs = _compute(G, weight, True)
    values = centralities(arcs, _sources(graph, k, seed), normalized=normalized, endpoints=False, edges=True)
    return dict(zip(graph.original.edges(), values.tolist(), strict=True))


def convert_from_nx(graph: Any, **_: object) -> ConvertedGraph:
    """A graph of networkx for the functions of this backend."""
    return graph if isinstance(graph, ConvertedGraph) else ConvertedGraph(graph)


def convert_to_nx(result: object, **_: object) -> Any:
    """The graph of networkx that was converted; other results as they are."""
    return result.original if isinstance(result, ConvertedGraph) else result


def can_run(name: str, args: object, kwargs: object) -> bool | str:
    """Whether a function supports its arguments, or the reason why not."""
    if name not in POSITIONS:
        return f"jtgpu has no {name}"
    graph, k, weight, seed = (_argument(p, POSITIONS[name][p], args, kwargs) for p in ("G", "k", "weight", "seed"))
    reason = _reason_against(graph, weight, name.startswith("edge"))
    if not reason and k is not None and (type(k) is not int or not 0 < k <= len(graph)):
        reason = f"k={k!r} is no number of vertices of the graph"
    try:
        if not reason and weight is not None:
            graph.read(weight) if isinstance(graph, ConvertedGraph) else read_graph(graph, weight=weight)
        if not reason and seed is not None:
            importlib.import_module("networkx.utils").create_py_random_state(seed)
    except (JtgpuError, ValueError) as error:
        reason = str(error)
    return reason or True


def should_run(name: str, args: object, kwargs: object) -> bool | str:
    """Whether the graph is so large that the conversion pays, or the reason why not."""
    graph = _argument("G", 0, args, kwargs)
    graph = graph.original if isinstance(graph, ConvertedGraph) else graph
    if len(graph) * graph.number_of_edges() <= MIN_WORK:
        return "networkx is fast enough for this graph"
    return True


def _argument(name: str, position: int, args: Any, kwargs: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)
