"""A tree of its own for evidence patterns that come again and again.

Evidence cuts a network: observed variables connect nothing any more, and an elimination order that was good without
them may be far from the best one that is left (Barley with a fifth observed: 15 times the work). For a pattern that
has cost enough by then, the network is planned anew with every observed variable taken apart: each factor gets a copy
of it, all copies are observed in its state, and the copies connect nothing. The plan depends on which variables are
observed and not on their states, so it serves every case of the pattern.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .backends.base import Backend, BatchResult, Evidence, Result, Session, columns_of
from .errors import JtgpuError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Plan

__all__ = ["Measured", "Replanned", "Replanning"]

# In multiplications: what it takes to plan anew, for each variable; measured at 0.1 to 2.7 ms a variable of one core
# that does 5e9 a second. A pattern is planned for once it has cost that much, so never more than twice what was needed.
PLANNING = 3_000_000
WORTH = 200_000  # multiplications of a case below which nothing is counted
GAIN = 0.8  # share of the work that a new plan may leave at most
MOST_PATTERNS = 4096  # counted, the last seen ones
MOST_PLANS = 16  # kept, the last used ones


class Measured(Backend, Protocol):
    """A backend that knows how much a case is."""

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case that observes these variables, (V,) bool."""


Prepare = Callable[["Plan", Sequence["NDArray[np.float64]"]], Measured]


