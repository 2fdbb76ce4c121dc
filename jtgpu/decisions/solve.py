"""Policies of the highest expected utility: one pass where that is exact, else single policy updating."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import TableTooLarge
from ..util.arguments import random_generator
from ..util.calls import outside
from ..util.system import new_lock
from .evaluate import TIE, Evaluator
from .held import PolicyCase
from .place import Policies
from .relevance import recalled_information, requisite_information, solution_order

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from ..model.decisions import DecisionNetwork

    Floats = NDArray[np.float64]

MOST_CYCLES = 100  # of single policy updating; every cycle improves the policy
Rows = dict[int, "NDArray[np.int64]"]  # decision -> option of each configuration of its information, -1: free


class Solution(NamedTuple):
    """A policy over requisite information."""

    policies: Policies
    expected_utility: float
    method: str  # "exact" or "local optimum"
    ties: dict[int, list[tuple[int, ...]]]  # decision -> configurations of its information where options tie
    unreached: dict[int, list[tuple[int, ...]]]  # and those of probability 0


class PolicySolver:
    """Solves a decision network; keeps its compiled form."""

    # shared: An evaluator whose plan serves this network, too

    def __init__(self, net: DecisionNetwork, options: Mapping[str, Any], shared: Evaluator | None = None):
        self.net = net
        self.information = requisite_information(net)
        self.order, self.is_soluble = solution_order(net, self.information)
        self._near: dict[int, NDArray[np.bool_]] = {}  # decision -> (options, rows): which are among the best
        self.evaluator = shared.of(net, self.information) if shared else Evaluator(net, self.information, options)
        self._case: PolicyCase | None = None  # of the evidence that was last
        self._key = b""
        self._lock = new_lock()  # of the cases, whose policies change while they are solved

    def solve(
        self, state: NDArray[np.int32] | None = None, *, method: str = "auto", restarts: int = 10, seed: int = 0,
        start: Policies | None = None,
    ) -> Solution:  # fmt: skip
        """The best policy given evidence, which holds whatever is decided; never a worse one than `start`."""
        with self._lock:
            key = b"" if state is None else state.tobytes()
            if self._case is None or self._key != key:
                if self._case is not None:
                    self._case.close()
                self._case, self._key = PolicyCase(self.evaluator, state), key
            return self._solve(self._case, state, method, restarts, seed, start)

    def _solve(
        self, case: PolicyCase, state: NDArray[np.int32] | None, method: str, restarts: int, seed: int,
        start: Policies | None,
    ) -> Solution:  # fmt: skip
        evaluator, self._near = self.evaluator, {}
        decided = [d for d in self.order if state is None or state[d] < 0]
        if self.is_soluble or len(decided) <= 1:
            policies = evaluator.uniform()
            case.load(policies)
            for d in decided:
                policies[d] = self._best(case, d, None)
            return self._finished(case, policies, state, "exact")
        best, value = self._updated(case, evaluator.uniform(), decided)
        if method == "branch":
            best = BranchAndBound(evaluator, case, state, best, value).run()
            return self._finished(case, best, state, "exact")
        rng = random_generator(seed)
        for first in (*([start] if start else []), *(evaluator.random(rng) for _ in range(restarts))):
            policies, other = self._updated(case, first, decided)
            if other > value + TIE * (abs(value) + evaluator.goal.scale):
                best, value = policies, other
        return self._finished(case, best, state, "local optimum")

    def _best(self, case: PolicyCase, d: int, now: Floats | None) -> Floats:
        """Give a decision its best policy given the others; notes where options tie."""
        # now: its policy of zeros and ones, kept where it ties with the best
        table = case.worth(d)
        n = table.shape[-1]
        worth = np.ascontiguousarray(table.reshape(-1, n).T)  # option by option
        near = worth >= worth.max(axis=0) * (1.0 - TIE)
        self._near[d] = near
        chosen = near
        if now is not None:
            kept = near & (now.reshape(-1, n).T > 0.0)
            stays = kept.any(axis=0)
            if stays.all():
                case.set(d, now)
                return now
            chosen = np.where(stays, kept, near)
        first = chosen & (chosen.cumsum(axis=0) == 1)
        policy = np.array(first.T, np.float64, order="C").reshape(table.shape)
        case.set(d, policy)
        return policy

    def _updated(self, case: PolicyCase, policies: Policies, decided: list[int]) -> tuple[Policies, float]:
        """Single policy updating: each decision in turn, until none changes."""
        policies, settled = dict(policies), set[int]()
        case.load(policies)
        since_change = 0
        for d in decided * MOST_CYCLES:
            table = self._best(case, d, policies[d] if d in settled else None)
            since_change = since_change + 1 if table is policies[d] else 0
            policies[d] = table
            settled.add(d)
            if since_change >= len(decided):
                break
        return policies, case.expected(policies)

    def _finished(self, case: PolicyCase, policies: Policies, state: NDArray[np.int32] | None, method: str) -> Solution:
        """The solution, with ties and rows that are never reached."""
        evaluator = self.evaluator
        decided = [d for d in self.order if state is None or state[d] < 0]
        for d in self.order:
            if state is not None and state[d] >= 0:  # fixed
                shape = evaluator.shape(d)
                policies = {**policies, d: np.broadcast_to(np.eye(shape[-1])[state[d]], shape).copy()}
        ties: dict[int, list[tuple[int, ...]]] = {}
        unreached: dict[int, list[tuple[int, ...]]] = {}
        joints = case.reached(decided)
        expected = case.expected(policies)
        for d in decided:
            never = np.zeros(evaluator.shape(d)[:-1], bool)
            if d in joints:
                never = joints[d].sum(axis=-1) <= 0.0
            if d in self._near:
                tied = (self._near[d].sum(axis=0) > 1).reshape(never.shape)
                ties[d] = [tuple(row) for row in np.argwhere(tied & ~never).tolist()]
            if never.any():
                unreached[d] = [tuple(row) for row in np.argwhere(never).tolist()]
                table = policies[d].copy()
                table[never] = 1.0 / table.shape[-1]
                policies = {**policies, d: table}
        return Solution(policies, expected, method, ties, unreached)


def check_network(net: DecisionNetwork, most: float | None) -> None:
    """Raise `TableTooLarge` for a policy of too many entries; warn if there is nothing to gain."""
    if not net.utilities:
        warnings.warn("the network has no utilities: every option is worth 0", stacklevel=outside())
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
