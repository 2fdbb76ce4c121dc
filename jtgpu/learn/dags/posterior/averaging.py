"""`AveragedNetworks`: exact inference averaged over the graphs of a posterior."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ImpossibleEvidence, TableTooLarge
from ....inference.results.marginals import Posteriors
from ....model.equivalence import compelled_arcs
from ....model.network import BayesianNetwork
from ....util import elementary
from ....util.arguments import check_keywords
from ....util.arrays import Bools, Floats, Ints
from ....util.system import cores
from ....util.text_table import counted
from ..chains.diagnostics import standard_errors

if TYPE_CHECKING:
    from ....inference.evidence import Findings
    from ....inference.tree import JunctionTree
    from ....util.options import BackendName
    from ..candidate_tables import CandidateTables


def clique_entries(net: BayesianNetwork) -> int:
    """Entries of the clique tables of a network's junction tree: what inference in it costs."""
    return int(net.plan().cost().entries)


class AveragedPosteriors(Posteriors):
    """Posteriors averaged over graphs; a mapping from variable name to `jtgpu.Posterior`.

    Attributes
    ----------
    log_evidence : float
        ln of the average of P(evidence).
    spread : dict of str to ndarray
        For each variable, the standard deviation of its posterior between the graphs, by state.
    n_graphs : int
        Number of distinct graphs.
    """

    spread: Mapping[str, Floats]
    n_graphs: int

    def _title(self) -> str:
        return f"{super()._title()}, averaged over {counted(self.n_graphs, 'graph')}"


@check_keywords()
class AveragedNetworks:
    """Networks of the graphs of a posterior over structures, with their weights.

    Attributes
    ----------
    networks : list of BayesianNetwork
        One for each distinct graph, the most frequent first; CPTs are posterior means under the BDeu prior.
    weights : (D,)
        Their shares; they sum to 1.
    entries : list of int
        Entries of the clique tables of each network's junction tree.
    left_out : float
        Share of the graphs that were left out because their clique tables have more than `max_entries` entries.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> post = jtgpu.learn.posterior({v: data[v] for v in ("smoke", "bronc", "lung", "dysp")})
    >>> average = post.average(backend="cpu")
    >>> round(average.posteriors({"smoke": "yes"})["bronc"]["yes"], 2)
    0.63
    """

    def __init__(
        self,
        networks: Sequence[BayesianNetwork],
        weights: Floats,
        *,
        max_entries: int | None = None,
        backend: BackendName = "auto",
        threads: int | None = None,
    ):
        plans = [net.plan() for net in networks]
        entries = [int(plan.cost().entries) for plan in plans]
        chosen = [i for i, size in enumerate(entries) if max_entries is None or size <= max_entries]
        if not chosen:
            raise TableTooLarge(
                f"the smallest junction tree of the {len(networks):,} graphs has {min(entries):,} entries, more than "
                f"max_entries={max_entries:,}",
                min(entries),
                8 * min(entries),
                8 * (max_entries or 0),
            )
        self.networks = [networks[i] for i in chosen]
        self.entries = [entries[i] for i in chosen]
        total = float(weights.sum())
        self.weights = weights[chosen] / weights[chosen].sum()
        self.left_out = max(1.0 - float(weights[chosen].sum()) / total, 0.0) if len(chosen) < len(entries) else 0.0
        self._plans, self._backend, self._threads = [plans[i] for i in chosen], backend, threads or cores()
        self._trees: list[JunctionTree] = []

    def __len__(self) -> int:
        return len(self.networks)

    def __repr__(self) -> str:
        left_out = f", {self.left_out:.1%} left out" if self.left_out else ""
        return f"<AveragedNetworks: {len(self):,} graphs, up to {max(self.entries):,} clique entries{left_out}>"

    def posteriors(self, evidence: Findings | None = None, **more: Any) -> AveragedPosteriors:
        """Posteriors of all variables: sum over graphs of weight * P(evidence | graph) * P(x | evidence, graph).

        Parameters
        ----------
        evidence, **more
            Those of `jtgpu.JunctionTree.posteriors`; ``do=`` intervenes in every graph.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability 0 in every graph.
        """
        if not self._trees:
            self._trees = [plan.compile(self._backend) for plan in self._plans]
        with ThreadPoolExecutor(self._threads, "jtgpu-average") as pool:
            of_trees = list(pool.map(lambda tree: _posteriors(tree, evidence, more), self._trees))
        possible = [i for i, p in enumerate(of_trees) if p is not None]
        if not possible:
            raise ImpossibleEvidence("the evidence has probability 0 in every graph")
        parts = [p for p in of_trees if p is not None]
        logs = elementary.logs(self.weights[possible]) + [p.log_evidence for p in parts]
        top = float(logs.max())
        shares = elementary.exps(logs - top)
        total = math.fsum(shares)
        shares /= total
        flats = np.array([p._flat for p in parts])
        mean = (shares[:, None] * flats).sum(axis=0)  # @: the processor decides in which order
        spread = np.sqrt((shares[:, None] * (flats - mean) ** 2).sum(axis=0))
        first = parts[0]
        targets = None if first._targets is None else [*first._targets]
        averaged = AveragedPosteriors(
            first._model, mean, first._ptr, top + elementary.log(total), targets, first._known
        )
        averaged.n_graphs = len(parts)
        averaged.spread = {v: spread[first._ptr[i] : first._ptr[i + 1]] for i, v in enumerate(first._model.variables)}
        return averaged


