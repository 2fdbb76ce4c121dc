"""Inference: a compiled model, evidence, queries and their results.

`compiled` puts a model, a plan and a backend together; `evidence` converts names to numbers; `queries` run cases on the
backend; `results` defines their return values; `tree` and `session` define the classes of the public API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .queries.effects import Bounds, CausationBounds, Effect
    from .queries.findings import Importance
    from .queries.gradients import EvidenceFunction
    from .queries.information import Observation
    from .results.case_states import CaseExplanations, CaseStates, Explanation, Imputed, Samples
    from .results.contributions import CaseContributions, Contributions
    from .results.rankings import ExpectedCounts, JointCost, MapCost, QuestionCost, Ranking, Scores
    from .results.sensitivities import Bar, Parameter, Parameters, Sensitivity
    from .results.tables import DevicePosteriors
    from .sets import Joints

__all__ = [
    "Bar", "Bounds", "CaseContributions", "CaseExplanations", "CaseStates", "CausationBounds", "Contributions",
    "DevicePosteriors", "Effect", "EvidenceFunction", "ExpectedCounts", "Explanation", "Importance", "Imputed",
    "JointCost", "Joints", "MapCost", "Observation", "Parameter", "Parameters", "QuestionCost",
    "Ranking", "Samples", "Scores", "Sensitivity",
]  # fmt: skip

__getattr__, __dir__ = public_names(__name__, {
    "queries.effects": "Bounds CausationBounds Effect",
    "queries.findings": "Importance", "queries.gradients": "EvidenceFunction", "queries.information": "Observation",
    "results.case_states": "CaseExplanations CaseStates Explanation Imputed Samples",
    "results.contributions": "CaseContributions Contributions",
    "results.rankings": "ExpectedCounts JointCost MapCost QuestionCost Ranking Scores",
    "results.sensitivities": "Bar Parameter Parameters Sensitivity", "results.tables": "DevicePosteriors",
    "sets": "Joints",
})  # fmt: skip
