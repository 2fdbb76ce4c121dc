"""`betweenness_posterior`: the ranks of variables over many sampled directed acyclic graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, DataError, shown
from ..inference.results.result import Columns, Result
from ..options.compute import Compute
from ..util.arguments import check_keywords, described, flag, number, several
from ..util.arrays import Floats, Ints
from ..util.options import EngineName
from .centrality import centralities, scale
from .engine import Target
from .inputs import EdgeList, arcs_of, read_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

EQUAL = 1e-12  # values, as shares of all pairs, that differ by less share their ranks
CELLS = 1 << 22  # comparisons at a time


@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class BetweennessPosterior(Result):
    """Betweenness of variables and their ranks over a sample of graphs.

    Variables of a graph that are equal share their ranks: each has each of them with equal probability. The data frame
    has a row for each variable, the best mean rank first: ``variable``, ``mean``, the quantiles (``q5`` ...),
    ``p_first``, ``mean_rank``, ``rank_low`` and ``rank_high``, the ends of `rank_interval`.

    Attributes
    ----------
    variables : tuple of str
    values : (S, n) ndarray of float64
        Betweenness of each variable in each graph, as a share of all pairs.
    levels : tuple of float
    quantiles : (n, Q) ndarray of float64
        Of the betweenness, at `levels`.
    rank_probabilities : (n, n) ndarray of float64
        Probability that variable i has rank j+1. Rank 1 is the largest betweenness.
    """

    variables: tuple[str, ...]
    values: Floats
    levels: tuple[float, ...]
    quantiles: Floats
    rank_probabilities: Floats

    @property
    def mean(self) -> Floats:
        """Mean betweenness of each variable, (n,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def mean_rank(self) -> Floats:
        """Mean rank of each variable, (n,)."""
        return np.asarray(self.rank_probabilities @ np.arange(1.0, len(self.variables) + 1))

    def rank_interval(self, level: float = 0.9) -> Ints:
        """(n, 2) lowest and highest rank of each variable with at least this probability; equal tails are left out."""
        if not 0 < number("level", level) < 1:
            raise ArgumentError(f"level must be between 0 and 1, not {level}")
        below = np.cumsum(self.rank_probabilities, axis=1)
        tail = (1 - level) / 2
        low, high = (below <= tail - 1e-9).sum(axis=1), (below < 1 - tail - 1e-9).sum(axis=1)
        return np.stack([low, high], axis=1) + 1

    def _columns(self) -> dict[str, object]:
        return self.columns()

    def columns(self) -> dict[str, Any]:
        """The columns of `to_frame`, as lists and arrays."""
        order = np.argsort(self.mean_rank, kind="stable")
        ranks = self.rank_interval()[order]
        return {
            "variable": [self.variables[i] for i in order],
            "mean": self.mean[order],
            **{f"q{100 * q:g}": self.quantiles[order, i] for i, q in enumerate(self.levels)},
            "p_first": self.rank_probabilities[order, 0],
            "mean_rank": self.mean_rank[order],
            "rank_low": ranks[:, 0],
            "rank_high": ranks[:, 1],
        }

    def _title(self) -> str:
        return f"Betweenness of {len(self.variables)} variables in {len(self.values):,} graphs, best mean rank first"

    def _table(self) -> Columns:
        columns = self._columns()
        return Columns([name.replace("_", " ") for name in columns], [*columns.values()])


def betweenness_posterior(
    dags: object,
    variables: Sequence[str] | None = None,
    *,
    directed: bool = False,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    compute: Compute | EngineName = Compute(),
) -> BetweennessPosterior:
    """Rank variables by betweenness over many sampled graphs, with the uncertainty of the ranks.

    Parameters
    ----------
    dags : (S, n, n) array, (S, n) array of uint64, or iterable of graphs
        Graphs over the same variables: ``dags[s, i, j]`` is true where graph s has the arc i -> j; or the parents of
        each variable as a set of bits; or networks or networkx graphs. Arrays are much faster.
    variables : sequence of str, optional
        Names. Default: those of the first graph; ``x0``, ``x1`` ... for arrays.
    directed : bool
        Whether paths follow the arcs. Default: they do not, since graphs with arcs reversed often explain data equally
        well.
    quantiles : sequence of float
        Levels, between 0 and 1.
    compute
        See `betweenness`.

    Returns
    -------
    BetweennessPosterior

    Raises
    ------
    DataError
        If there is no graph, graphs differ in their variables, or one has a cycle of arcs.

    Examples
    --------
    >>> from jtgpu import graphs
    >>> found = graphs.betweenness_posterior([[[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 1, 1], [0, 0, 0], [0, 0, 0]]])
    >>> found.rank_probabilities[:, 0].tolist()
    [0.5, 0.5, 0.0]
    """
    compute = Compute.of(compute, "backend threads devices cluster progress", "betweenness_posterior")
    target = Target.checked(compute.backend, compute.threads, compute.devices, compute.cluster, compute.progress)
    listed = several(quantiles)
    if not listed:
        raise ArgumentError(f"quantiles must be levels between 0 and 1, such as (0.5,), not {described(quantiles)}")
    levels = tuple(number("a level of quantiles", q) for q in listed)
    if any(not 0 <= q <= 1 for q in levels):
        raise ArgumentError(f"quantiles must be between 0 and 1, not {levels}")
    n_graphs, names, edges = _read(dags, flag("directed", directed))
    n = len(names)
    if variables is not None:
        given = several(variables)
        if given is None or len(given) != n or len(set(given)) < n:
            raise ArgumentError(f"variables must be {n} different names, not {shown(variables)}")
        names = [str(v) for v in given]
    arcs = arcs_of(edges)
    counts = centralities(arcs, None, normalized=False, endpoints=False, edges=False, target=target)
    counts *= 1 if directed else 2  # ordered pairs
    values = counts.reshape(n_graphs, n) * scale(n, None, normalized=True, directed=directed, endpoints=False)[0]
    return BetweennessPosterior(
        tuple(names), values, levels, np.quantile(values, levels, axis=0).T, _rank_probabilities(values)
    )


def _reject_cycles(edges: EdgeList, n_graphs: int, names: Sequence[object]) -> None:
    """Raise for the first graph that has a cycle of arcs, with the cycle.

    Vertices without arcs from others are removed, of all graphs at once, until none is left.
    """
    tail, head = edges.tail, edges.head
    before = -1
    while len(tail) != before:
        before = len(tail)
        has_parent = np.zeros(edges.n, np.bool_)
        has_parent[head] = True
        kept = has_parent[tail]
        tail, head = tail[kept], head[kept]
    if not len(tail):
        return
    n = edges.n // n_graphs
    graph = int(tail.min()) // n
    parent = {int(h): int(t) for t, h in zip(tail, head, strict=True) if t // n == graph}
    path = [next(iter(parent))]
    while path[-1] not in path[:-1]:
        path.append(parent[path[-1]])
    cycle = [names[v % n] for v in path[path.index(path[-1]) :][::-1]]
    raise DataError(
        f"graph {graph} has a cycle, {' -> '.join(map(str, cycle))}; dags must be acyclic "
        "(for one graph with cycles use jtgpu.graphs.betweenness)"
    )


def _rank_probabilities(values: Floats) -> Floats:
    """Probability of each rank, (n, n)."""
    n_graphs, n = values.shape
    change = np.zeros((n, n + 1))
    step = max(CELLS // (n * n), 1)
    for first in range(0, n_graphs, step):
        v = values[first : first + step]
        apart = v[:, None, :] - v[:, :, None]  # of the others
        larger = (apart > EQUAL).sum(axis=2)
        equal = (np.abs(apart) <= EQUAL).sum(axis=2)
        for i in range(n):
            share = 1.0 / equal[:, i]
            change[i] += np.bincount(larger[:, i], share, n + 1)
            change[i] -= np.bincount(larger[:, i] + equal[:, i], share, n + 1)
    probabilities: Floats = np.maximum(np.cumsum(change[:, :n], axis=1), 0.0) / n_graphs
    return probabilities


def _read(dags: object, directed: bool) -> tuple[int, list[str], EdgeList]:
    """All graphs as one, whose components they are: graph s has the vertices s n to s n + n - 1."""
    if hasattr(dags, "is_directed") or hasattr(dags, "arcs") or isinstance(dags, (str, bytes)):
        raise ArgumentError(f"dags must be several graphs, not {described(dags)}")
    if not isinstance(dags, np.ndarray):
        listed = several(dags)
        if listed and (hasattr(listed[0], "is_directed") or hasattr(listed[0], "arcs")):
            return _read_objects(listed, directed)
        try:
            dags = np.asarray(listed)
        except ValueError:
            raise DataError("the graphs must have the same number of variables") from None
    if dags.ndim == 3 and dags.shape[1] == dags.shape[2] and dags.dtype.kind in "bui":
        graph, tail, head = np.nonzero(dags)
    elif dags.ndim == 2 and dags.dtype == np.uint64 and dags.shape[1] <= 64:
        octets = np.ascontiguousarray(dags.astype("<u8")).view(np.uint8).reshape(*dags.shape, 8)
        graph, head, tail = np.nonzero(np.unpackbits(octets, axis=2, bitorder="little"))
        if len(tail) and tail.max() >= dags.shape[1]:
            raise DataError(f"a set of parents has the variable {tail.max()}, but there are {dags.shape[1]}")
    else:
        raise ArgumentError(
            "dags must be an array of shape (S, n, n), sets of parents of shape (S, n) and type uint64, or graphs, not "
            f"an array of {dags.dtype} of shape {dags.shape}"
        )
    n_graphs, n = dags.shape[:2]
    names, joined = [f"x{i}" for i in range(n)], _joined(n_graphs, n, graph, (tail, head), directed)
    _reject_cycles(joined, n_graphs, names)
    return n_graphs, names, joined


def _joined(
    n_graphs: int, n: int, graph: NDArray[Any], ends: tuple[NDArray[Any], NDArray[Any]], directed: bool
) -> EdgeList:
    if not n_graphs or not n:
        raise DataError("there is no graph to rank variables in" if n else "the graphs have no variables")
    if n_graphs * n >= 2**31:
        raise DataError(f"{n_graphs:,} graphs of {n:,} variables are too many at once; pass them in parts")
    tail, head = ((graph * n + side).astype(np.int32) for side in ends)
    return EdgeList(n_graphs * n, tail, head, np.empty(0), directed, None)


def _read_objects(graphs: Sequence[object], directed: bool) -> tuple[int, list[str], EdgeList]:
    read = [read_graph(graph) for graph in graphs]
    names = list(read[0].names or ())
    index = {name: i for i, name in enumerate(names)}
    tails, heads = [], []
    for s, edges in enumerate(read):
        own = list(edges.names or ())
        if len(own) != len(names) or any(name not in index for name in own):
            raise DataError(f"graph {s} has other variables than graph 0: {shown(own)}, not {shown(names)}")
        number = np.array([index[name] for name in own], np.int64)
        tails.append(number[edges.tail])
        heads.append(number[edges.head])
    bounds = np.cumsum([0, *(len(t) for t in tails)])
    graph = np.empty(bounds[-1], np.int64)
    for s, (a, b) in enumerate(pairwise(bounds)):
        graph[a:b] = s
    ends = np.concatenate(tails), np.concatenate(heads)
    joined = _joined(len(read), len(names), graph, ends, directed)
    if all(edges.directed for edges in read):
        _reject_cycles(joined, len(read), names)
    return len(read), [str(v) for v in names], joined