def _posteriors(tree: JunctionTree, evidence: Any, more: Mapping[str, Any]) -> Posteriors | None:
    try:
        return tree.posteriors(evidence, **more)
    except ImpossibleEvidence:
        return None


# Acyclic graphs of probable arcs.

MAX_EXACT = 14  # variables on cycles of probable arcs, whose orders are compared by dynamic programming


def most_probable_first(p: Floats, threshold: float) -> Bools:
    """The arcs above a probability, the most probable first, each unless it closes a cycle."""
    # p: (n, n) [parent, child]
    n = len(p)
    arcs, reach = np.zeros((n, n), np.bool_), np.eye(n, dtype=np.bool_)
    probable = [(u, v) for u, v in np.argwhere(p > threshold).tolist() if u != v]
    for u, v in sorted(probable, key=lambda arc: (-p[arc], arc)):
        if not reach[v, u]:
            arcs[u, v] = True
            reach |= reach[:, [u]] & reach[[v], :]
    return arcs


def fewest_errors(p: Floats) -> Bools:
    """The acyclic graph that maximises the sum of p - 1/2 over its arcs: it has the fewest expected errors.

    Only arcs with p > 1/2 add to the sum, and all of them are in the graph unless they form cycles. The variables of
    each strongly connected component are ordered by dynamic programming; components of more than 14 variables take the
    most probable arcs first.
    """
    gain = np.maximum(p - 0.5, 0.0)
    np.fill_diagonal(gain, 0.0)
    arcs = gain > 0.0
    reach = arcs | np.eye(len(p), dtype=np.bool_)
    for _ in range(len(p).bit_length()):
        reach = reach.astype(np.float32) @ reach.astype(np.float32) > 0.0
    together = reach & reach.T
    for component in {tuple(np.flatnonzero(row).tolist()) for row in together if row.sum() > 1}:
        inside = np.ix_(component, component)
        if len(component) > MAX_EXACT:
            arcs[inside] = most_probable_first(p[inside], 0.5)
        else:
            position = np.argsort(_best_order(gain[inside]))
            arcs[inside] &= position[:, None] < position[None, :]
    return np.asarray(arcs)


def _best_order(gain: Floats) -> list[int]:
    """The order with the largest sum of the gains that point forward."""
    n = len(gain)
    best, last = np.zeros(1 << n), np.zeros(1 << n, np.int64)
    for s in range(1, 1 << n):
        members = [v for v in range(n) if s >> v & 1]
        ends = [best[s ^ 1 << v] + gain[[u for u in members if u != v], v].sum() for v in members]
        best[s], last[s] = max(ends), members[int(np.argmax(ends))]
    order, s = list[int](), (1 << n) - 1
    while s:
        order.append(int(last[s]))
        s ^= 1 << int(last[s])
    return order[::-1]


# Properties of many graphs together: arcs, paths, compelled arcs, with standard errors over chains.

MAX_WORK = 2e10  # multiplications of the transitive closures
MAX_COMPELLED = 4000  # graphs whose equivalence classes are computed
MAX_ENUMERATED = 5  # variables whose graphs are all enumerated, 29,281 of them
DIGITS = 12  # of shares of graphs: 0.9685, not 0.9684999999999999


def arcs_of(graphs: Ints, candidates: Ints) -> Bools:
    """Adjacency matrices [..., parent, child] of graphs."""
    # graphs: (..., n) Parents as bits of the candidates
    # candidates: (n, k) -1 where there are fewer
    n, k = candidates.shape
    arcs = np.zeros((*graphs.shape[:-1], n, n), np.bool_)
    for v in range(n):
        for j in range(k):
            if candidates[v, j] >= 0:
                arcs[..., candidates[v, j], v] = graphs[..., v] >> j & 1 > 0
    return arcs


