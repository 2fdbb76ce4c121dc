"""Screening: outlier rows of a table, before a network is learned from it.

`top_outliers` finds the rows that are farthest from their neighbours, exactly and with a certificate, in tables of
states, of numbers and of both, with missing cells. `surprise` ranks rows by their improbability under a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .estimator import KNNWeight
    from .outliers import Outliers, top_outliers, weights
    from .reference import surprise

__all__ = ["KNNWeight", "Outliers", "surprise", "top_outliers", "weights"]

__getattr__, __dir__ = public_names(__name__, {
    "estimator": "KNNWeight", "outliers": "Outliers top_outliers weights", "reference": "surprise",
})  # fmt: skip
