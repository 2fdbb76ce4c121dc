"""Arrays that compiled loops get: the graph, the memory of a thread, and its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 16  # sources side by side
FAR = 32767  # depth of a vertex that is not reached
DEEPEST = 32000  # levels are int16
LONGEST = 30  # levels of an arc: a bit for each bucket
MANY = 1e290  # paths: the reciprocals of more lose digits


class ArcLists(NamedTuple):
    """Arcs by tail."""

    first: NDArray[np.int64]  # (n+1,) first arc of each vertex
    head: NDArray[np.int32]  # (A,)
    levels: NDArray[np.uint8]  # (A,) lengths of the arcs in levels, at most 30; (0,) if all are 1
    reach: NDArray[np.float64]  # (n,) targets that a vertex stands for: itself and the trees folded into it


class SweepScratch(NamedTuple):
    """Memory of one thread, for the largest component of n vertices."""

    rows: NDArray[np.float64]  # 36 n + 24: for each vertex 16 path counts, coefficients and depths
    order: NDArray[np.int32]  # 16 n: vertices by level; a vertex is in as many levels as its lanes have depths
    bounds: NDArray[np.int64]  # where each level begins in `order`
    bucket: NDArray[np.int32]  # (longest + 1) n: vertices of the levels to come
    waits: NDArray[np.int32]  # n: a bit for each bucket that has the vertex; zeros
    size: NDArray[np.int64]  # 32: vertices in each bucket


class Sums(NamedTuple):
    """Results of some batches, whose vertices and arcs begin with `vertex` and `arc`."""

    node: NDArray[np.float64]
    edge: NDArray[np.float64]  # (0,): not computed
    vertex: int
    arc: int
    endpoints: bool


class PathTables(NamedTuple):
    """Memory of one thread; the largest component has n vertices."""

    distance: NDArray[np.float64]  # (n,)
    paths: NDArray[np.float64]  # (n,)
    scale: NDArray[np.int32]  # (n,)
    ahead: NDArray[np.float64]  # (n,): (reach + dependency) / paths
    rank: NDArray[np.int32]  # (n,): place in `order`, NEVER or WAITING
    order: NDArray[np.int32]  # (n,): vertices by distance
    heap: NDArray[np.int32]  # (n,)
    place: NDArray[np.int32]  # (n,): of a vertex in the heap
