"""Learning from data: parameters and structure of networks, and a Bayesian-network classifier.

``jtgpu.learn.fit`` estimates the CPTs of a structure. ``jtgpu.learn.structure`` finds the graph of the highest score,
``jtgpu.learn.posterior`` computes how probable arcs, paths and parent sets are. ``jtgpu.learn.score_table`` scores
all families. ``jtgpu.learn.discretise`` finds intervals for numeric columns. ``jtgpu.learn.validate`` measures how well
a model predicts a variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from ..options.learning import EM, Chains, Constraints, Keys, Search
    from ..util.cells import MissingReport
    from .classifier import JunctionTreeClassifier
    from .dags.posterior.arcs import Arc, ArcTable, ParentSets
    from .dags.posterior.averaging import AveragedNetworks, AveragedPosteriors
    from .dags.posterior.effects import EffectDraws
    from .dags.posterior.posterior import posterior
    from .dags.posterior.result import StructurePosterior
    from .dags.posterior.saved import load
    from .dags.scores.rules import ScoreRule
    from .dags.scores.score_table import ScoreTable, score_table
    from .dags.structure import Structure, structure
    from .discretisation import Discretiser, discretise
    from .parameters.checks import NumberCheck, PredictiveCheck, check
    from .parameters.fit import fit
    from .parameters.noisy import noisy
    from .parameters.online import Online
    from .parameters.result import CredibleIntervals, Fit
    from .structure_learner import StructureLearner
    from .validation import validate
    from .validation_result import NumberValidation, Validation

__all__ = [
    "EM", "Arc", "ArcTable", "AveragedNetworks", "AveragedPosteriors", "Chains", "Constraints", "CredibleIntervals",
    "Discretiser", "EffectDraws", "Fit", "JunctionTreeClassifier", "Keys", "MissingReport", "NumberCheck",
    "NumberValidation", "Online", "ParentSets", "PredictiveCheck", "ScoreRule", "ScoreTable", "Search", "Structure",
    "StructureLearner", "StructurePosterior", "Validation", "check", "discretise", "fit", "load", "noisy",
    "posterior", "score_table", "structure", "validate",
]  # fmt: skip

__getattr__, __dir__ = public_names(__name__, {
    ".options.learning": "Chains Constraints EM Keys Search", ".util.cells": "MissingReport",
    "classifier": "JunctionTreeClassifier", "dags.posterior.arcs": "Arc ArcTable ParentSets",
    "dags.posterior.averaging": "AveragedNetworks AveragedPosteriors", "dags.posterior.effects": "EffectDraws",
    "dags.posterior.posterior": "posterior", "dags.posterior.result": "StructurePosterior",
    "dags.posterior.saved": "load", "dags.scores.rules": "ScoreRule",
    "dags.scores.score_table": "ScoreTable score_table", "dags.structure": "Structure structure",
    "discretisation": "Discretiser discretise", "parameters.checks": "NumberCheck PredictiveCheck check",
    "parameters.fit": "fit", "parameters.noisy": "noisy", "parameters.online": "Online",
    "parameters.result": "CredibleIntervals Fit", "structure_learner": "StructureLearner", "validation": "validate",
    "validation_result": "NumberValidation Validation",
})  # fmt: skip
