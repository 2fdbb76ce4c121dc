"""Learning from data: parameters and structure of networks, and a Bayesian-network classifier.

``jtgpu.learn.fit`` estimates the CPTs of a structure. ``jtgpu.learn.structure`` finds the graph of the highest score,
``jtgpu.learn.posterior`` computes how probable arcs, paths and parent sets are. ``jtgpu.learn.score_table`` scores
all families. ``jtgpu.learn.discretise`` finds intervals for numeric columns. ``jtgpu.learn.published`` is the published
system that samples orders, for comparison.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import published
    from .classifier import JunctionTreeClassifier
    from .dags.posterior.load import load
    from .dags.posterior.posterior import posterior
    from .dags.posterior.result import StructurePosterior
    from .dags.scores.rules import ScoreRule
    from .dags.scores.score_table import ScoreTable, score_table
    from .dags.search.structure import Structure, structure
    from .discretisation import Discretiser, discretise
    from .parameters.fit import fit
    from .parameters.online import Online, PredictiveCheck, check
    from .parameters.result import Fit
    from .structure_learner import StructureLearner

__all__ = [
    "Discretiser", "Fit", "JunctionTreeClassifier", "Online", "PredictiveCheck", "ScoreRule", "ScoreTable", "Structure",
    "StructureLearner", "StructurePosterior", "check", "discretise", "fit", "load", "posterior", "published",
    "score_table", "structure",
]  # fmt: skip

# imported on first use
_LAZY = {
    "Discretiser": "discretisation",
    "Fit": "parameters.result",
    "JunctionTreeClassifier": "classifier",
    "Online": "parameters.online",
    "PredictiveCheck": "parameters.online",
    "ScoreRule": "dags.scores.rules",
    "ScoreTable": "dags.scores.score_table",
    "Structure": "dags.search.structure",
    "StructureLearner": "structure_learner",
    "StructurePosterior": "dags.posterior.result",
    "check": "parameters.online",
    "discretise": "discretisation",
    "fit": "parameters.fit",
    "load": "dags.posterior.load",
    "posterior": "dags.posterior.posterior",
    "score_table": "dags.scores.score_table",
    "structure": "dags.search.structure",
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
