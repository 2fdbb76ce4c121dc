"""`Arcs`: the arcs of a graph by tail, which every engine reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..util.loops import loops

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .inputs import EdgeList

_arrange = loops("jtgpu.graphs.loops.arrange")


@dataclass(frozen=True)
class Arcs:
    """Compressed rows: no loops, the shortest one of parallel arcs; an undirected edge is two arcs."""

    n: int  # vertices
    first: NDArray[np.int64]  # (n+1,) ndarray of int64: First arc of each vertex
    head: NDArray[np.int32]  # (A,) ndarray of int32
    length: NDArray[np.float64]  # (A,) ndarray of float64: (0,) if all are 1
    # (E, 2) ndarray of int64: The arcs of each edge of the input, there and back; -1 where there is none
    of_edge: NDArray[np.int64]
    directed: bool


def arcs_of(edges: EdgeList) -> Arcs:
    """Sort the edges of a graph by tail, in linear time."""
    first, head, length, arc = _arrange.arcs_by_tail(edges.n, edges.tail, edges.head, edges.length, edges.directed)
    return Arcs(edges.n, first, head, length, arc, edges.directed)
