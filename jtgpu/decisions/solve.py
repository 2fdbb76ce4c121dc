"""Policies of the highest expected utility: one pass where that is exact, else single policy updating."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..backends.base import HeldCase
from ..errors import ImpossibleEvidence, TableTooLarge
from ..model.decisions import DecisionNetwork
from ..model.directed import descendants
from ..util.arguments import random_generator
from ..util.arrays import Floats
from ..util.calls import outside
from ..util.elementary import log
from ..util.system import new_lock
from .evaluate import TIE, VANISHING, Evaluator, Policies
from .relevance import recalled_information, requisite_information, solution_order

MOST_CYCLES = 100  # of single policy updating; every cycle improves the policy
Rows = dict[int, "NDArray[np.int64]"]  # decision -> option of each configuration of its information, -1: free
FAINT = 1e-290  # P(information), below which the parts of it may be no numbers


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


class _Held:
    """One case of a backend, and the policies that it has."""

    def __init__(self, evaluator: Evaluator, state: NDArray[np.int32] | None, goal: bool):
        self._places, self.policies = evaluator.places, evaluator.uniform()
        self._case: HeldCase = evaluator.hold(self.policies, state, goal)
        self._fixed = set() if state is None else {d for d in self.policies if state[d] >= 0}
        self._log_p = 0.0  # of the last run
        self._free = -1  # the decision whose options had the same weight there
        self._changed = set(self.policies)  # decisions whose policies were set since

    def set(self, d: int, policy: Floats) -> None:
        if self.policies[d] is policy:
            return
        self.policies[d] = policy
        if d not in self._fixed:  # whatever its policy
            place = self._places[d]
            self._case.set(place.number, place.cells(policy))
            self._changed.add(d)

    def load(self, policies: Policies) -> None:
        for d, policy in policies.items():
            self.set(d, policy)

    def run(self, free: int = -1) -> float:
        """ln P; free: a decision whose options have the same weight."""
        self._log_p, self._free = self._case.run(), free
        self._changed.clear()
        return self._log_p

    def log_p(self) -> float:
        """ln P, without a run if only the policy of the decision changed that was free in the last one."""
        d = self._free
        if self._changed != {d} or self._log_p == -math.inf:
            return self.run()
        share = float((self.table(d) * self.policies[d]).sum())
        return self._log_p + log(share) if share > 0.0 else -math.inf

    def table(self, d: int) -> Floats:
        """P(information, option) as of the last run; valid until the next one."""
        place = self._places[d]
        return place.table(self._case.cells(place.number))

    def close(self) -> None:
        self._case.close()


class PolicyCase:
    """Evidence that holds whatever is decided, and policies; for one thread."""

    def __init__(self, evaluator: Evaluator, state: NDArray[np.int32] | None):
        self._evaluator, self._state = evaluator, state
        self._reached: _Held | None = None  # where the goal is reached
        self._plain: _Held | None = None
        self._faint_rows: dict[int, NDArray[np.bool_]] = {}  # see `_faint`
        self._base: float | None = None  # ln P of the evidence, where no policy changes it
        self._observed = set() if state is None else set(np.flatnonzero(state >= 0).tolist())
        below = descendants(evaluator.net._children, [d for d in evaluator.scopes if d not in self._observed])
        self._is_fixed = not self._observed & below
        if not self._observed:  # in the plan, decisions have uniform CPTs
            self._base = -math.fsum(log(evaluator.shape(d)[-1]) for d in evaluator.scopes)

    @property
    def _goal(self) -> _Held:
        if self._reached is None:
            self._reached = _Held(self._evaluator, self._state, bool(self._evaluator.goal.nodes))
        return self._reached

    def load(self, policies: Policies) -> None:
        """Let the decisions follow these policies."""
        self._goal.load(policies)

    def set(self, d: int, policy: Floats) -> None:
        """Let one decision follow another policy."""
        self._goal.set(d, policy)

    def worth(self, d: int) -> Floats:
        """(extents of the information, options) P(information, option, goal | evidence) up to a factor, if every option
        has the same weight and the other policies are as they are; valid until the next call."""
        held, evaluator = self._goal, self._evaluator
        held.set(d, evaluator.free(d))
        table = np.zeros(evaluator.shape(d)) if held.run(d) == -math.inf else held.table(d)
        faint = self._faint(d) & (table.max(axis=-1) < FAINT)
        if faint.any():
            table = table.copy()
            table[faint] = evaluator.rows(d, held.policies, self._state, faint, bool(evaluator.goal.nodes))[0]
        return table

    def _faint(self, d: int) -> NDArray[np.bool_]:
        """Configurations of the information that are possible but for whose probability there may be no number."""
        if d not in self._faint_rows:
            evaluator = self._evaluator
            faint = np.zeros(evaluator.shape(d)[:-1], np.bool_)
            if evaluator.scopes[d][:-1] and evaluator.may_vanish:
                uniform = evaluator.uniform()
                self._log_evidence(uniform)
                assert self._plain is not None
                faint = self._plain.table(d).max(axis=-1) < VANISHING
                if faint.any():
                    faint[faint] = evaluator.rows(d, uniform, self._state, faint, False)[1]
            self._faint_rows[d] = faint
        return self._faint_rows[d]

    def reached(self, wanted: Iterable[int]) -> dict[int, Floats]:
        """P(information, option | evidence) of some decisions where every option may be chosen; empty if nothing has
        probability 0.

        Raises `ImpossibleEvidence` if the evidence has probability 0.
        """
        net = self._evaluator.net
        if not self._observed and all((table > 0).all() for table in net._cpts.values()):
            return {}
        log_p = self._log_evidence(self._evaluator.uniform())
        if log_p == -math.inf:
            raise ImpossibleEvidence("the evidence has probability 0, whatever is decided")
        assert self._plain is not None
        tables = {d: self._plain.table(d).copy() for d in wanted}
        for d, table in tables.items():
            table[self._faint(d)] = 1.0  # possible
        return tables

    def _log_evidence(self, policies: Policies) -> float:
        if self._plain is None:
            self._plain = _Held(self._evaluator, self._state, False)
        self._plain.load(policies)
        return self._plain.run()

    def expected(self, policies: Policies) -> float:
        """Expected utility given the evidence."""
        evaluator = self._evaluator
        if not evaluator.goal.nodes:
            return evaluator.goal.offset
        base = self._base
        if base is None:
            base = self._log_evidence(evaluator.uniform() if self._is_fixed else policies)
            if self._is_fixed:
                self._base = base
        if base == -math.inf:
            raise ImpossibleEvidence("the evidence has probability 0 under this policy")
        self._goal.load(policies)
        return evaluator.utility(self._goal.log_p() - base)

    def close(self) -> None:
        """Free the backend's memory of the case."""
        for held in (self._reached, self._plain):
            if held is not None:
                held.close()
        self._reached = self._plain = None
