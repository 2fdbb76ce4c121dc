"""Graphs of every kind as a list of edges: networks, networkx, SciPy's sparse matrices, arrays and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import cells_of, is_frame, open_data, read_column
from ..errors import ArgumentError, DataError, shown
from ..model.directed import DirectedModel
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..util.arguments import described, flag, whole_number
from ..util.arrays import Floats, Ints
from ..util.loops import loops

# `Arcs`: the arcs of a graph by tail, which every engine reads.

_arrange = loops("jtgpu.graphs.arrange_loops")


@dataclass(frozen=True)
class Arcs:
    """Compressed rows: no loops, the shortest one of parallel arcs; an undirected edge is two arcs."""

    n: int  # vertices
    first: Ints  # (n+1,) ndarray of int64: First arc of each vertex
    head: NDArray[np.int32]  # (A,) ndarray of int32
    length: Floats  # (A,) ndarray of float64: (0,) if all are 1
    # (E, 2) ndarray of int64: The arcs of each edge of the input, there and back; -1 where there is none
    of_edge: Ints
    directed: bool


def arcs_of(edges: EdgeList) -> Arcs:
    """Sort the edges of a graph by tail, in linear time."""
    first, head, length, arc = _arrange.arcs_by_tail(edges.n, edges.tail, edges.head, edges.length, edges.directed)
    return Arcs(edges.n, first, head, length, arc, edges.directed)


@dataclass
class EdgeList:
    """A graph."""

    n: int  # vertices
    # tail, head: (E,) ndarray of int32
    tail: NDArray[np.int32]
    head: NDArray[np.int32]
    length: Floats  # (E,) ndarray of float64: (0,) if all are 1
    directed: bool
    names: Sequence[Any] | None  # of the vertices; None for arrays

    def edge_name(self, e: int) -> str:
        """An edge for messages."""
        ends = [int(self.tail[e]), int(self.head[e])]
        if self.names is None:
            return f"edge {e}, from {ends[0]} to {ends[1]}"
        return f"the edge from {shown(self.names[ends[0]])} to {shown(self.names[ends[1]])}"


def read_graph(graph: object, directed: bool | None = None, weight: object = None) -> EdgeList:
    """Read a graph; see `jtgpu.graphs.betweenness` for the kinds."""
    # raises ArgumentError: If it is none of them, or `weight` does not fit.
    # raises DataError: If an edge names a vertex that does not exist, or a weight is not a positive number.
    if isinstance(graph, MixedNetwork):
        graph = graph.graph
    if isinstance(graph, DiscreteModel):
        edges = _read_model(graph, weight)
    elif hasattr(graph, "is_directed") and hasattr(graph, "edges"):
        edges = _read_networkx(graph, weight)
    elif hasattr(graph, "tocoo"):
        edges = _read_sparse(graph, weight)
    elif isinstance(graph, tuple) and len(graph) == 2 and not isinstance(graph[0], (str, tuple, list)):
        edges = _read_arrays(*graph, weight)
    elif is_frame(graph) or hasattr(graph, "keys"):
        edges = _read_table(graph, weight)
    else:
        raise ArgumentError(
            "graph must be a network, a networkx graph, a sparse matrix, a pair (number of vertices, edges) or a table "
            f"of edges, not {described(graph)}"
        )
    if directed is not None:
        edges.directed = flag("directed", directed)
    bad = np.flatnonzero(~((edges.length > 0) & (edges.length < np.inf)))
    if len(bad):
        value = edges.length[bad[0]]
        raise DataError(
            f"{edges.edge_name(int(bad[0]))} has the weight {value:g}; weights are lengths, positive and finite"
            + ("; remove edges that do not exist, and merge vertices at distance 0" if value == 0 else "")
        )
    return edges


def _read_model(net: DiscreteModel, weight: object) -> EdgeList:
    if weight is not None:
        raise ArgumentError("the arcs of a network have no weights")
    index = {v: i for i, v in enumerate(net.variables)}
    if isinstance(net, DirectedModel):
        pairs = [(index[p], index[c]) for p, c in net.arcs]
    else:
        scopes = [[int(v) for v in f.scope] for f in net.factors]
        pairs = sorted({(min(a, b), max(a, b)) for scope in scopes for a in scope for b in scope if a != b})
    return _edge_list(len(index), pairs, None, isinstance(net, DirectedModel), list(net.variables))


def _edge_list(
    n: int, pairs: object, length: Floats | None, directed: bool, names: Sequence[object] | None
) -> EdgeList:
    ends = np.asarray(pairs, np.int32).reshape(-1, 2)
    tail, head = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
    return EdgeList(n, tail, head, np.empty(0) if length is None else length, directed, names)


def _read_networkx(graph: Any, weight: Any) -> EdgeList:
    if weight is not None and not isinstance(weight, str):
        raise ArgumentError(f"weight must be the name of an edge attribute, not {described(weight)}")
    names = list(graph)
    index: Callable[[Any], int] = {v: i for i, v in enumerate(names)}.__getitem__
    if weight is None:
        pairs = [(index(u), index(v)) for u, v, *_ in graph.edges()]
        return _edge_list(len(names), pairs, None, bool(graph.is_directed()), names)
    rows = [(index(u), index(v), w) for u, v, w in graph.edges(data=weight, default=1)]
    edges = _edge_list(len(names), [row[:2] for row in rows], None, bool(graph.is_directed()), names)
    edges.length = _weights([row[2] for row in rows], edges)
    return edges


def _weights(values: Any, edges: EdgeList) -> Floats:
    """Weights of edges as float64."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":  # also Python's integers, fractions
            array = np.array([float(w) for w in values])
        if array.dtype.kind not in "iuf" or array.shape != edges.tail.shape:
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        for e, w in enumerate(values if isinstance(values, list) else ()):
            if not np.issubdtype(np.asarray(w).dtype, np.number):
                raise DataError(f"{edges.edge_name(e)} has the weight {shown(w)}, which is not a number") from None
        raise DataError(f"weights must be a number for each of {len(edges.tail):,} edges") from None
    return np.ascontiguousarray(array, np.float64)


