"""Credible intervals of answers: the posterior of a query, by draws of CPTs from their Dirichlet posteriors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...inference.results.result import Result
from ...model.network import BayesianNetwork
from ...util.arguments import check_keywords, number, whole_number
from ...util.arrays import Floats


@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class CredibleIntervals(Result):
    """Intervals that contain the posterior probabilities of a variable's states with some probability.

    The data frame has a row for each state: ``probability``, ``lower`` and ``upper``; the target is its first column.

    Attributes
    ----------
    target : str
    states : tuple of str
    probabilities : (n_states,) ndarray
        P(state | evidence) in the fitted network.
    lower, upper : (n_states,) ndarray
        The ends of the intervals: quantiles (1 - level) / 2 and (1 + level) / 2 of `draws`.
    draws : (D, n_states) ndarray
        P(state | evidence) in networks whose CPTs are drawn from their posteriors.
    level : float

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> fit = jtgpu.learn.fit(jtgpu.load("asia"), data)
    >>> print(fit.credible("lung", {"xray": "yes"}, seed=1))
    P(lung | evidence) with intervals of 95 %, by 1,000 draws
    lung  probability     lower     upper
    yes      0.590072  0.476514  0.693504
    no       0.409928  0.306496  0.523486
    """

    target: str
    states: tuple[str, ...]
    probabilities: Floats
    draws: Floats
    level: float

    @property
    def lower(self) -> Floats:
        return np.asarray(np.quantile(self.draws, (1 - self.level) / 2, axis=0))

    @property
    def upper(self) -> Floats:
        return np.asarray(np.quantile(self.draws, (1 + self.level) / 2, axis=0))

    def _title(self) -> str:
        return f"P({self.target} | evidence) with intervals of {100 * self.level:g} %, by {len(self.draws):,} draws"

    def _columns(self) -> dict[str, Any]:
        numbers = {"probability": self.probabilities, "lower": self.lower, "upper": self.upper}
        return {self.target: [*self.states], **numbers}


def credible_intervals(
    network: BayesianNetwork, weights: Sequence[tuple[tuple[str, ...], Floats]], target: str,
    evidence: Mapping[str, Any] | None, *, level: float, draws: int, seed: int,
) -> CredibleIntervals:  # fmt: skip
    """Intervals of a posterior, from counts with the prior of the CPTs that some variables share."""
    if not 0.0 < number("level", level) < 1.0:
        raise ArgumentError(f"level must be a probability between 0 and 1, not {level!r}")
    n, seed = whole_number("draws", draws, 2), whole_number("seed", seed, 0)
    with network.compile("cpu") as tree:
        name = network.variables[network.index(target)]
        own = np.asarray(tree.posteriors(evidence, targets=[name])[name].probabilities)
        samples = np.empty((n, len(own)))
        for i in range(n):
            rng = np.random.Generator(np.random.Philox(key=[seed, i]))
            cpts: dict[str, Floats] = {}
            for variables, counts in weights:
                drawn = _dirichlet(rng, counts, np.asarray(network.cpt(variables[0])))
                cpts |= dict.fromkeys(variables, drawn)
            tree.reload(network.replace(cpt=cpts))
            samples[i] = tree.posteriors(evidence, targets=[name])[name].probabilities
    return CredibleIntervals(name, network.states(name), own, samples, level)


def _dirichlet(rng: np.random.Generator, weights: Floats, cpt: Floats) -> Floats:
    """A CPT whose rows have Dirichlet distributions with these parameters; rows that have none stay."""
    drawn = rng.standard_gamma(weights)
    sums = drawn.sum(axis=-1, keepdims=True)
    return np.where(sums > 0.0, drawn / np.where(sums > 0.0, sums, 1.0), cpt)
