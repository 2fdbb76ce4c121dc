"""Time series: autoregressive models in batches, residuals, and tables of cases for networks over time slices.

`two_slices` makes a table of cases whose columns are variables now and at earlier times, `lag_parents` tells which
earlier times matter, `ar` fits autoregressive models, and `whiten` gives their residuals. They stand on
`autocovariance`, `levinson` (all orders at once) and `solve_toeplitz`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .autoregression import Autoregression, ar, whiten
    from .slices import lag_parents, two_slices
    from .toeplitz import Predictors, levinson, solve_toeplitz
    from .workers import autocovariance

__all__ = [
    "Autoregression", "Predictors", "ar", "autocovariance", "lag_parents", "levinson", "solve_toeplitz",
    "two_slices", "whiten",
]  # fmt: skip

__getattr__, __dir__ = public_names(__name__, {
    "autoregression": "Autoregression ar whiten", "slices": "lag_parents two_slices",
    "toeplitz": "Predictors levinson solve_toeplitz", "workers": "autocovariance",
})  # fmt: skip
