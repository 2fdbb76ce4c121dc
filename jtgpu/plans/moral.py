"""The interaction graph of a model: variables are neighbours if a factor contains both.

For a Bayesian network this is the moral graph. Variables are numbers; names and states do not occur here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx

__all__ = ["interaction_graph", "neighbour_lists"]


def interaction_graph(n_variables: int, scopes: Iterable[Sequence[int]]) -> networkx.Graph[int]:
    """The graph in which the variables of each scope are pairwise neighbours.

    If the scopes are the families of a Bayesian network, this is its moral graph (Lauritzen and Spiegelhalter,
    Journal of the Royal Statistical Society B 50, 1988, section 4).
    """
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(n_variables))
    for scope in scopes:
        graph.add_edges_from(combinations(sorted(scope), 2))
    return graph


def neighbour_lists(graph: networkx.Graph[int]) -> list[tuple[int, ...]]:
    """Sorted neighbours of every vertex 0..n-1."""
    return [tuple(sorted(graph[v])) for v in range(len(graph))]
