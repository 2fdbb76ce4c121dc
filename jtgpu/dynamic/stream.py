"""`Stream`: one sequence whose slices come one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import Evidence
from ..errors import ArgumentError, ImpossibleEvidence
from ..inference.evidence import read_findings
from ..inference.results.marginals import Posterior
from ..inference.tables.arrow import number_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..inference.evidence import Findings
    from ..util.arrays import Floats
    from .step import Step


class Stream:
    """A sequence whose slices come one by one; created by ``tree.stream()``.

    Examples
    --------
    >>> import jtgpu
    >>> dyn = jtgpu.DynamicNetwork(
    ...     {"rain": ["no", "yes"], "umbrella": ["no", "yes"]},
    ...     {"rain": [("rain", 1)], "umbrella": ["rain"]},
    ...     {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]},
    ...     start={"rain": [0.5, 0.5]},
    ... )
    >>> live = dyn.compile(backend="reference").stream()
    >>> round(live.step({"umbrella": "yes"})["rain"]["yes"], 3)
    0.818
    >>> round(live.step({"umbrella": "yes"})["rain"]["yes"], 3)
    0.883

    Attributes
    ----------
    log_evidence : float
        Natural logarithm of the probability of all evidence so far.
    """

    def __init__(self, step: Step):
        self._step, self._t = step, 0
        self._alpha: Floats = step.first()[None]
        self.log_evidence = 0.0
        self._unknown = np.full(step.n_variables, -1, np.int32)
        self._ptr: list[int] = step.backend(0).cell_ptr.tolist()
        # variables with children in later slices have marginals of the message to the next slice
        inner = {v: axis for axis, v in enumerate(step.after) if v < step.n}
        self._targets = (*(v for v in range(step.n) if v not in inner), step.after_number)
        states = np.unravel_index(np.arange(step.cells), step.shape)
        cards = {v: len(step.net.states(v)) for v in inner}
        self._sums = np.concatenate([np.arange(cards[v])[:, None] == states[axis] for v, axis in inner.items()])
        self._sums = self._sums.astype(np.float64)  # (cells of those variables, K)
        ends = np.cumsum([0, *cards.values()]).tolist()
        self._inner = dict(zip(inner, pairwise(ends), strict=True))

    def step(self, evidence: Findings | None = None, *, likelihood: Findings | None = None) -> Mapping[str, Posterior]:
        """Take the evidence of the next slice, and return the posteriors of all its variables.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero; the stream stays as it was.
        """
        step = self._step
        given = read_findings(step.net, evidence, likelihood)
        states = self._unknown.copy()
        states[: step.n] = given.state
        weights = dict(given.likelihood)
        number, cells = step.before_number, step.cells_of(step.before_number, step.before, self._alpha)[0]
        weights[number] = weights[number] * cells if number in weights else cells
        tree = step.tree(self._t)
        try:
            result = step.backend_of(tree).run(Evidence(states, weights), self._targets)
        except ImpossibleEvidence:
            raise ImpossibleEvidence(f"slice {self._t}: the evidence up to this slice has probability 0") from None
        ptr, net = self._ptr, step.net
        own = result.posterior[ptr[step.after_number] : ptr[step.after_number + 1]]
        self._alpha = step.joint_of(step.after_number, step.after, own[None])
        self._t += 1
        self.log_evidence += result.log_evidence
        between, posteriors = self._sums @ self._alpha[0], {}
        for i, v in enumerate(net.variables):
            if i in self._inner:
                first, last = self._inner[i]
                posteriors[v] = Posterior(v, net.states(v), between[first:last])
            else:
                posteriors[v] = Posterior(v, net.states(v), result.posterior[ptr[i] : ptr[i + 1]])
        return posteriors

    @property
    def state(self) -> Floats:
        """All that the stream knows: (K + 2,) float64, the slice, `log_evidence`, and P(interface | evidence)."""
        return np.concatenate([[self._t, self.log_evidence], self._alpha[0]])

    def restore(self, state: Any) -> None:
        """Continue from a `state`, of this stream or of another one of the same network."""
        given = number_array(state, "state")
        k = self._step.cells
        if given.shape != (k + 2,):
            raise ArgumentError(
                f"state has shape {given.shape}, expected ({k + 2},): the state of a stream of this network"
            )
        t, alpha = given[0], given[2:]
        if not np.isfinite(given).all() or t < 0 or t != np.floor(t) or (alpha < 0).any() or not alpha.any():
            raise ArgumentError("state is not the state of a stream: expected the slice, ln P, and weights >= 0")
        self._t, self.log_evidence, self._alpha = int(t), float(given[1]), alpha[None].copy()
