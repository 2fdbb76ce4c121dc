"""Groups of rows of a table of cases that observe the same variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...util.loops import loops

if TYPE_CHECKING:
    from numpy.typing import NDArray

_loops = loops("jtgpu.backends.cpu.loops.patterns")


def rows_by_pattern(
    states: NDArray[np.int32], ignored: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows pattern after pattern, those of each in ascending order, the patterns in the order in which they come."""
    # states: (n, V) int32: -1 for what is not observed
    # ignored: (V,) bool: Variables that make no difference
    # returns rows: (n,) int64
    # returns ptr: (patterns + 1,) int64: Where the rows of each pattern begin
    rows, ptr = _loops.grouped(states, ignored)
    return rows, ptr
