"""Graphs: which vertices and edges matter, in one network and in many sampled ones.

`betweenness` counts the shortest paths through each vertex or edge, exactly; `betweenness_posterior` ranks the
variables of many directed acyclic graphs, with the uncertainty of their ranks. networkx uses the package as its
backend ``"jtgpu"``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import published
    from .centrality import betweenness
    from .posterior import BetweennessPosterior, betweenness_posterior

__all__ = ["BetweennessPosterior", "betweenness", "betweenness_posterior", "published"]

# imported on first use
_LAZY = {
    "betweenness": "centrality",
    "BetweennessPosterior": "posterior",
    "betweenness_posterior": "posterior",
}


def __getattr__(name: str) -> Any:
    if name == "published":
        return importlib.import_module(".published", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
