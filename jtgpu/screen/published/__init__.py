"""The algorithms of Zanirati's thesis (Bologna, 2012) as definitions, for comparison: by their names, in plain Python.

`algorithms` has the searches for the n rows of largest weight (A1, A2, A3, A5, A6), `selection` the kernels that select
the k smallest numbers of each row of a matrix. The printed defects are fixed; see `docs/screening.rst`. These functions
say what is computed, and are not fast: use `jtgpu.screen.top_outliers`.
"""

from __future__ import annotations

from .algorithms import (
    Published,
    chunked_nested_loop,
    distributed_solving_set,
    lazy_distributed_solving_set,
    nested_loop,
    solving_set,
)
from .selection import SELECTIONS, select

__all__ = [
    "SELECTIONS",
    "Published",
    "chunked_nested_loop",
    "distributed_solving_set",
    "lazy_distributed_solving_set",
    "nested_loop",
    "select",
    "solving_set",
]
