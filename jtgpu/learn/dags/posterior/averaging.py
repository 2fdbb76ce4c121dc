"""`AveragedNetworks`: exact inference averaged over the graphs of a posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ImpossibleEvidence, TableTooLarge
from ....inference.results.marginals import Posteriors
from ....model.network import BayesianNetwork
from ....util import elementary
from ....util.system import cores
from ....util.text_table import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....inference.tree import JunctionTree


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

    spread: Mapping[str, NDArray[np.float64]]
    n_graphs: int

    def _title(self) -> str:
        return f"{super()._title()}, averaged over {counted(self.n_graphs, 'graph')}"


class AveragedNetworks:
    """Networks of the graphs of a posterior over structures, with their weights.

    Attributes
    ----------
    networks : list of BayesianNetwork
        One for each distinct graph, the most frequent first; CPTs are posterior means under the BDeu prior.
    weights : (D,) ndarray of float64
        Their shares; they sum to 1.
    entries : list of int
        Entries of the clique tables of each network's junction tree.
    left_out : float
        Share of the graphs that were left out because their clique tables have more than `max_entries` entries.
    """

    def __init__(
        self,
        networks: Sequence[BayesianNetwork],
        weights: NDArray[np.float64],
        *,
        max_entries: int | None = None,
        backend: Any = "auto",
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

    def posteriors(self, evidence: Any = None, **more: Any) -> AveragedPosteriors:
        """Posteriors of all variables: sum over graphs of weight * P(evidence | graph) * P(x | evidence, graph).

        Parameters
        ----------
        evidence, **more
            See `jtgpu.JunctionTree.posteriors`; ``do=`` intervenes in every graph.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability 0 in every graph.
        """
        if not self._trees:
            self._trees = [plan.compile(self._backend) for plan in self._plans]
        with ThreadPoolExecutor(self._threads, "jtgpu-average") as pool:
            found = list(pool.map(lambda tree: _posteriors(tree, evidence, more), self._trees))
        possible = [i for i, p in enumerate(found) if p is not None]
        if not possible:
            raise ImpossibleEvidence("the evidence has probability 0 in every graph")
        parts = [p for p in found if p is not None]
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
        )  # fmt: skip
        averaged.n_graphs = len(parts)
        averaged.spread = {v: spread[first._ptr[i] : first._ptr[i + 1]] for i, v in enumerate(first._model.variables)}
        return averaged


def _posteriors(tree: JunctionTree, evidence: Any, more: Mapping[str, Any]) -> Posteriors | None:
    try:
        return tree.posteriors(evidence, **more)
    except ImpossibleEvidence:
        return None
