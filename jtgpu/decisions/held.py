"""`PolicyCase`: evidence and policies in a backend's memory; a change of a policy and a propagation are two calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ImpossibleEvidence
from ..model.directed import descendants
from ..util.elementary import log
from .evaluate import VANISHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ..backends.base import HeldCase
    from .evaluate import Evaluator
    from .place import Policies

    Floats = NDArray[np.float64]


FAINT = 1e-290  # P(information), below which the parts of it may be no numbers


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
