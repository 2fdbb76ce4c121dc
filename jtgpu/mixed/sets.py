"""The discrete part of a mixed network, with likelihoods and joint answers of sets of variables."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..model.network import BayesianNetwork
from ..model.state_values import StateNumber

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.options import OnProblem

    Floats = NDArray[np.float64]


class SetAnswers(NamedTuple):
    """Answers of B cases."""

    posteriors: Mapping[str, Floats]  # (B, card) of the targets
    joints: tuple[Floats, ...]  # (B, K) of the sets
    log_evidence: Floats  # (B,)
    impossible: NDArray[np.bool_]  # (B,)


class SetEngine:
    """A compiled discrete network for some sets of variables."""

    def __init__(self, net: BayesianNetwork, sets: tuple[tuple[int, ...], ...], backend: str, options: Mapping[str, Any]):
        self.sets, self._net = sets, net
        self._names = [net.variables[s[0]] if len(s) == 1 else "(" + ",".join(net.variables[v] for v in s) + ")" for s in sets]
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
        self.tree = BayesianNetwork(states, parents, cpts).compile(backend, **options) if len(net) else None

    def reload(self, net: BayesianNetwork) -> None:
        """Replace the CPTs."""
        self._net = net
        if self.tree is not None:
            self.tree.reload(BayesianNetwork(*self._layout, {**{v: net.cpt(v) for v in net}, **self._aux}))

    def run_counts(
        self, states: NDArray[np.int32], weights: tuple[Floats, ...], rows: Floats
    ) -> tuple[SetAnswers, dict[str, Floats]]:
        """Joints of the sets, and expected counts of every family, the rows weighted."""
        answers = self.run(states, {}, weights, {}, [])
        if self.tree is None:
            return answers, {}
        counts = self.tree.expected_counts(
            self.states(states), likelihood=self.weights({}, weights) or None, weights=rows, on_impossible="flag",
            variables=[*self._net],
        )  # fmt: skip
        return answers, {v: np.asarray(counts[v]) for v in self._net}

    def weights(self, given: Mapping[int, Floats], sets: tuple[Floats, ...]) -> dict[str, Floats]:
        """Likelihoods of variables and sets by name."""
        result = {self._net.variables[v]: w for v, w in given.items()}
        for name, w in zip(self._names, sets, strict=True):
            result[name] = result[name] * w if name in result else w
        return result

    def sample(self, n: int, states: NDArray[np.int32], weights: Mapping[str, Floats], do: Any, rng: Any) -> NDArray[np.int32]:
        """(n, V) states drawn given the evidence of one case."""
        if self.tree is None:
            return np.zeros((n, 0), np.int32)
        findings = {v: StateNumber(s) for v, s in enumerate(states[0].tolist()) if s >= 0}
        given = {v: w[0] for v, w in weights.items()}
        samples = self.tree.sample(n, findings, seed=rng, likelihood=given or None, do=do or None)
        return samples.states[:, : states.shape[1]]

    def impute(self, states: NDArray[np.int32], weights: Mapping[str, Floats], rng: Any, on_impossible: OnProblem) -> NDArray[np.int32]:
        """(B, V) states, those that are missing drawn given the others."""
        if self.tree is None:
            return states
        filled = self.tree.impute(self.states(states), likelihood=weights or None, seed=rng, on_impossible=on_impossible)
        return filled.states[:, : states.shape[1]]

    def states(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """States of the compiled network's variables."""
        more = len(self.tree.model) - states.shape[1]
        return np.hstack([states, np.full((len(states), more), -1, np.int32)])

    def run(
        self,
        states: NDArray[np.int32],  # (B, V)
        given: Mapping[int, Floats],  # variable -> (B, card)
        weights: tuple[Floats, ...],  # (B, K) of each set
        do: Mapping[str, Any],
        targets: list[str],
    ) -> SetAnswers:
        """Posteriors of the targets and joints of the sets."""
        if self.tree is None:  # numbers alone
            n = len(states)
            return SetAnswers({}, (), np.zeros(n), np.zeros(n, np.bool_))
        result = self.tree.posteriors_batch(
            self.states(states), likelihood=self.weights(given, weights), do=do or None,
            targets=[*dict.fromkeys([*targets, *self._names])], on_impossible="flag",
        )  # fmt: skip
        joints = tuple(result[name] for name in self._names)
        return SetAnswers({v: result[v] for v in targets}, joints, result.log_evidence, result.impossible)
