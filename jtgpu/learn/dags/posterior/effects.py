"""`EffectDraws`: the effect of a cause over the graphs of a posterior (Bayesian IDA; Pensar et al., AAAI 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....backends.base import Evidence
from ....errors import ArgumentError, UnknownVariable, closest
from ....inference.queries.effects import Effect, effect
from ....inference.queries.single_case import single_posterior
from ....inference.results.interval_numbers import ends_of
from ....inference.results.result import Result
from ....inference.results.tables import Conditional
from ....model.directed import descendants
from ....util.arguments import number, whole_number
from ....util.text_table import counted
from ..graphs import fitted_network
from ..scores.numeric_table import cases_like, with_states
from .averaging import arcs_of, distinct, evenly

if TYPE_CHECKING:
    from ....model.network import BayesianNetwork
    from ....util.arrays import Bools, Floats


class EffectDraws(Result):
    """Differences that a cause makes to an outcome, one for each graph and each draw of its CPTs.

    Attributes
    ----------
    draws, weights : ndarray of float64, shape (D,)
        The differences, and their weights, which sum to 1.
    mean, sd : float
    p_no_effect : float
        Weight of the graphs without a directed path from the cause to the outcome; their difference is 0.
    """

    def __init__(self, draws: Floats, weights: Floats, no_effect: Bools, title: str):
        self.draws, self.weights, self._name = draws, weights, title
        self.mean = float(draws @ weights)
        self.sd = math.sqrt(float(((draws - self.mean) ** 2) @ weights))
        self.p_no_effect = float(weights[no_effect].sum())

    def quantile(self, q: float) -> float:
        """The least difference whose cumulative weight is at least q."""
        share = number("q", q, least=0, most=1)
        order = np.argsort(self.draws, kind="stable")
        total = np.cumsum(self.weights[order])
        return float(self.draws[order][min(int(np.searchsorted(total, share * (1 - 1e-12))), len(order) - 1)])

    def _title(self) -> str:
        return (
            f"{self._name}: difference {self.mean:.4g}, sd {self.sd:.4g}, 95 % {self.quantile(0.025):.4g} to "
            f"{self.quantile(0.975):.4g}, P(no effect) {self.p_no_effect:.4g}; an arc is no proof of a cause"
        )

    def _columns(self) -> dict[str, object]:
        return {"difference": self.draws, "weight": self.weights}


# self: a `StructurePosterior`, whose module imports this one
def effect_over_graphs(  # noqa: PLR0913
    self: Any, outcome: str, of: str, *, data: object = None, n_dags: int = 200, draws: int = 0,
    seed: int = 0, state: str | int | None = None, score: Mapping[str, float] | None = None,
    between: Sequence[str | int] | None = None,
) -> EffectDraws:  # fmt: skip
    """Compute the effect of a cause on an outcome in sampled graphs (Bayesian IDA; Pensar et al., AAAI 2020).

    Parameters
    ----------
    outcome, of : str
        The outcome and its cause.
    data : table, optional
        Cases for the CPTs. Default: those of the posterior.
    n_dags : int
        Number of graphs to sample; fewer if the chains have kept fewer.
    draws : int
        CPTs that are drawn from their Dirichlet posterior for each graph that differs in what matters; 0: its mean.
    seed : int
        Of these draws.
    state, score, between
        See `jtgpu.inference.Effect.difference`.

    Returns
    -------
    EffectDraws
        It holds if there are no hidden common causes: an arc of a learned graph is no proof of a cause.
    """
    for v in (outcome, of):
        if v not in self.names:
            raise UnknownVariable(f"there is no variable {v!r}{closest(str(v), self.names)}")
    if outcome == of:
        raise ArgumentError(f"{of!r} is the cause and the outcome")
    n_draws, wanted = whole_number("draws", draws, 0), whole_number("n_dags", n_dags, 1)
    random = np.random.default_rng(whole_number("seed", seed, 0))
    table = cases_like(with_states(self._record.table, "effect"), data)
    graphs = self._source.graphs(wanted)
    graphs = graphs.reshape(-1, graphs.shape[-1])
    graphs, shares = distinct(graphs[evenly(len(graphs), wanted)])
    x, y = self.names.index(of), self.names.index(outcome)
    parts: dict[bytes, tuple[Bools | None, float]] = {}
    for arcs, share in zip(arcs_of(graphs, self._record.parents), shares.tolist(), strict=True):
        part = _relevant(arcs, x, y)
        key = b"" if part is None else part.tobytes()
        parts[key] = part, parts.get(key, (part, 0.0))[1] + share
    values, weights, none = [], [], []
    known: dict[tuple[int, ...], Any] = {}
    for part, weight in parts.values():
        arcs = np.zeros((len(self.names),) * 2, np.bool_) if part is None else part  # then the difference is 0
        net = fitted_network(table, arcs, self._record.ess, known).prune([of, outcome])
        n_drawn = 0 if part is None else n_draws
        dirichlet = _dirichlet(net, table, self._record.ess) if n_drawn else {}
        drawn = [_drawn(net, dirichlet, random) for _ in range(n_drawn)] or [net]
        effects = (_effect_of_root(one, outcome, of) for one in drawn)
        result = [made.difference(state, score=score, between=between) for made in effects]
        values += result
        weights += [weight / len(result)] * len(result)
        none += [part is None] * len(result)
    total = np.array(weights)
    title = f"Effect of {of} on {outcome} in {counted(len(shares), 'graph')}"
    return EffectDraws(np.array(values), total / total.sum(), np.array(none), title)


def _effect_of_root(net: BayesianNetwork, outcome: str, of: str) -> Effect:
    """The effect of a cause without parents: setting it is observing it. A plan takes longer than the answers."""
    rows, x = [], net.index(of)
    for s in range(int(net.cardinality[x])):
        state = np.full(len(net), -1, np.int32)
        state[x] = s
        row = single_posterior(net, net.index(outcome), Evidence(state))
        if row is None:
            with net.compile("cpu") as tree:
                return effect(tree, outcome, of=of)
        rows.append(row)
    states = net.states(of), net.states(outcome)
    table = Conditional((of,), (outcome,), states, np.array(rows), np.ones(len(rows), np.bool_))
    return Effect(table, {}, ends_of(net, outcome))


def _relevant(arcs: Bools, x: int, y: int) -> Bools | None:
    """The arcs between ancestors of the outcome, without those into the cause; None if the cause is no ancestor."""
    parents = [np.flatnonzero(column).tolist() if v != x else [] for v, column in enumerate(arcs.T)]
    above = descendants(parents, [y])
    if x not in above:
        return None
    part = np.zeros_like(arcs)
    for v in above:
        part[parents[v], v] = True
    return part


def _dirichlet(net: BayesianNetwork, table: Any, ess: float) -> dict[str, Floats]:
    """The parameters of the Dirichlet posterior of each CPT."""
    result = {}
    for v in net.variables:
        family = [table.names.index(u) for u in (*net.parents(v), v)]
        cards = [len(table.states[u]) for u in family]
        rows = table.codes[family].astype(np.int64)
        complete = (rows < np.array(cards)[:, None]).all(axis=0) & (rows >= 0).all(axis=0)
        weights = None if table.weights is None else table.weights[complete]
        at = np.ravel_multi_index(tuple(rows[:, complete]), cards)
        counts = np.bincount(at, weights, math.prod(cards)).reshape(cards)
        result[v] = (counts + max(ess, 1e-3) / counts.size).astype(np.float64)
    return result


def _drawn(net: BayesianNetwork, dirichlet: Mapping[str, Floats], random: np.random.Generator) -> BayesianNetwork:
    """The network with CPTs drawn from their posterior."""
    gammas = {v: random.standard_gamma(parameters) + 1e-300 for v, parameters in dirichlet.items()}
    return net.replace(cpt={v: gamma / gamma.sum(axis=-1, keepdims=True) for v, gamma in gammas.items()})
