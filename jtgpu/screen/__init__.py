"""Screening: rows of a table that do not belong, before a network is learned from it.

`top_outliers` finds the rows that are farthest from their neighbours, exactly and with a certificate, in tables of
states, of numbers and of both, with missing cells. `surprise` ranks rows by their improbability under a network.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import published
    from .estimator import KNNWeight
    from .outliers import Outliers, top_outliers, weights
    from .reference import surprise

__all__ = ["KNNWeight", "Outliers", "published", "surprise", "top_outliers", "weights"]

# imported on first use
_LAZY = {
    "KNNWeight": "estimator",
    "Outliers": "outliers",
    "surprise": "reference",
    "top_outliers": "outliers",
    "weights": "outliers",
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
