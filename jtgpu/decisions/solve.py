"""Policies of the highest expected utility: one pass where that is exact, else single policy updating."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import ImpossibleEvidence, TableTooLarge
from ..util.system import new_lock
from .branch import BranchAndBound
from .evaluate import TIE, Evaluator, Policies
from .relevance import requisite_information, solution_order

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from ..model.decisions import DecisionNetwork

MOST_CYCLES = 100  # of single policy updating; every cycle improves the policy


class Solution(NamedTuple):
    """A policy over requisite information."""

    policies: Policies
    expected_utility: float
    method: str  # "exact" or "local optimum"
    ties: dict[int, list[tuple[int, ...]]]  # decision -> configurations of its information where options tie
    unreached: dict[int, list[tuple[int, ...]]]  # and those of probability 0


class Solver:
    """Solves a decision network; keeps its compiled form."""

    def __init__(self, net: DecisionNetwork, options: Mapping[str, Any]):
        self.net = net
        self.information = requisite_information(net)
        self.order, self.is_soluble = solution_order(net, self.information)
        self._ties: dict[int, NDArray[np.bool_]] = {}
        self.evaluator = Evaluator(net, self.information, options)
        self._lock = new_lock()  # of the evaluator's cases, whose policies change while they are solved

    def solve(
        self, state: NDArray[np.int32] | None = None, *, method: str = "auto", restarts: int = 10, seed: int = 0
    ) -> Solution:
        """The best policy given evidence, which holds whatever is decided."""
        with self._lock:
            return self._solve(state, method, restarts, seed)

    def _solve(self, state: NDArray[np.int32] | None, method: str, restarts: int, seed: int) -> Solution:
        evaluator, self._ties = self.evaluator, {}
        decided = [d for d in self.order if state is None or state[d] < 0]
        if self.is_soluble or len(decided) <= 1:
            policies = evaluator.uniform()
            for d in decided:
                policies[d] = self._best(d, policies, state, None)
            return self._finished(policies, state, "exact")
        best, value = self._updated(evaluator.uniform(), state, decided)
        if method == "branch":
            return self._finished(BranchAndBound(evaluator, state, best, value).run(), state, "exact")
        rng = np.random.default_rng(seed)
        for _ in range(restarts):
            policies, other = self._updated(evaluator.random(rng), state, decided)
            if other > value + TIE * (abs(value) + evaluator.goal.scale):
                best, value = policies, other
        return self._finished(best, state, "local optimum")

    def _best(
        self, d: int, policies: Policies, state: NDArray[np.int32] | None, now: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """The best policy of a decision given the others; notes where options tie."""
        # now: its policy, kept where it ties with the best
        evaluator = self.evaluator
        joint = evaluator.joints({**policies, d: evaluator.free(d)}, state, bool(evaluator.goal.nodes), [d])[0][d]
        near = joint >= joint.max(axis=-1, keepdims=True) * (1.0 - TIE)
        self._ties[d] = near.sum(axis=-1) > 1
        choice = near.argmax(axis=-1)
        if now is not None:
            kept = now.argmax(axis=-1)
            stays = np.take_along_axis(near, kept[..., None], axis=-1)[..., 0] & (now.max(axis=-1) == 1.0)
            choice = np.where(stays, kept, choice)
            if (now.max(axis=-1) == 1.0).all() and np.array_equal(choice, kept):
                return now
        return np.asarray(np.eye(joint.shape[-1])[choice])

    def _updated(
        self, policies: Policies, state: NDArray[np.int32] | None, decided: list[int]
    ) -> tuple[Policies, float]:
        """Single policy updating: each decision in turn, until none changes."""
        policies = dict(policies)
        since_change = 0
        for d in decided * MOST_CYCLES:
            table = self._best(d, policies, state, policies[d])
            since_change = since_change + 1 if table is policies[d] else 0
            policies[d] = table
            if since_change >= len(decided):
                break
        return policies, self.evaluator.expected(policies, state)

    def _finished(self, policies: Policies, state: NDArray[np.int32] | None, method: str) -> Solution:
        """The solution, with ties and rows that are never reached."""
        evaluator = self.evaluator
        decided = [d for d in self.order if state is None or state[d] < 0]
        for d in self.order:
            if state is not None and state[d] >= 0:  # fixed
                shape = evaluator.shape(d)
                policies = {**policies, d: np.broadcast_to(np.eye(shape[-1])[state[d]], shape).copy()}
        ties: dict[int, list[tuple[int, ...]]] = {}
        unreached: dict[int, list[tuple[int, ...]]] = {}
        joints, log_p = evaluator.joints(evaluator.uniform(), state, False, decided)  # every option may be chosen
        if log_p == -math.inf:
            raise ImpossibleEvidence("the evidence has probability 0, whatever is decided")
        expected = evaluator.expected(policies, state)
        for d in decided:
            never = joints[d].sum(axis=-1) <= 0.0
            if d in self._ties:
                ties[d] = [tuple(row) for row in np.argwhere(self._ties[d] & ~never).tolist()]
            if never.any():
                unreached[d] = [tuple(row) for row in np.argwhere(never).tolist()]
                table = policies[d].copy()
                table[never] = 1.0 / table.shape[-1]
                policies = {**policies, d: table}
        return Solution(policies, expected, method, ties, unreached)

def check_network(net: DecisionNetwork, most: float | None) -> None:
    """Raise `TableTooLarge` for a policy of too many entries; warn if there is nothing to gain."""
    if not net.utilities:
        warnings.warn("the network has no utilities: every option is worth 0", stacklevel=4)
    for d in net.decisions:
        entries = math.prod(len(net.states(v)) for v in (*net.parents(d), d))
        if most is not None and entries > most:
            known = net.parents(d)
            more = f" and {len(known) - 20} more" if len(known) > 20 else ""
            raise TableTooLarge(
                f"the policy of {d!r} would have {entries:,} entries, more than the limit of {most:,} (max_table), "
                f"over {', '.join(map(repr, known[:20]))}{more}; net.requisite({d!r}) names the parents that it needs",
                entries,
            )
