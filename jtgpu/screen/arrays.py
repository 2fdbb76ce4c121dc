"""Arrays that compiled loops take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.array_types import Matrix


class PointTree(NamedTuple):
    """A tree of boxes. Node 1 is the root, the children of node i are 2i and 2i+1; all leaves have the same depth."""

    points: NDArray[np.float64]  # (N*a,): for each leaf of m rows an (a, m) block
    boxes: Matrix[np.float64]  # (2L, 2a): lowest and highest coordinates of each node
    n_rows: int
    is_squared: bool  # Euclidean: keys are squared distances; otherwise sums of absolute differences


class Coded(NamedTuple):
    """The rows that distances are measured to, by columns."""

    planes: Matrix[np.uint64]  # (P, N): the planes of all groups
    observed: Matrix[np.uint64]  # (G, N): bits of the columns that are not missing
    numbers: Matrix[np.float64]  # (A, N): columns of numbers, NaN where missing
    counts: NDArray[np.int64]  # (N,): rows of the table that are equal to each
    first: NDArray[np.int64]  # (G+1,): first plane of each group
    has_holes: bool  # keys are shares of the columns that both rows have; otherwise sums over columns


class CodedRows(NamedTuple):
    """The rows whose distances are computed."""

    planes: Matrix[np.uint64]  # (B, P)
    observed: Matrix[np.uint64]  # (B, G)
    unseen: Matrix[np.uint64]  # (B, G): bits of the columns whose state no reference has
    numbers: Matrix[np.float64]  # (B, A)
    starts: NDArray[np.int64]  # (B,): a reference that is probably near
    divisors: NDArray[np.float64]  # (B,): weights are divided by it


class Sliced(NamedTuple):
    """The rows that distances are measured to: bits of 64 rows in a word, eight columns in a group."""

    planes: NDArray[np.uint64]  # (blocks * P * 16,): of each block of 1,024 rows, 16 words of each plane
    first: NDArray[np.int64]  # (G+1,): first plane of each group; plane 8 p + j of a group is plane p of its column j
    counts: NDArray[np.int64]  # (blocks * 1024,): rows of the table that are equal to each; 0 after the last
    n_rows: int
    n_levels: int  # bits of the number of columns


class SlicedRows(NamedTuple):
    """The rows whose distances are computed."""

    masks: Matrix[np.uint64]  # (B, P): all bits of each plane's bit
    starts: NDArray[np.int64]  # (B,): a reference that is probably near
    divisors: NDArray[np.float64]  # (B,): weights are divided by it
