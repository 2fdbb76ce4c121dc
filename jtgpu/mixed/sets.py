"""The discrete part of a mixed network, with likelihoods and joint answers of sets of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..model.state_values import StateNumber

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..inference.tree import JunctionTree
    from ..model.network import BayesianNetwork
    from ..util.options import BackendName, OnProblem
    from .evidence import MixedCases

    Floats = NDArray[np.float64]


Sets = tuple[tuple[int, ...], ...]  # discrete variables, ascending in each set
Names = str | tuple[str, ...]  # a variable, or a set that the plan keeps together


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
        names = [tuple(net.variables[v] for v in s) for s in sets]
        self._keys: list[Names] = [s if len(s) > 1 else s[0] for s in names]
        self._shapes = [tuple(int(net.cardinality[v]) for v in s) for s in sets]
        self._joints = [s for s in names if len(s) > 1]
        self.tree: JunctionTree | None = None
        if len(net):
            together = [*options.get("together", ()), *self._joints]
            self.tree = net.compile(backend, **{**options, "together": together} if together else options)

    def reload(self, net: BayesianNetwork) -> None:
        """Replace the CPTs."""
        self._net = net
        if self.tree is not None:
            self.tree.reload(net)

    def close(self) -> None:
        """Free the backend's memory."""
        if self.tree is not None:
            self.tree.close()

    def run_counts(
        self, cases: MixedCases, weights: Sequence[Floats], rows: Floats
    ) -> tuple[SetAnswers, dict[str, Floats]]:
        """Joints of the sets, and expected counts of every family, the cases weighted by `rows`, (B,)."""
        answers = self.run(cases, weights, [])
        if self.tree is None:
            return answers, {}
        counts = self.tree.expected_counts(
            cases.states, likelihood=self.weights({}, weights) or None, weights=rows, on_impossible="flag"
        )
        return answers, {v: np.asarray(counts[v]) for v in self._net}

    def weights(self, given: Mapping[int, Floats], sets: Sequence[Floats]) -> dict[Names, Floats]:
        """Likelihoods of variables and sets by name."""
        result: dict[Names, Floats] = {self._net.variables[v]: w for v, w in given.items()}
        for key, shape, w in zip(self._keys, self._shapes, sets, strict=True):
            table = w.reshape(len(w), *shape)
            result[key] = result[key] * table if key in result else table
        return result

    def sample(
        self, n: int, states: NDArray[np.int32], weights: Mapping[Names, Floats], do: Any, rng: Any
    ) -> NDArray[np.int32]:
        """(n, V) states drawn given the evidence of one case."""
        if self.tree is None:
            return np.zeros((n, 0), np.int32)
        findings = {v: StateNumber(s) for v, s in enumerate(states[0].tolist()) if s >= 0}
        given: Any = {v: w[0] for v, w in weights.items()}
        return self.tree.sample(n, findings, seed=rng, likelihood=given or None, do=do or None).states

    def impute(
        self, states: NDArray[np.int32], weights: Mapping[Names, Floats], rng: Any, on_impossible: OnProblem
    ) -> NDArray[np.int32]:
        """(B, V) states, those that are missing drawn given the others."""
        if self.tree is None:
            return states
        return self.tree.impute(states, likelihood=weights or None, seed=rng, on_impossible=on_impossible).states

    def run(self, cases: MixedCases, weights: Sequence[Floats], targets: Sequence[str]) -> SetAnswers:
        """Posteriors of the targets and joints of the sets, given (B, K) weights of each set."""
        n = len(cases.states)
        if self.tree is None:  # numbers alone
            return SetAnswers({}, (), np.zeros(n), np.zeros(n, np.bool_))
        singles = [key for key in self._keys if isinstance(key, str)]
        result = self.tree.posteriors_batch(
            cases.states, likelihood=self.weights(cases.likelihood, weights), do=cases.do or None,
            targets=[*dict.fromkeys([*targets, *singles])], joints=self._joints or None, on_impossible="flag",
        )  # fmt: skip
        joints = [result[key] if isinstance(key, str) else result.joint[key].reshape(n, -1) for key in self._keys]
        return SetAnswers(
            {v: result[v] for v in targets}, tuple(joints), result.log_evidence, result.impossible,
        )  # fmt: skip
