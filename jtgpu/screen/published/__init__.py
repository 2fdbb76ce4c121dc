"""The algorithms of Zanirati's thesis (Bologna, 2012) for comparison, by their names.

`algorithms` has the searches for the n rows of largest weight (A1 to A6), `selection` the kernels that select the k
smallest numbers of each row of a matrix, `gpu` A4 and the selections in CUDA, `table` the published table next to times
of this machine. The printed defects are fixed; see `docs/screening.rst`. `jtgpu.screen.top_outliers` finds outliers.
"""

from __future__ import annotations

from .algorithms import (
    Published,
    chunked_nested_loop,
    distributed_solving_set,
    gpu_solving_set,
    lazy_distributed_solving_set,
    nested_loop,
    solving_set,
)
from .gpu.solving_set import MODES
from .selection import SELECTIONS, select

__all__ = [
    "MODES",
    "SELECTIONS",
    "Published",
    "chunked_nested_loop",
    "distributed_solving_set",
    "gpu_solving_set",
    "lazy_distributed_solving_set",
    "nested_loop",
    "select",
    "solving_set",
]