class Replanned:
    """A backend for one pattern.

    Parameters
    ----------
    plan : Plan
        Of the network.
    factors : sequence of arrays
    seen : (V,) bool
        What is observed in every case.
    prepare : callable
        Makes a backend from a plan and factors.

    Raises
    ------
    TableTooLarge
    """

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], seen: NDArray[np.bool_], prepare: Prepare
    ):
        self._plan, self._seen = plan, seen
        ptr = plan.posterior_ptr
        of: list[int] = []  # variable that a new one stands for
        first = np.full(plan.n_variables, -1)  # one that stands for a variable
        scopes = []
        for scope in plan.factor_scopes:
            for v in scope:
                if first[v] < 0 or seen[v]:
                    if first[v] < 0:
                        first[v] = len(of)
                    of.append(v)
            copies = {v: i for i, v in enumerate(of)}  # the newest ones
            scopes.append([copies[v] if seen[v] else int(first[v]) for v in scope])
        for v in np.flatnonzero(first < 0).tolist():  # in no factor at all
            first[v] = len(of)
            of.append(v)
        self._of, self._first = np.array(of, np.int64), first
        new = _plan(plan.cardinality[self._of], scopes, factors)
        self.backend = prepare(new, factors)
        self._new_ptr = new.posterior_ptr
        self.seen = seen[self._of]
        self._cells = columns_of(ptr, np.flatnonzero(~seen).tolist())
        self._new_cells = columns_of(new.posterior_ptr, first[~seen].tolist())
        self._hard = np.flatnonzero(seen)

    def targets(self, targets: Sequence[int] | None) -> list[int]:
        """The new variables that have to be asked for: none that is observed."""
        asked = np.flatnonzero(~self._seen) if targets is None else np.array([*targets], np.int64)
        return list(dict.fromkeys(self._first[asked[~self._seen[asked]]].tolist()))

    def work(self, targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case."""
        return self.backend.work(self.seen, self.targets(targets))

    def run(
        self, evidence: Evidence, targets: Sequence[int] | None, run: Callable[..., Result] | None = None
    ) -> Result:
        """See `jtgpu.backends.base.Backend.run`; `run`: that of a session of the backend."""
        case = Evidence(evidence.state[self._of], {int(self._first[v]): w for v, w in evidence.likelihood.items()})
        found = (run or self.backend.run)(case, self.targets(targets))
        posterior = np.zeros(int(self._plan.posterior_ptr[-1]))
        posterior[self._cells] = found.posterior[self._new_cells]
        posterior[self._plan.posterior_ptr[self._hard] + evidence.state[self._hard]] = 1.0
        return Result(posterior, found.log_evidence)

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]],
        targets: Sequence[int] | None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`; every row has the pattern."""
        asked = self.targets(targets)
        weights = {int(self._first[v]): w for v, w in likelihood.items()}
        found = self.backend.run_batch(np.ascontiguousarray(states[:, self._of]), weights, asked)
        wanted = range(self._plan.n_variables) if targets is None else targets
        cards = self._plan.cardinality
        at = dict(zip(asked, np.cumsum([0, *self._plan_cards(asked)]).tolist(), strict=False))
        posterior = np.zeros((len(states), int(sum(cards[v] for v in wanted))))
        rows = np.flatnonzero(~found.impossible)
        column = 0
        for v in wanted:
            card = int(cards[v])
            if self._seen[v]:
                posterior[rows, column + states[rows, v]] = 1.0
            else:
                begin = at[int(self._first[v])]
                posterior[:, column : column + card] = found.posterior[:, begin : begin + card]
            column += card
        return BatchResult(posterior, found.log_evidence, found.impossible)

    def _plan_cards(self, asked: list[int]) -> list[int]:
        return [int(self._new_ptr[v + 1] - self._new_ptr[v]) for v in asked]

    def close(self) -> None:
        """Give memory back."""
        self.backend.close()


def _plan(
    cardinality: NDArray[np.int64], scopes: Sequence[Sequence[int]], factors: Sequence[NDArray[np.float64]]
) -> Plan:
    from .network import Factor, MarkovNetwork

    states = {str(i): list(map(str, range(n))) for i, n in enumerate(cardinality.tolist())}
    model = MarkovNetwork.of_checked(
        states, [Factor(tuple(scope), table) for scope, table in zip(scopes, factors, strict=True)]
    )
    made: Any = model.plan(cache=False)
    plan: Plan = made.plan
    return plan


class _Pattern:
    """What is known of a pattern."""

    def __init__(self) -> None:
        self.spent = 0  # multiplications so far
        self.tried = False
        self.new: Replanned | None = None


class Replanning:
    """`jtgpu.backends.base.Backend` around another one, which answers until a pattern has a plan of its own.

    The same queries in the same order give the same bits; before and after a new plan the last digits may differ.

    Parameters
    ----------
    plan : Plan
    factors : sequence of arrays
    backend : Measured
        Of the plan and the factors; closed with this one.
    prepare : callable
        Makes another one like it.
    """

    def __init__(
        self, plan: Plan, factors: Sequence[NDArray[np.float64]], backend: Measured, prepare: Prepare
    ):
        self._plan, self._factors, self.backend, self._prepare = plan, factors, backend, prepare
        self._patterns: OrderedDict[Any, _Pattern] = OrderedDict()
        self._lock = threading.Lock()
        self._threshold = PLANNING * plan.n_variables

    def find(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, coming: int = 1) -> Replanned | None:
        """The plan of a pattern of `coming` cases, made now if that pays; None: the usual one serves."""
        if not seen.any():
            return None
        key = seen.tobytes(), None if targets is None else tuple(targets)
        with self._lock:
            pattern = self._patterns.get(key)
            if pattern is None:
                pattern = self._patterns[key] = _Pattern()
                while len(self._patterns) > MOST_PATTERNS:
                    self._forget(next(iter(self._patterns)))
            else:
                self._patterns.move_to_end(key)
            if pattern.tried:
                return pattern.new
            work = self.backend.work(seen, targets)
            pattern.spent += coming * work
            if work < WORTH or pattern.spent < self._threshold:
                return None
            pattern.tried = True
            pattern.new = self._make(seen, targets, work)
            kept = [k for k, p in self._patterns.items() if p.new is not None]
            for old in kept[: len(kept) - MOST_PLANS]:
                self._forget(old)
            return pattern.new

    def _make(self, seen: NDArray[np.bool_], targets: Sequence[int] | None, work: int) -> Replanned | None:
        try:
            new = Replanned(self._plan, self._factors, seen.copy(), self._prepare)
        except (JtgpuError, MemoryError):  # too large: what there is serves
            return None
        if new.work(targets) <= GAIN * work:
            return new
        new.close()
        return None

    def _forget(self, key: Any) -> None:
        # not closed: another thread may be in it; its memory goes with the last who holds it
        del self._patterns[key]

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """See `Measured.work`; of the usual plan."""
        return self.backend.work(seen, targets)

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`."""
        found = self.find(evidence.state >= 0, targets)
        return self.backend.run(evidence, targets) if found is None else found.run(evidence, targets)

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`."""
        weights = dict(likelihood or {})
        groups = self._groups(states, targets)
        if not groups:
            return self.backend.run_batch(states, likelihood, targets)
        columns = len(columns_of(self._plan.posterior_ptr, targets))
        n = len(states)
        answer = BatchResult(np.zeros((n, columns)), np.full(n, -np.inf), np.zeros(n, np.bool_))
        rest = np.ones(n, np.bool_)
        parts: list[tuple[NDArray[np.int64], BatchResult]] = []
        for rows, new in groups:
            rest[rows] = False
            parts.append((rows, new.run_batch(states[rows], {v: w[rows] for v, w in weights.items()}, targets)))
        others = np.flatnonzero(rest)
        if len(others):
            some = {v: w[others] for v, w in weights.items()}
            parts.append((others, self.backend.run_batch(np.ascontiguousarray(states[others]), some, targets)))
        for rows, part in parts:
            answer.posterior[rows] = part.posterior
            answer.log_evidence[rows] = part.log_evidence
            answer.impossible[rows] = part.impossible
        return answer

    def _groups(
        self, states: NDArray[np.int32], targets: Sequence[int] | None
    ) -> list[tuple[NDArray[np.int64], Replanned]]:
        """Rows whose patterns have plans of their own."""
        if not len(states):
            return []
        _, first, pattern, count = np.unique(
            np.packbits(states >= 0, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        if len(first) > MOST_PATTERNS:  # none of them comes often
            return []
        groups = []
        for i in np.argsort(first).tolist():
            if count[i] > 1:
                found = self.find(states[first[i]] >= 0, targets, int(count[i]))
                if found is not None:
                    groups.append((np.flatnonzero(pattern.ravel() == i), found))
        return groups

    def session(self) -> Session:
        """See `jtgpu.backends.base.Backend.session`."""
        return _Session(self)

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        self.backend.close()
        with self._lock:
            for pattern in self._patterns.values():
                if pattern.new is not None:
                    pattern.new.close()
            self._patterns.clear()


class _Session:
    """A session of the usual plan, and one of every pattern's that comes up."""

    def __init__(self, backend: Replanning):
        self._backend = backend
        self._usual: Session | None = backend.backend.session()
        self._others: OrderedDict[int, tuple[Replanned, Session]] = OrderedDict()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Session.run`."""
        if self._usual is None:
            raise JtgpuError("this session is closed")
        found = self._backend.find(evidence.state >= 0, targets)
        if found is None:
            return self._usual.run(evidence, targets)
        kept = self._others.pop(id(found), None) or (found, found.backend.session())
        self._others[id(found)] = kept  # the pair holds `found`, so its number stays its own
        while len(self._others) > MOST_PLANS:
            self._others.popitem(last=False)[1][1].close()
        return found.run(evidence, targets, kept[1].run)

    def close(self) -> None:
        """See `jtgpu.backends.base.Session.close`."""
        if self._usual is not None:
            self._usual.close()
        self._usual = None
        for _, session in self._others.values():
            session.close()
        self._others.clear()
