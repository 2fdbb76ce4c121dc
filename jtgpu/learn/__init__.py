"""Learning from data: parameters and structure of networks, and a Bayesian-network classifier.

``jtgpu.learn.fit`` estimates the CPTs of a structure. ``jtgpu.learn.structure`` finds the graph of the highest score,
``jtgpu.learn.score_table`` scores all families.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classifier import JunctionTreeClassifier
    from .dags.rules import ScoreRule
    from .dags.score_table import ScoreTable, score_table
    from .dags.structure import Structure, structure
    from .parameters.fit import fit
    from .parameters.result import Fit

__all__ = ["Fit", "JunctionTreeClassifier", "ScoreRule", "ScoreTable", "Structure", "fit", "score_table", "structure"]

# imported on first use
_LAZY = {
    "Fit": "parameters.result",
    "JunctionTreeClassifier": "classifier",
    "ScoreRule": "dags.rules",
    "ScoreTable": "dags.score_table",
    "Structure": "dags.structure",
    "fit": "parameters.fit",
    "score_table": "dags.score_table",
    "structure": "dags.structure",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
