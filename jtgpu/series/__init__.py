"""Time series: autoregressive models in batches, residuals, and tables of cases for networks over time slices.

`two_slices` makes a table of cases whose columns are variables now and at earlier times, `lag_parents` tells which
earlier times matter, `ar` fits autoregressive models, and `whiten` gives their residuals. They stand on
`autocovariance`, `levinson` (all orders at once) and `solve_toeplitz`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import published
    from .autoregression import Autoregression, ar
    from .slices import lag_parents, two_slices
    from .toeplitz import Predictors, levinson, solve_toeplitz
    from .whitening import whiten
    from .workers import autocovariance

__all__ = [
    "Autoregression",
    "Predictors",
    "ar",
    "autocovariance",
    "lag_parents",
    "levinson",
    "published",
    "solve_toeplitz",
    "two_slices",
    "whiten",
]

# imported on first use
_LAZY = {
    "Autoregression": "autoregression",
    "Predictors": "toeplitz",
    "ar": "autoregression",
    "autocovariance": "workers",
    "lag_parents": "slices",
    "levinson": "toeplitz",
    "solve_toeplitz": "toeplitz",
    "two_slices": "slices",
    "whiten": "whitening",
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