def evenly(n: int, most: int) -> Ints:
    """At most so many of the numbers 0 to n - 1, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, max(most, 1))).round().astype(np.int64))


def reachable(arcs: Bools) -> Bools:
    """[..., u, v]: whether a path of one arc or more leads from u to v."""
    reach, length = arcs.astype(np.float32), 1
    while length < arcs.shape[-1]:
        reach = np.minimum(reach + reach @ reach, 1.0)
        length *= 2
    return np.asarray(reach > 0.5)


def path_probabilities(graphs: Ints, candidates: Ints) -> tuple[Floats, Floats]:
    """Probability that a path leads from one variable to another, and its standard error, (n, n) each."""
    # graphs: (T, C, n) T graphs of each of C chains
    # candidates: (n, k)
    length, n_chains, n = graphs.shape
    rows = evenly(length, int(MAX_WORK / (n_chains * n**3 * max(n.bit_length(), 1))))
    means = np.zeros((n_chains, n, n))
    for row in rows:
        means += reachable(arcs_of(graphs[row], candidates))
    means /= len(rows)
    return means.mean(axis=0).round(DIGITS), standard_errors(means)


def compelled_probabilities(graphs: Ints, candidates: Ints) -> tuple[Floats, Floats]:
    """Probability that an arc is present, and directed alike in all equivalent graphs; see `path_probabilities`."""
    length, n_chains, n = graphs.shape
    rows = evenly(length, MAX_COMPELLED // n_chains)
    means = np.zeros((n_chains, n, n))
    known: dict[bytes, Bools] = {}
    for row in rows:
        for chain in range(n_chains):
            graph = graphs[row, chain]
            key = graph.tobytes()
            if key not in known:
                known[key] = compelled_arcs(arcs_of(graph, candidates))
            means[chain] += known[key]
    means /= len(rows)
    return means.mean(axis=0).round(DIGITS), standard_errors(means)


# properties of a pair of variables in a graph: functions of (T, C, n) graphs and candidates
PROPERTIES = {"path": path_probabilities, "compelled": compelled_probabilities}


def exact_properties(tables: CandidateTables, by_orders: bool) -> dict[str, Floats]:
    """Exact probabilities of `PROPERTIES`, (n, n) each, by enumeration of all graphs."""
    n = len(tables.candidates)
    parents, weights = _all_graphs(n)
    log_weight = np.zeros(len(parents))
    for v in range(n):
        of_set = np.full(1 << n, -np.inf)
        bits = np.zeros(len(tables.masks), np.int64)
        for j, u in enumerate(tables.candidates[v].tolist()):
            bits |= (tables.masks >> j & 1) << u if u >= 0 else 0
        of_set[bits] = tables.log_weights[v]
        log_weight += of_set[parents[:, v]]
    p = elementary.exps(log_weight - log_weight.max()) * (weights if by_orders else 1)
    p /= p.sum()
    arcs = (parents[:, None, :] >> np.arange(n)[None, :, None] & 1) > 0  # [graph, parent, child]
    return {
        name: np.einsum("g,guv->uv", p, holds).round(DIGITS)
        for name, holds in (("path", reachable(arcs)), ("compelled", _common_arcs(arcs)))
    }


def _all_graphs(n: int) -> tuple[Ints, Ints]:
    """Parents of all acyclic graphs as bits, (G, n), and the number of orders that each allows."""
    rows = np.zeros((1, 0), np.int64)
    for v in range(n):
        sets = np.array([s for s in range(1 << n) if not s >> v & 1], np.int64)
        rows = np.concatenate([np.repeat(rows, len(sets), axis=0), np.tile(sets, len(rows))[:, None]], axis=1)
        if v:  # a pair of opposite arcs is the most frequent cycle: leave it out early
            rows = rows[~((rows[:, :v] >> v & 1) & (rows[:, [v]] >> np.arange(v) & 1)).any(axis=1)]
    orders = np.zeros(len(rows), np.int64)
    for order in itertools.permutations(range(n)):
        allowed, before = np.ones(len(rows), np.bool_), 0
        for v in order:
            allowed &= rows[:, v] & ~before == 0
            before |= 1 << v
        orders += allowed
    return rows[orders > 0], orders[orders > 0]


def _common_arcs(arcs: Bools) -> Bools:
    """The arcs of each graph that all equivalent ones have, given all graphs: same links, same v-structures."""
    n = arcs.shape[-1]
    linked = arcs | arcs.transpose(0, 2, 1)
    key = np.zeros(len(arcs), np.int64)
    for u, w in itertools.combinations(range(n), 2):
        key = key << 1 | linked[:, u, w]
        for v in range(n):
            key = key << 1 | (arcs[:, u, v] & arcs[:, w, v] & ~linked[:, u, w])
    classes = np.unique(key, return_inverse=True)[1].reshape(-1)
    common = np.ones((int(classes.max()) + 1, n, n), np.bool_)
    np.logical_and.at(common, classes, arcs)
    return common[classes]


def distinct(graphs: Ints) -> tuple[Ints, Floats]:
    """Distinct graphs, the most frequent first, and their shares."""
    # graphs: (D, n)
    some, counts = np.unique(graphs, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return some[order], counts[order] / len(graphs)
