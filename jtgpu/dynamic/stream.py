"""`Stream`: one sequence whose slices come one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import Evidence
from ..errors import ArgumentError, ImpossibleEvidence
from ..inference.evidence import plain_states, read_findings
from ..inference.results.marginals import Posterior
from ..inference.tables.arrow import number_array
from ..util.arguments import check_keywords

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..inference.evidence import Findings
    from ..util.arrays import Floats
    from .step import Step


@check_keywords()
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
        self._alpha: Floats = step.first()
        self.log_evidence = 0.0
        ptr: list[int] = step.backend(0).cell_ptr.tolist()
        self._own = ptr[step.after_number], ptr[step.after_number + 1]
        # variables with children in later slices have marginals of the message to the next slice
        inner = {v: axis for axis, v in enumerate(step.after) if v < step.n}
        self._targets = (*(v for v in range(step.n) if v not in inner), step.after_number)
        states = np.unravel_index(np.arange(step.cells), step.shape)
        cards = {v: len(step.net.states(v)) for v in inner}
        self._sums = np.concatenate([np.arange(cards[v])[:, None] == states[axis] for v, axis in inner.items()])
        self._sums = self._sums.astype(np.float64)  # (cells of those variables, K)
        self._alone = len(step.after) == 1 and step.after[0] in inner  # the message is the posterior
        ends = np.cumsum([0, *cards.values()]).tolist()
        places = dict(zip(inner, pairwise(ends), strict=True))
        self._read: list[tuple[str, tuple[str, ...], bool, int, int]] = []  # variable, states, whether inner, cells
        for v, name in enumerate(step.net.variables):
            first, last = places.get(v, (ptr[v], ptr[v + 1]))
            self._read.append((name, step.net.states(v), v in places, first, last))

    def step(self, evidence: Findings | None = None, *, likelihood: Findings | None = None) -> Mapping[str, Posterior]:
        """Take the evidence of the next slice, and return the posteriors of all its variables.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero; the stream stays as it was.
        """
        step = self._step
        state = None
        weights: dict[int, Floats] = {}
        if likelihood is None and type(evidence) is dict:
            state = plain_states(step.net, evidence, step.n_variables)
        if state is None:
            given = read_findings(step.net, evidence, likelihood)
            state, weights = np.full(step.n_variables, -1, np.int32), dict(given.likelihood)
            state[: step.n] = given.state
        number, cells = step.before_number, self._alpha
        if len(step.before) > 1:
            cells = step.cells_of(number, step.before, cells[None])[0]
        weights[number] = weights[number] * cells if number in weights else cells
        try:
            result = step.backend(self._t).run(Evidence(state, weights), self._targets)
        except ImpossibleEvidence:
            raise ImpossibleEvidence(f"slice {self._t}: the evidence up to this slice has probability 0") from None
        answer, (first, last) = result.posterior, self._own
        between = answer[first:last]
        if self._alone:
            self._alpha = between.copy()
        else:
            self._alpha = step.joint_of(step.after_number, step.after, between[None])[0]
            between = self._sums @ self._alpha
        self._t += 1
        self.log_evidence += result.log_evidence
        return {
            v: Posterior(v, names, between[first:last] if inner else answer[first:last])
            for v, names, inner, first, last in self._read
        }

    @property
    def state(self) -> Floats:
        """All that the stream knows: (K + 2,) float64, the slice, `log_evidence`, and P(interface | evidence)."""
        return np.concatenate([[self._t, self.log_evidence], self._alpha])

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
        self._t, self.log_evidence, self._alpha = int(t), float(given[1]), alpha.copy()
