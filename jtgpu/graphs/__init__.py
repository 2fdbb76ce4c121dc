"""Graphs: which vertices and edges matter, in one network and in many sampled ones.

`betweenness` counts the shortest paths through each vertex or edge, exactly; `betweenness_posterior` ranks the
variables of many directed acyclic graphs, with the uncertainty of their ranks. `compare` says how two graphs or
networks differ. networkx uses the package as its
backend ``"jtgpu"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .centrality import betweenness
    from .comparison import GraphComparison, compare
    from .posterior import BetweennessPosterior, betweenness_posterior

__all__ = ["BetweennessPosterior", "GraphComparison", "betweenness", "betweenness_posterior", "compare"]

__getattr__, __dir__ = public_names(__name__, {
    "centrality": "betweenness", "comparison": "GraphComparison compare",
    "posterior": "BetweennessPosterior betweenness_posterior",
})  # fmt: skip
