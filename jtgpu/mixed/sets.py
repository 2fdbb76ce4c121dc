"""The discrete part of a mixed network, with likelihoods and joint answers of sets of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..model.network import BayesianNetwork
from ..model.state_values import StateNumber

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..inference.tree import JunctionTree
    from ..util.options import BackendName, OnProblem
    from .evidence import MixedCases

    Floats = NDArray[np.float64]


Sets = tuple[tuple[int, ...], ...]  # discrete variables, ascending in each set


def _name(net: BayesianNetwork, variables: tuple[int, ...]) -> str:
    names = [net.variables[v] for v in variables]
    return names[0] if len(names) == 1 else f"({','.join(names)})"


class SetAnswers(NamedTuple):
    """Answers of B cases."""

    posteriors: Mapping[str, Floats]  # (B, card) of the targets
    joints: tuple[Floats, ...]  # (B, K) of the sets
    log_evidence: Floats  # (B,)
    impossible: NDArray[np.bool_]  # (B,)


class SetEngine:
    """A compiled discrete network for some sets of variables."""

    def __init__(self, net: BayesianNetwork, sets: Sets, backend: BackendName, options: Mapping[str, Any]):
        self.sets, self._net = sets, net
        self._names = [_name(net, s) for s in sets]
        states: dict[str, Any] = {v: net.states(v) for v in net}
        parents: dict[str, Any] = {v: net.parents(v) for v in net}
        cpts: dict[str, Any] = {v: net.cpt(v) for v in net}
        for name, s in zip(self._names, sets, strict=True):
            if len(s) > 1:
                cards = tuple(int(net.cardinality[v]) for v in s)
                states[name] = [str(i) for i in range(prod(cards))]
                parents[name] = [net.variables[v] for v in s]
                cpts[name] = np.eye(prod(cards)).reshape(*cards, -1)
        self._aux = {name: cpts[name] for name in states if name not in net}
        self._layout = states, parents
        self.tree: JunctionTree | None = None
        if len(net):
            self.tree = BayesianNetwork(states, parents, cpts).compile(backend, **options)

    def reload(self, net: BayesianNetwork) -> None:
        """Replace the CPTs."""
        self._net = net
        if self.tree is not None:
            self.tree.reload(BayesianNetwork(*self._layout, {**{v: net.cpt(v) for v in net}, **self._aux}))

    def run_counts(
        self, cases: MixedCases, weights: Sequence[Floats], rows: Floats
    ) -> tuple[SetAnswers, dict[str, Floats]]:
        """Joints of the sets, and expected counts of every family, the cases weighted by `rows`, (B,)."""
        answers = self.run(cases, weights, [])
        if self.tree is None:
            return answers, {}
        counts = self.tree.expected_counts(
            self.states(cases.states), likelihood=self.weights({}, weights) or None, weights=rows,
            on_impossible="flag", variables=[*self._net],
        )  # fmt: skip
        return answers, {v: np.asarray(counts[v]) for v in self._net}

    def weights(self, given: Mapping[int, Floats], sets: Sequence[Floats]) -> dict[str, Floats]:
        """Likelihoods of variables and sets by name."""
        result = {self._net.variables[v]: w for v, w in given.items()}
        for name, w in zip(self._names, sets, strict=True):
            result[name] = result[name] * w if name in result else w
        return result

    def sample(
        self, n: int, states: NDArray[np.int32], weights: Mapping[str, Floats], do: Any, rng: Any
    ) -> NDArray[np.int32]:
        """(n, V) states drawn given the evidence of one case."""
        if self.tree is None:
            return np.zeros((n, 0), np.int32)
        findings = {v: StateNumber(s) for v, s in enumerate(states[0].tolist()) if s >= 0}
        given = {v: w[0] for v, w in weights.items()}
        samples = self.tree.sample(n, findings, seed=rng, likelihood=given or None, do=do or None)
        return samples.states[:, : states.shape[1]]

    def impute(
        self, states: NDArray[np.int32], weights: Mapping[str, Floats], rng: Any, on_impossible: OnProblem
    ) -> NDArray[np.int32]:
        """(B, V) states, those that are missing drawn given the others."""
        if self.tree is None:
            return states
        filled = self.tree.impute(
            self.states(states), likelihood=weights or None, seed=rng, on_impossible=on_impossible
        )
        return filled.states[:, : states.shape[1]]

    def states(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """States of the compiled network's variables."""
        more = len(self._layout[0]) - states.shape[1]
        return np.hstack([states, np.full((len(states), more), -1, np.int32)])

    def run(self, cases: MixedCases, weights: Sequence[Floats], targets: Sequence[str]) -> SetAnswers:
        """Posteriors of the targets and joints of the sets, given (B, K) weights of each set."""
        states = cases.states
        if self.tree is None:  # numbers alone
            return SetAnswers({}, (), np.zeros(len(states)), np.zeros(len(states), np.bool_))
        result = self.tree.posteriors_batch(
            self.states(states), likelihood=self.weights(cases.likelihood, weights), do=cases.do or None,
            targets=[*dict.fromkeys([*targets, *self._names])], on_impossible="flag",
        )  # fmt: skip
        return SetAnswers(
            {v: result[v] for v in targets}, tuple(result[name] for name in self._names), result.log_evidence,
            result.impossible,
        )  # fmt: skip
