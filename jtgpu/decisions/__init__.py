"""Decisions: policies, expected utilities and the value of information of a `jtgpu.DecisionNetwork`.

``net.compile()`` makes a `DecisionTree`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .results import Options, Policy, UtilityDistribution, ValueOfInformation
    from .tree import DecisionTree
    from .utility import Utility

__all__ = ["DecisionTree", "Options", "Policy", "Utility", "UtilityDistribution", "ValueOfInformation"]

__getattr__, __dir__ = public_names(__name__, {
    "results": "Options Policy UtilityDistribution ValueOfInformation", "tree": "DecisionTree",
    "utility": "Utility",
})  # fmt: skip
