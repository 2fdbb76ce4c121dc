"""Branch and bound over the rows of policies: the optimum where policies depend on each other.

The bound of a partial policy is the optimum of the network in which every decision remembers everything that came
before: rows that are settled are forced, whatever is remembered besides (Khaled, Yuan, Hansen, UAI 2013).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .evaluate import TIE, Evaluator
from .held import PolicyCase
from .place import Policies
from .relevance import recalled_information

if TYPE_CHECKING:
    from numpy.typing import NDArray


Rows = dict[int, "NDArray[np.int64]"]  # decision -> option of each configuration of its information, -1: free


class BranchAndBound:
    """Depth first; decisions in the order in which they are made, rows in order."""

    def __init__(
        self, evaluator: Evaluator, case: PolicyCase, state: NDArray[np.int32] | None, incumbent: Policies,
        value: float,
    ):  # fmt: skip
        net, information = evaluator.net, evaluator.information
        rank = {net.index(v): i for i, v in enumerate(net.topological_order())}
        self._evaluator, self._case = evaluator, case
        self._order = sorted(information, key=rank.__getitem__)
        remembered = recalled_information(net, [net.variables[d] for d in self._order])
        self._recall = Evaluator(net, {
            d: (*information[d], *(v for v in remembered[d] if v not in information[d])) for d in self._order
        }, {})  # fmt: skip
        self._recalled = PolicyCase(self._recall, state)
        self._best, self._value = dict(incumbent), value

    def run(self) -> Policies:
        """The best policy."""
        free = {d: np.full(self._evaluator.shape(d)[:-1], -1, np.int64) for d in self._order}
        self._descend(free)
        self._recalled.close()
        self._recall.close()
        return self._best

    def _descend(self, rows: Rows) -> None:
        bound, relaxed = self._bound(rows)
        if bound <= self._value + TIE * self._recall.goal.scale:
            return
        place = self._first_free(rows, relaxed)
        if place is None:
            policies = {d: np.eye(self._recall.shape(d)[-1])[np.maximum(rows[d], 0)] for d in self._order}
            value = self._case.expected(policies)
            if value > self._value:
                self._best, self._value = policies, value
            return
        d, row = place
        n = self._recall.shape(d)[-1]
        wanted = relaxed[d].reshape(-1, n).sum(axis=0).argsort(kind="stable")[::-1]  # the bound's favourite first
        for option in wanted.tolist():
            settled = dict(rows)
            settled[d] = rows[d].copy()
            settled[d][row] = option
            self._descend(settled)

    def _first_free(self, rows: Rows, relaxed: Policies) -> tuple[int, tuple[int, ...]] | None:
        for d in self._order:
            free = np.argwhere(rows[d] < 0)
            if len(free):
                return d, tuple(free[0].tolist())
        return None

    def _bound(self, rows: Rows) -> tuple[float, Policies]:
        """The optimum where everything is remembered and settled rows are forced."""
        policies = self._recall.uniform()
        self._recalled.load(policies)
        for d in reversed(self._order):
            worth = self._recalled.worth(d)
            choice = worth.argmax(axis=-1)
            own = rows[d].reshape((*rows[d].shape, *[1] * (choice.ndim - rows[d].ndim)))
            choice = np.where(own >= 0, own, choice)
            policies[d] = np.eye(worth.shape[-1])[choice]
            self._recalled.set(d, policies[d])
        return self._recalled.expected(policies), policies
