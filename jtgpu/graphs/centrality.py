"""Betweenness of vertices and edges."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, DataError
from ..options.compute import Compute
from ..util.arguments import flag, whole_number
from ..util.arrays import Floats
from ..util.options import EngineName
from ..util.system import cores
from .engine import RATE, Target, dependencies
from .inputs import Arcs, arcs_of, read_graph

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE = 24 * 3600.0  # seconds


def betweenness(  # noqa: PLR0913 (public API)
    graph: object,
    *,
    directed: bool | None = None,
    weight: object = None,
    normalized: bool = True,
    endpoints: bool = False,
    k: int | None = None,
    seed: int | None = None,
    edges: bool = False,
    compute: Compute | EngineName = Compute(),
) -> Any:
    """Betweenness: the share of shortest paths that pass through each vertex, or through each edge.

    Sums over all pairs of a source and a target are exact up to rounding, about 1e-14, however many paths there are.
    Results do not depend on the number of threads, bit for bit. They are those of `networkx.betweenness_centrality`
    and `networkx.edge_betweenness_centrality`.

    Parameters
    ----------
    graph : network, networkx graph, sparse matrix, (n, edges) or table
        A Bayesian or Markov network: its arcs, or the pairs of variables that share a factor. A sparse matrix of SciPy:
        its stored entries are arcs from row to column. ``(n, edges)``: a number of vertices and an (E, 2) array of
        integers. A table (data frame, mapping of columns): an edge for each row, in the columns ``from`` and ``to``
        or else the first two. Loops are ignored; parallel edges count once, as the shortest of them.
    directed : bool, optional
        Whether paths follow the direction of edges. Default: as the graph is; True for sparse matrices, False for
        arrays and tables.
    weight : str, array or bool, optional
        Lengths of the edges, positive numbers: the attribute of a networkx graph, the column of a table, an (E,) array
        for ``(n, edges)``; True for the entries of a sparse matrix. Default: all lengths are 1.
    normalized : bool
        Divide by the number of pairs. Otherwise pairs are counted, unordered ones in undirected graphs.
    endpoints : bool
        Count the ends of a path as passed, too.
    k : int, optional
        Estimate from this number of sampled sources.
    seed : int, optional
        Of the sample; the same sources as networkx chooses.
    edges : bool
        Return values of edges instead of vertices.
    compute : Compute or {"auto", "cpu", "gpu", "reference"}
        Where the sources are shared: threads, GPUs, or the workers of a cluster, on their CPUs, or with
        ``backend="gpu"`` a GPU for each. Results are bit-identical for any number of them. ``"auto"`` uses a GPU for
        work of many seconds, if there is one. Graphs with different weights run on the CPU. A function ``progress`` is
        called with the number of sources that are done, the number of all, and a text.

    Returns
    -------
    dict, or ndarray of float64
        For graphs with names a dictionary by vertex, or by pair of vertices; for sparse matrices and ``(n, edges)`` an
        array, with `edges` in the order of the entries or edges. Parallel edges have the same value.

    Raises
    ------
    ArgumentError, DataError
        For arguments of the wrong kind; for edges to vertices that do not exist, and weights that are not positive.
    BackendUnavailable
        If there is no GPU for ``backend="gpu"`` or `devices`.
    TableTooLarge
        If the graph does not fit in memory.

    Examples
    --------
    >>> from jtgpu import graphs
    >>> graphs.betweenness((4, [[0, 1], [1, 2], [2, 3]]), normalized=False).tolist()
    [0.0, 2.0, 2.0, 0.0]
    """
    for name, value in (("normalized", normalized), ("endpoints", endpoints), ("edges", edges)):
        flag(name, value)
    compute = Compute.of(compute, "backend threads devices cluster progress", "betweenness")
    target = Target.checked(compute.backend, compute.threads, compute.devices, compute.cluster, compute.progress)
    if seed is not None:
        whole_number("seed", seed)
    edge_list = read_graph(graph, directed, weight)
    sources = _sample(edge_list.n, k, seed, least=1 if edges or endpoints else 2)
    arcs = arcs_of(edge_list)
    if compute.backend == "auto" and compute.devices is None and compute.cluster is None:
        _check_time(arcs, edge_list.n if sources is None else len(sources), compute.threads)
    values = centralities(arcs, sources, normalized=normalized, endpoints=endpoints, edges=edges, target=target)
    if edge_list.names is None:
        return values
    names = edge_list.names
    if not edges:
        return dict(zip(names, values.tolist(), strict=True))
    ends: Iterable[tuple[int, int]] = zip(edge_list.tail.tolist(), edge_list.head.tolist(), strict=True)
    return {(names[u], names[v]): x for (u, v), x in zip(ends, values.tolist(), strict=True)}


def _sample(n: int, k: int | None, seed: int | None, least: int) -> list[int] | None:
    if k is None:
        return None
    if whole_number("k", k, least) > n:
        raise ArgumentError(f"k is {k:,}, but there are {n:,} vertices to sample")
    return None if k == n else random.Random(seed).sample(range(n), k)


def _check_time(arcs: Arcs, n_sources: int, threads: int | None) -> None:
    seconds = n_sources * len(arcs.head) / (RATE * (threads or cores()))
    if seconds > PATIENCE:
        k = max(int(n_sources * 600 / seconds), 2)
        raise DataError(
            f"{n_sources:,} sources and {len(arcs.head):,} arcs take about {seconds / 86400:,.0f} days; pass k={k:,} "
            "for an estimate from sampled sources, or backend='cpu' to compute it all the same"
        )


def centralities(
    arcs: Arcs,
    sources: list[int] | None,
    *,
    normalized: bool,
    endpoints: bool,
    edges: bool,
    target: Target = Target(),  # noqa: B008 (immutable)
) -> Floats:
    """Betweenness as an array, from sources with these numbers; None: from all."""
    chosen = np.ones(arcs.n)
    if sources is not None:
        chosen[:] = 0.0
        chosen[sources] = 1.0
    raw = dependencies(arcs, chosen, edges=edges, endpoints=endpoints, target=target)
    of_sources, of_others = scale(
        arcs.n, sources, normalized=normalized, directed=arcs.directed, endpoints=endpoints or edges
    )
    if edges:
        return raw.edge * of_others
    factor = of_others if of_sources == of_others else np.where(chosen > 0, of_sources, of_others)
    return raw.node * factor


def scale(
    n: int, sources: list[int] | None, *, normalized: bool, directed: bool, endpoints: bool
) -> tuple[float, float]:
    """Factors of the sums of vertices that are sources, and of the others; networkx's.

    Without `endpoints`, a vertex that is a sampled source is on paths from one source less than the others.
    """
    n_targets = n if endpoints else n - 1
    if n_targets < 2:
        return 1.0, 1.0
    n_sources = n_targets if sources is None else len(sources)

    def factor(count: int) -> float:
        if count == 0:
            return float("nan")
        if normalized:
            return 1.0 / (count * (n_targets - 1))
        return n_targets / (count * (1 if directed else 2))

    if sources is None or endpoints:
        return factor(n_sources), factor(n_sources)
    return factor(n_sources - 1), factor(n_sources)