def _read_sparse(matrix: Any, weight: object) -> EdgeList:
    coo = matrix.tocoo()
    if coo.ndim != 2 or coo.shape[0] != coo.shape[1]:
        raise DataError(f"an adjacency matrix is square, not of shape {coo.shape}")
    edges = _checked(coo.shape[0], np.stack([coo.row, coo.col], axis=1), True)
    if weight is not None and flag("weight", weight):
        edges.length = _weights(coo.data, edges)
    return edges


def _checked(n: int, ends: NDArray[Any], directed: bool) -> EdgeList:
    """Edges as an array of vertex numbers."""
    if ends.ndim != 2 or ends.shape[1] != 2 or (ends.dtype.kind not in "iu" and ends.size):
        raise ArgumentError(f"edges must be an array of integers of shape (E, 2), not {ends.dtype} of {ends.shape}")
    bad = np.flatnonzero(((ends < 0) | (ends >= n)).any(axis=1))
    if len(bad):
        raise DataError(f"edge {bad[0]} is {tuple(ends[bad[0]].tolist())}, but the vertices are 0 to {n - 1}")
    return _edge_list(n, ends.astype(np.int32), None, directed, None)


def _read_arrays(n: object, edges: object, weight: object) -> EdgeList:
    n = whole_number("the number of vertices", n, 0, 2**31 - 1)
    try:
        ends = np.asarray(edges)
    except ValueError:
        ends = np.empty((1, 1))
    edge_list = _checked(n, ends if ends.size else np.empty((0, 2), np.int64), False)
    if weight is not None:
        edge_list.length = _weights(weight, edge_list)
    return edge_list


def _read_table(frame: object, weight: object) -> EdgeList:
    """A table with a row for each edge: its first two columns, or those called from and to."""
    table = open_data(frame)
    columns = ["from", "to"] if {"from", "to"} <= {*table.names} else [*table.names][:2]
    if len(columns) < 2:
        raise DataError(f"a table of edges has columns 'from' and 'to', not {shown(list(table.names))}")
    codes: list[Any] = []
    names: dict[Any, int] = {}
    for name in columns:
        column = read_column(name, table)
        code = column.index
        if (code < 0).any():
            raise DataError(f"column {name!r}: the cell of {table.row_name(int(np.argmin(code)))} is missing")
        number = np.array([names.setdefault(value, len(names)) for value in column.cells], np.int32)
        codes.append(number[code] if len(number) else np.empty(0, np.int32))
    edges = _edge_list(len(names), np.stack(codes, axis=1), None, False, list(names))
    if weight is not None:
        if weight not in table.names:
            raise DataError(f"there is no column {shown(weight)} of weights, only {shown(list(table.names))}")
        edges.length = _weights(cells_of(table.column(weight)), edges)
    return edges
